"""Which node gets a message of a group that has members at several: the first of two levels.

Theory. The node at which a message is published chooses a node, and that node chooses one of its members, by the
group's dispatcher. Nodes tell how their members are doing (notes.py) every now and then; between two tellings the
origin goes on by itself, with a model of each node that its own choices move. What it had sent and the node had not
taken when it told (`sent` - `taken`) is added to what was told.

By which model, follows from the group's dispatcher:

  start     the node one of whose members would start first, and of free ones the one that has been free for longest. A
            slot's start moves by the time that a message takes, so a burst is dealt out as `adaptive` would at one
            node. A group of which nothing is known goes round robin. For `adaptive`, `least_…` and `score…`.
  turns     each gets its weight's share, by turns or by chance. For `round_robin`, `weighted_round_robin`, `random`.
  capacity  by chance, in proportion to what is left of the capacity of its members (Matić et al., TELFOR 2020: broker k
            gets a message with the probability BR_k / Σ t_i, where BR_k is the sum of the t_i of its subscribers).
  key       one node for a topic, a publisher, or the whole group, by weighted rendezvous hashing: every origin finds
            the same, and what belongs together stays together, as long as nobody comes or goes. For `hash_topic`,
            `hash_client` and `sticky`.

Credit. Only a node that has room for more than is on its way to it is chosen; where nobody has, None is, and the
message waits at the origin. By key there is one node, and the message waits there. Several origins may use the same
credit at once: what is too much waits at the node that was chosen.
"""

from __future__ import annotations

import random
from hashlib import blake2b
from math import exp, log
from typing import Final

from headwater.peering.groups.notes import GroupState

START: Final = 0
TURNS: Final = 1
CHANCE: Final = 2
CAPACITY: Final = 3
KEY: Final = 4

WAYS: Final = {
    "round_robin": TURNS,
    "weighted_round_robin": TURNS,
    "random": CHANCE,
    "capacity": CAPACITY,
    "hash_topic": KEY,
    "hash_client": KEY,
    "sticky": KEY,
}
"""By the name of a dispatcher; `START` for others."""
QUICKEST: Final = 1e-6
"""Seconds for a message, where nobody has told any."""
MANY: Final = 256
"""Messages on their way to a node that are given to its slots one by one, when it has told how they are."""
SHORT: Final = 0.0005
"""Seconds of work that a node may be given without looking at the others."""
LEAST: Final = 0.01
"""Of a node's capacity that is always left, so that each has a chance."""
MOST_KEYS: Final = 4096
"""For which it is remembered where they belong."""


