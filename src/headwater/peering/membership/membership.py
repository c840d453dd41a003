"""One node's part in the cluster's gossip: what a node ticks, feeds and asks.

Once per `Timing.interval` a node calls `tick` and sends what it returns; what arrives goes to `receive`, and its answer
back on the way it came. Each round a node tells a few random others what it knows (push and pull, so news reach all of
n nodes in O(log n) rounds), now and then a dead one, so that halves of a cluster find each other again, and a seed that
is none of the live nodes. Targets are chosen as chitchat chooses them.

The node's own map says what others need to know: `address`, and whatever else its owner sets. Leaving is a key of that
map (`left`), and so is what an operator wants forgotten (`forget.NODE`: the generation): each node follows it once it
holds the named one for dead itself. A node that hears of itself what it did not say (its id in a later generation, or
that it is forgotten) takes a generation above that, and is back; if that goes on, somebody else has its id
(`id_taken`).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple

from .bounds import DELTA_BYTES, MAX_NUMBER, MAX_REFUTATIONS, MAX_SEEDS
from .health import LocalHealth
from .messages import ID, NAME, GossipMessage, Kind, MalformedGossip, NodeDelta, NodeDigest, delta_size, encode, parse
from .replica import OwnMap, Replica
from .roster import FORGET_KEY, LEFT_KEY, Change, Roster, State, Timing

FANOUT: Final = 3
ADDRESS_KEY: Final = "address"
MAX_FORGETS: Final = 16
"""Nodes that one node asks others to forget, at a time; the oldest request gives way."""
LEAST_SEED_CHANCE: Final = 0.1


class Outgoing(NamedTuple):
    node: str | None
    """None: it is a seed, whose id is not known."""
    address: str
    data: bytes


class MemberView(NamedTuple):
    """For people and links; our own node is among them."""

    node: str
    state: State
    generation: int
    address: str
    phi: float
    since: float
    reason: str
    values: dict[str, bytes]


class Membership:
    def __init__(self, cluster: str, node: str, generation: int, address: str, rng: Random, timing: Timing) -> None:
        """`generation` has to be larger than any that this node had before; keep it with the node's id."""
        if NAME.fullmatch(cluster) is None or ID.fullmatch(node) is None:
            raise ValueError("malformed name of cluster or node")
        self._cluster = cluster
        self._timing = timing
        self._rng = rng
        self._own = OwnMap(node, generation, timing.tombstone_life)
        self._own.set(ADDRESS_KEY, address.encode())
        self._roster = Roster(timing)
        self._health = LocalHealth(timing.interval)
        self._seeds: list[str] = []
        self._forgets: dict[str, float] = {}
        self._data_plane = -1
        self._refutations = 0
        self._started: float | None = None

    # What a node writes, and asks.

    @property
    def node(self) -> str:
        return self._own.node

    @property
    def generation(self) -> int:
        """It may grow; keep the largest, so that the next start is above it."""
        return self._own.generation

    @property
    def id_taken(self) -> bool:
        """Somebody else uses this node's id and does not give way."""
        return self._refutations >= MAX_REFUTATIONS

    @property
    def patience(self) -> int:
        return self._health.patience

    @property
    def refused(self) -> int:
        return self._roster.refused

    def set(self, key: str, value: bytes) -> None:
        """Tell all others; raises ValueError if it is too large."""
        if key in (LEFT_KEY, ADDRESS_KEY) or key.startswith(FORGET_KEY):
            raise ValueError(f"{key!r} is reserved")
        self._own.set(key, value)

    def delete(self, key: str, now: float) -> None:
        self._own.delete(key, now)

    def move(self, address: str) -> None:
        """Others reach us at this address from now on."""
        self._own.set(ADDRESS_KEY, address.encode())

    def seek(self, addresses: Sequence[str]) -> None:
        """Replace the seeds' addresses (`seeds.seed_addresses`): this is how a node joins, at the start or later."""
        self._seeds = list(addresses[:MAX_SEEDS])

    def addresses(self) -> list[str]:
        """Where others are, live ones first. Keep them, and `seek` them beside the seeds after a restart.

        Then a node finds its cluster even if all seeds are gone or have moved.
        """
        order = [State.LIVE, State.SUSPECTED, State.DEAD]
        members = [each for each in self._roster.members.values() if each.state in order]
        members.sort(key=lambda each: (order.index(each.state), each.replica.node))
        return list(dict.fromkeys(_address(each.replica) for each in members if _address(each.replica)))

    def take_changes(self) -> list[Change]:
        found, self._roster.changes = self._roster.changes, []
        return found

    def state_of(self, node: str) -> State | None:
        if node == self.node:
            return State.LEFT if self._has_left() else State.LIVE
        member = self._roster.members.get(node)
        return member.state if member else None

    def live(self) -> list[str]:
        """The other nodes that are live."""
        return sorted(node for node, each in self._roster.members.items() if each.state == State.LIVE)

    def view(self, now: float) -> list[MemberView]:
        started = now if self._started is None else self._started
        found = [self._view(self._own, self.state_of(self.node) or State.LIVE, 0.0, started, "self")]
        for member in self._roster.members.values():
            phi = self._roster.phi(member, now, self.patience)
            found.append(self._view(member.replica, member.state, phi, member.since, member.reason))
        return sorted(found)

    def _view(self, replica: Replica, state: State, phi: float, since: float, reason: str) -> MemberView:
        values = dict(replica.items())
        return MemberView(replica.node, state, replica.generation, _address(replica), phi, since, reason, values)

    # Rounds.

    def tick(self, now: float, data_plane: int) -> list[Outgoing]:
        """A heartbeat. `data_plane` is any number that grows while the data plane works, idle or not."""
        self._started = now if self._started is None else self._started
        self._own.heartbeat += 1
        if data_plane > self._data_plane:
            self._data_plane = data_plane
            self._own.progress = self._own.heartbeat
        self._roster.excuse(self._health.tick(now), now)
        self._own.collect(now)
        for node, since in list(self._forgets.items()):
            if now - since >= self._timing.forget_after:
                self._withdraw_forget(node, now)
        self._roster.judge(now, self._health.patience, self._forgotten())
        for node, member in self._roster.members.items():
            if member.state in (State.DEAD, State.LEFT):
                self._health.dismiss(node)
        return [] if self._has_left() else self._syns(now)

    def greeting(self, now: float) -> bytes:
        """For somebody who has just been linked, as in a round."""
        return encode(self._message(Kind.SYN, self._digest(now), ()))

    def _syns(self, now: float) -> list[Outgoing]:
        data = self.greeting(now)
        sends = []
        for node, address in self._targets():
            if node is not None and self.state_of(node) != State.DEAD:
                self._health.asked(node, now)
            sends.append(Outgoing(node, address, data))
        return sends

    def _targets(self) -> list[tuple[str | None, str]]:
        members = self._roster.members
        near: list[tuple[str | None, str]] = []
        dead: list[tuple[str | None, str]] = []
        for node, member in members.items():
            address = _address(member.replica)
            if address and member.state in (State.LIVE, State.SUSPECTED):
                near.append((node, address))
            elif address and member.state == State.DEAD:
                dead.append((node, address))
        chosen = self._rng.sample(near, min(FANOUT, len(near)))
        if dead and self._rng.random() < len(dead) / (len(near) + 1):
            chosen.append(self._rng.choice(dead))
        reached = {address for _, address in near} | {_address(self._own)}
        seeds: list[tuple[str | None, str]] = [(None, each) for each in self._seeds if each not in reached]
        if not near:
            chosen += self._rng.sample(seeds, min(FANOUT, len(seeds)))
        elif seeds and self._rng.random() < max(LEAST_SEED_CHANCE, 1 / (len(near) + 1)):
            chosen.append(self._rng.choice(seeds))
        return chosen

    def receive(self, data: bytes, now: float, sender: str | None = None) -> bytes | None:
        """Take a message; the answer, if any, goes back on the same way.

        `sender` is who it is from if the link knows. Raises MalformedGossip, also for the message of another cluster.
        """
        message = parse(data)
        if message.cluster != self._cluster:
            raise MalformedGossip(f"message of cluster {message.cluster}")
        if sender is not None and message.sender != sender:
            raise MalformedGossip("sender's id is not the one of its link")
        if message.sender == self.node and message.generation == self.generation:
            return None  # a seed's address was our own
        if message.kind == Kind.SYNACK:
            self._health.answered(message.sender)
        for news in message.digest:
            if news.node == self.node:
                self._hear_of_self(news)
            else:
                direct = news.node == message.sender and news.generation == message.generation
                self._roster.hear(news, direct, now)
        for delta in message.delta:
            self._apply(delta, now)
        return self._answer(message, now)

    def _answer(self, message: GossipMessage, now: float) -> bytes | None:
        if message.kind == Kind.SYN:
            return encode(self._message(Kind.SYNACK, self._digest(now), self._delta(message.digest, now)))
        if message.kind == Kind.SYNACK:
            delta = self._delta(message.digest, now)
            return encode(self._message(Kind.ACK, (), delta)) if delta else None
        return None

    def _apply(self, delta: NodeDelta, now: float) -> None:
        member = self._roster.members.get(delta.node)
        if member is None or not member.replica.apply(delta):
            return
        if member.replica.get(LEFT_KEY) is not None:
            self._roster.mark_left(member, now)
        generation = _number(member.replica.get(FORGET_KEY + self.node))
        if generation >= self.generation:
            self._refute(generation)

    def _message(self, kind: Kind, digest: tuple[NodeDigest, ...], delta: tuple[NodeDelta, ...]) -> GossipMessage:
        return GossipMessage(kind, self._cluster, self.node, self.generation, digest, delta)

    def _digest(self, now: float) -> tuple[NodeDigest, ...]:
        return tuple(sorted(each.digest() for each in (self._own, *self._roster.gossiped(now))))

    def _delta(self, digest: tuple[NodeDigest, ...], now: float) -> tuple[NodeDelta, ...]:
        """What the sender of this digest lacks, from those first who have most that it lacks (scuttle-depth)."""
        known = {each.node: each for each in digest}
        behind: list[tuple[int, float, Replica, int, int]] = []
        for replica in (self._own, *self._roster.gossiped(now)):
            theirs = known.get(replica.node)
            if theirs is not None and theirs.generation > replica.generation:
                continue
            same = theirs is not None and theirs.generation == replica.generation
            version, collected = (theirs.version, theirs.collected) if theirs is not None and same else (0, 0)
            lag = replica.lag(version, collected)
            if lag:
                behind.append((-lag, self._rng.random(), replica, version, collected))
        room = DELTA_BYTES
        found: list[NodeDelta] = []
        for _, _, replica, version, collected in sorted(behind, key=lambda each: each[:2]):
            delta = replica.delta(version, collected, room)
            if delta is not None:
                found.append(delta)
                room -= delta_size(delta)
        return tuple(sorted(found))

    # Coming and going.

    def leave(self) -> list[Outgoing]:
        """Say good-bye to those that are not dead; from now on `tick` sends nothing.

        To come back, start a new generation. The farewell is the last change of our map alone: who
        lacks earlier ones hears of it from the others.
        """
        self._own.set(LEFT_KEY, b"1")
        last = self._own.delta(self._own.version - 1, self._own.collected, DELTA_BYTES)
        data = encode(self._message(Kind.ACK, (), (last,) if last else ()))
        found = []
        for node, member in self._roster.members.items():
            if member.state in (State.LIVE, State.SUSPECTED) and _address(member.replica):
                found.append(Outgoing(node, _address(member.replica), data))
        return found

    def parted(self, node: str, now: float) -> None:
        """The node itself has said, to us, that it has left."""
        member = self._roster.members.get(node)
        if member is not None:
            self._roster.mark_left(member, now)

    def forget(self, node: str, now: float) -> None:
        """Have all nodes forget one that is dead or has left; raises ValueError if it is neither.

        If it does live, it takes a new generation as soon as it hears of this, and is back.
        """
        member = self._roster.members.get(node)
        if member is None:
            raise ValueError(f"node {node} is not known")
        if member.state not in (State.DEAD, State.LEFT):
            raise ValueError(f"node {node} is {member.state}; only a dead node, or one that left, can be forgotten")
        if node not in self._forgets and len(self._forgets) >= MAX_FORGETS:
            self._withdraw_forget(next(iter(self._forgets)), now)
        self._own.set(FORGET_KEY + node, b"%d" % member.replica.generation)
        self._forgets[node] = now
        self._roster.bury(node, MAX_NUMBER, now)

    def _withdraw_forget(self, node: str, now: float) -> None:
        del self._forgets[node]
        self._own.delete(FORGET_KEY + node, now)

    def _forgotten(self) -> dict[str, int]:
        """The generations that somebody wants forgotten, of those that are gone here as well."""
        members = self._roster.members
        gone = [node for node, each in members.items() if each.state in (State.DEAD, State.LEFT)]
        maps = [each.replica for each in members.values()]
        return {node: max(_number(each.get(FORGET_KEY + node)) for each in maps) for node in gone}

    def _has_left(self) -> bool:
        return self._own.get(LEFT_KEY) is not None

    def _hear_of_self(self, news: NodeDigest) -> None:
        own = self._own
        ahead = news.heartbeat > own.heartbeat or news.version > own.version
        if news.generation > own.generation or (news.generation == own.generation and ahead):
            self._refute(news.generation)

    def _refute(self, generation: int) -> None:
        """Be newer than what is said of us."""
        if self._has_left() or self.id_taken:
            return
        if generation >= MAX_NUMBER:
            self._refutations = MAX_REFUTATIONS
            return
        self._own = self._own.renewed(generation + 1)
        self._refutations += 1


def _address(replica: Replica) -> str:
    """Empty if it is not known yet."""
    return (replica.get(ADDRESS_KEY) or b"").decode("utf-8", "replace")


def _number(value: bytes | None) -> int:
    """What somebody wrote as a generation; -1 if it is none."""
    return int(value) if value is not None and value.isdigit() and len(value) <= 10 else -1