class GroupNode:
    """A node's members of one group, as another node sees them, or it itself."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.is_up = False
        """Its link."""
        self.members = 0
        self.online = 0
        self.credit = 0
        self.weight = 1.0
        self.capacity = 1.0
        self.sent = 0
        self.taken = 0
        self.turn = 0.0
        self.starts: list[float] = []
        self.services: list[float] = []
        self.counts: list[int] = []

    @property
    def has_room(self) -> bool:
        """Whether it may be sent a message of which it would not have to wait for long."""
        return self.is_up and self.sent - self.taken < self.credit

    def told(self, state: GroupState, taken: int, typical: float, now: float) -> None:
        """What it has told, of which it had `taken` so many messages (the last 32 bits of the number)."""
        self.members = state.members
        self.online = state.online
        self.credit = state.credit
        self.weight = state.weight
        self.capacity = state.capacity
        self.starts = [now + slot.starts_in for slot in state.slots]
        self.services = [slot.service for slot in state.slots]
        self.counts = [slot.alike for slot in state.slots]
        self.taken += (taken - self.taken) & 0xFFFFFFFF
        if self.taken > self.sent:  # it had messages of an earlier link, from the spool
            self.sent = self.taken
        self._add(self.sent - self.taken, typical, now)

    def cut(self) -> None:
        """The link is down; both sides count anew when it is up again."""
        self.is_up = False
        self.sent = self.taken = 0

    def _add(self, under_way: int, typical: float, now: float) -> None:
        """Messages that will come to it."""
        if not self.starts:
            return
        for _ in range(min(under_way, MANY)):
            self.give(self.first(now), typical, now)
        rest = under_way - MANY
        if rest > 0:
            rate = 0.0
            for at, count in enumerate(self.counts):
                rate += count / self._service(at, typical)
            self.starts = [max(start, now) + rest / rate for start in self.starts]

    def first(self, now: float) -> int:
        """The slot that starts first, of free ones the one that has been free for longest; there has to be one."""
        first = 0
        for at, start in enumerate(self.starts):
            if start < self.starts[first]:
                first = at
        return first

    def give(self, at: int, typical: float, now: float, messages: int = 1) -> None:
        self.starts[at] = max(self.starts[at], now) + messages * self._service(at, typical) / self.counts[at]

    def _service(self, at: int, typical: float) -> float:
        return self.services[at] or typical


class Spread:
    """One group at all nodes that have members of it. `own` is the node that chooses; whether its members have room,
    it says itself."""

    def __init__(self, name: str, dispatcher: str, own: str, seed: int | None = None) -> None:
        self.name = name
        self.own = GroupNode(own)
        self.own.is_up = True
        self.nodes: dict[str, GroupNode] = {own: self.own}
        self._all: list[GroupNode] = [self.own]
        self._typical = QUICKEST
        self._random = random.Random(seed)
        self._keys: dict[str, GroupNode | None] = {}
        self.use(dispatcher)

    def use(self, dispatcher: str) -> None:
        """Choose as befits that dispatcher."""
        self.dispatcher = dispatcher
        self.way = WAYS.get(dispatcher, START)
        self._by_weight = dispatcher == "weighted_round_robin"
        self._keys.clear()

    # ---- what nodes tell -----------------------------------------------------------------------------------------

    def told(self, node: str, state: GroupState, taken: int, now: float) -> None:
        found = self.nodes.get(node)
        if found is None:
            found = self.nodes[node] = GroupNode(node)
            found.turn = min(each.turn for each in self._all)
            self._all.append(found)
        if not found.is_up or found.online != state.online:
            self._keys.clear()
        found.is_up = True
        found.told(state, taken, self._typical, now)
        self._learn()

    def remembered(self, node: str) -> None:
        """It had members before this node's start, and has not told since."""
        found = self.nodes[node] = GroupNode(node)
        found.members = 1
        self._all.append(found)

    def own_told(self, state: GroupState, now: float) -> None:
        self.told(self.own.node, state, self.own.sent, now)

    def own_left(self) -> None:
        """The last member here has gone; this node stays the one that chooses."""
        own = self.own
        own.members = own.online = 0
        own.starts = []
        own.services = []
        own.counts = []
        self._keys.clear()
        self._learn()

    def cut(self, node: str) -> None:
        """The link with it is down."""
        found = self.nodes.get(node)
        if found is not None:
            found.cut()
            self._keys.clear()

    def gone(self, node: str) -> None:
        """It has no members any more."""
        found = self.nodes.pop(node, None)
        if found is not None:
            self._all.remove(found)
            self._keys.clear()
            self._learn()

    def _learn(self) -> None:
        """What is typical of members that have told how long they take: the geometric mean."""
        logarithms = 0.0
        count = 0
        for node in self._all:
            for service, alike in zip(node.services, node.counts, strict=True):
                if service > 0.0:
                    logarithms += alike * log(service)
                    count += alike
        self._typical = exp(logarithms / count) if count else QUICKEST

    @property
    def any_elsewhere(self) -> bool:
        """Whether another node has members, linked or not."""
        return len(self._all) > 1

    @property
    def any_online_elsewhere(self) -> bool:
        return any(node.is_up and node.online for node in self._all if node is not self.own)

    @property
    def has_room_elsewhere(self) -> bool:
        return any(node.has_room for node in self._all if node is not self.own)

    # ---- the choice ----------------------------------------------------------------------------------------------

    def choose(self, topic: str, publisher: str, now: float, own_has_room: bool) -> GroupNode | None:
        """The node that gets a message; it counts as sent. None: nobody has room."""
        way = self.way
        if way == START:
            chosen = self._first(now, own_has_room)
        elif way == KEY:
            chosen = self._belongs_to(topic, publisher)
        elif way == TURNS:
            chosen = self._in_turn(own_has_room)
        else:
            chosen = self._by_chance(own_has_room, way == CAPACITY)
        if chosen is not None:
            chosen.sent += 1
            if chosen is self.own:
                chosen.taken += 1
        return chosen

    def also(self, chosen: GroupNode, left: int, now: float) -> int:
        """How many of `left` more messages of the same topic and publisher, that came together with the one just chosen
        for, go to the same node: half of an equal share, as long as that is little work; they count as sent."""
        if self.way == KEY:
            count = left
        else:
            count = left // (2 * max(1, sum(node.online for node in self._all)))
            if chosen is not self.own:
                count = min(count, chosen.credit - (chosen.sent - chosen.taken))
            if self.way == START and chosen.starts:
                count = min(count, int(SHORT / self._typical))
        if count <= 0:
            return 0
        if self.way == START and chosen.starts:
            chosen.give(chosen.first(now), self._typical, now, count)
        elif self.way == TURNS:
            chosen.turn += count / self._weight(chosen)
        chosen.sent += count
        if chosen is self.own:
            chosen.taken += count
        return count

    def _first(self, now: float, own_has_room: bool) -> GroupNode | None:
        best: GroupNode | None = None
        best_at = 0
        least = 0.0
        since = 0.0
        for node in self._all:
            if not (own_has_room if node is self.own else node.has_room):
                continue
            for at, start in enumerate(node.starts):
                begins = start if start > now else now
                if best is None or begins < least or (begins == least and start < since):
                    best = node
                    best_at = at
                    least = begins
                    since = start
        if best is not None:
            best.give(best_at, self._typical, now)
            return best
        return self._in_turn(own_has_room)  # of members nothing at all is told

    def _weight(self, node: GroupNode) -> float:
        return max(node.weight if self._by_weight else float(node.online), LEAST)

    def _in_turn(self, own_has_room: bool) -> GroupNode | None:
        best: GroupNode | None = None
        for node in self._all:
            if (own_has_room if node is self.own else node.has_room) and (best is None or node.turn < best.turn):
                best = node
        if best is not None:
            floor = best.turn
            for node in self._all:  # who had no room for a while is not owed what it could not take
                if node.turn < floor:
                    node.turn = floor
            best.turn += 1.0 / self._weight(best)
        return best

    def _by_chance(self, own_has_room: bool, is_capacity: bool) -> GroupNode | None:
        shares: list[float] = []
        total = 0.0
        for node in self._all:
            share = 0.0
            if own_has_room if node is self.own else node.has_room:
                share = max(node.capacity if is_capacity else float(node.online), LEAST)
            shares.append(share)
            total += share
        ticket = self._random.random() * total
        chosen: GroupNode | None = None
        for node, share in zip(self._all, shares, strict=True):
            if share > 0.0:
                chosen = node
                ticket -= share
                if ticket < 0.0:
                    break
        if chosen is not None:
            chosen.capacity -= 1.0
        return chosen

    def _belongs_to(self, topic: str, publisher: str) -> GroupNode | None:
        """Of nodes whose members are there the one where they belong, whether it has room or not."""
        key = topic if self.dispatcher == "hash_topic" else publisher if self.dispatcher == "hash_client" else ""
        if key in self._keys:
            return self._keys[key]
        best: GroupNode | None = None
        highest = 0.0
        for node in self._all:
            if not node.is_up or not node.online:
                continue
            score = -node.online / log(_point(self.name, node.node, key))
            if best is None or score > highest or (score == highest and node.node < best.node):
                best = node
                highest = score
        if len(self._keys) >= MOST_KEYS:
            self._keys.clear()
        self._keys[key] = best
        return best


def _point(group: str, node: str, key: str) -> float:
    """Between 0 and 1, the same everywhere."""
    text = f"{group}\0{node}\0{key}".encode("utf-8", "surrogatepass")
    return (int.from_bytes(blake2b(text, digest_size=7).digest(), "big") + 1) / (2.0**56 + 2.0)
