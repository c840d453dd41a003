"""A node's part in its cluster: who the others are, and a link with each.

Theory. Membership (peering/membership) is gossip over the links themselves; it says who is there and where. A node that
is known and not linked is dialed, again and again with growing pauses: by the one of the two with the smaller id at
once, by the other one a little later, in case the first cannot. So are the addresses to join, until there is a link
with whoever is there. Progress of the data plane is what a node tells of itself: its loop runs, and its disk takes
commits.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from headwater.build_info import version_line
from headwater.node.links.contexts import LinkContexts, identities
from headwater.node.links.dialing import Dialer
from headwater.node.links.identity import begin_life
from headwater.node.links.link import ALREADY, Link
from headwater.node.links.links import Links
from headwater.node.links.listening import LinkDoor
from headwater.node.links.resolving import Resolver
from headwater.node.links.settings import PORT, ClusterSettings
from headwater.node.links.view import ClusterView, LinkView, NodeView, RouteView
from headwater.node.settings import ConfigError
from headwater.peering.frames.frame import Gossip
from headwater.peering.membership.membership import Membership, MemberView, Outgoing
from headwater.peering.membership.messages import MalformedGossip
from headwater.peering.membership.roster import State, Timing
from headwater.peering.membership.seeds import Seed, parse_seed_file, parse_seeds, seed_addresses
from headwater.peering.methods.names import ANNOUNCEMENTS

if TYPE_CHECKING:
    from headwater.node.plane.channel import Channel, Peer
    from headwater.node.protocol.server import Server

log = logging.getLogger("headwater.cluster")

LOOK: Final = 0.1
"""Seconds between two looks for nodes to dial."""
FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 5.0
"""Seconds between two attempts at one address: the pause doubles."""
STEADY: Final = 1.0
"""Seconds that a link lasts at least if the next pause is to be a short one."""
SECOND: Final = 1.0
"""Seconds after which the node with the larger id dials, too."""
MOST_DIALED: Final = 64
"""Addresses that are dialed at a time."""
MOST_ADDRESSES: Final = 1024
"""Addresses of which is remembered who was there, or how dialing ended; beyond, only of those that are in use."""
RESOLVE_AGAIN: Final = 10.0
RESOLVE_TIMEOUT: Final = 5.0
ALL: Final = ("0.0.0.0", "::", "*")
MQTT_KEY: Final = "mqtt"
SOFTWARE_KEY: Final = "software"
PASSING_KEY: Final = "passing"
"""In the map of a node that cannot come back: who holds it for dead forgets it at once."""


class _Attempts:
    """At one address."""

    def __init__(self) -> None:
        self.next = 0.0
        self.pause = self.before = FIRST_PAUSE
        """The next one, and what it was before the link came up."""
        self.is_under_way = False
        self.reason = ""


class _Past:
    """Of one node, whatever link it has."""

    def __init__(self, now: float) -> None:
        self.since = now
        self.reason = "not linked yet"
        self.links = 0
        self.bytes_received = 0


class Cluster:
    """Made from settings; `open` listens, `start` begins when what is on disk has been recovered."""

    def __init__(self, server: Server, settings: ClusterSettings, data_dir: str) -> None:
        """Raises CertificateError, ConfigError."""
        self.settings = settings
        self._server = server
        self._folder = Path(data_dir) if data_dir else None
        self._secret = _read_secret(settings)
        self._contexts = None if settings.tls is None else LinkContexts(settings.tls)
        self._door = LinkDoor(server, settings, self._contexts, self._accepted)
        self._links: Links | None = None
        self._dialer: Dialer | None = None
        self._resolver: Resolver | None = None
        self._resolving: asyncio.Task[None] | None = None
        self._membership: Membership | None = None
        self._seeds: list[Seed] = parse_seeds(settings.join, PORT)
        self._file_seeds: list[Seed] = []
        self._attempts: dict[str, _Attempts] = {}
        self._node_at: dict[str, str] = {}
        """Who was found at an address."""
        self._past: dict[str, _Past] = {}
        self._addresses: list[str] = []
        """To join, resolved, and those of members that were known before."""
        self._random = Random()
        self._rounds = 0
        self._commit = 0
        self._mqtt = ""
        self._is_running = False
        self._is_kept = True
        self._has_left = False

    # ---- from start to stop --------------------------------------------------------------------------------------

    def open(self) -> None:
        """Raises OSError, whose `filename` says where it could not listen."""
        self._door.open()

    def start(self) -> None:
        """Raises ConfigError."""
        server, settings = self._server, self.settings
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
        identity = begin_life(self._folder, settings.node)
        self._is_kept = identity.is_kept
        links = self._links = Links(server, settings, identity.node, identity.boot, self._secret)
        links.gossip = self._heard
        links.changed = self._link_changed
        links.node_left = self._node_left
        links.objects = self._objection
        links.settled = self._door.settled
        self._resolver = Resolver()
        self._dialer = Dialer(server, self._contexts, self._resolver)
        for node in links.spooling.members:
            links.join(node, is_known=True)
        links.start()
        self._is_running = True
        self._begin_membership(identity.boot)
        self._door.start()
        self._resolving = asyncio.get_running_loop().create_task(self._resolve())
        self._round()
        self._dial()
        log.info("node %s of cluster %s, at %s", identity.node, settings.name, self.address)

    def serves_at(self, addresses: list[tuple[str, int]]) -> None:
        """Where this node's clients connect, for others to show."""
        if addresses:
            host, port = addresses[0]
            self._mqtt = f"{socket.gethostname() if host in ALL else host}:{port}"
        if self._membership is not None and self._mqtt:
            self._membership.set(MQTT_KEY, self._mqtt.encode())

    def stop(self) -> None:
        is_for_good = not self._is_kept
        if self._is_running and is_for_good and self._membership is not None:
            self._send(self._membership.leave())
        self._is_running = False
        if self._resolving is not None:
            self._resolving.cancel()
        if self._dialer is not None:
            self._dialer.close()
        if self._links is not None:
            self._links.stop(is_for_good)
        self._door.close()

    def load_certificates(self) -> Callable[[], None]:
        """Read them anew; nothing changes until the result is called. Raises CertificateError."""
        return _nothing if self._contexts is None else self._contexts.load()

    # ---- what others call ----------------------------------------------------------------------------------------

    @property
    def node(self) -> str:
        return "" if self._links is None else self._links.node

    @property
    def address(self) -> str:
        """Where other nodes reach this one."""
        if self.settings.advertise:
            return self.settings.advertise
        found = self._door.addresses
        if not found:
            return str(self._door)
        host, _, port = found[0].rpartition(":")
        return f"{socket.gethostname()}:{port}" if host.strip("[]") in ALL else found[0]

    def join(self, addresses: list[str]) -> None:
        """Look for a cluster there, too. Raises ValueError."""
        seeds = parse_seeds([*map(str, self._seeds), *addresses], PORT)
        with self._server.turn():
            self._seeds = seeds
            if self._has_left and self._membership is not None and self._links is not None:
                self._has_left = self._links.has_left = False
                self._begin_membership(self._membership.generation + 1)
            self._attempts.clear()
            if self._resolving is not None:
                self._resolving.cancel()
                self._resolving = asyncio.get_running_loop().create_task(self._resolve())

    def leave(self) -> None:
        """Say good-bye: this node is alone from now on, until it joins again."""
        if self._membership is None or self._links is None or self._has_left:
            return
        with self._server.turn():
            self._send(self._membership.leave())
            self._has_left = True
            self._seeds = []
            self._links.leave()
            self._links.spooling.keep_members({})
            self._membership.take_changes()
            log.info("left cluster %s", self.settings.name)

    def forget(self, node: str) -> None:
        """Raises ValueError if it is not known, or live."""
        if self._membership is None or self._links is None:
            raise ValueError("the cluster has not started")
        with self._server.turn():
            if self._membership.state_of(node) is None and self._is_only_remembered(node):
                self._forget_remembered(node)
            else:
                self._membership.forget(node, self._server.hot.now)
                self._see_changes()

    def _is_only_remembered(self, node: str) -> bool:
        """A member of before this node's start, of which nobody has told since."""
        links = self._links
        return links is not None and node not in links.up and node in links.spooling.members

    def _forget_remembered(self, node: str) -> None:
        assert self._links is not None
        members = dict(self._links.spooling.members)
        del members[node]
        self._links.spooling.keep_members(members)
        self._links.forget(node)
        self._past.pop(node, None)

    def use_method(self, method: str) -> None:
        if method not in ANNOUNCEMENTS:
            raise ValueError(f"there is no method {method!r}; there are {', '.join(sorted(ANNOUNCEMENTS))}")
        if self._links is not None:
            with self._server.turn():
                self._links.use_method(method)

    def routes(self, topic: str) -> RouteView:
        links = self._links
        peers = [] if links is None else list(links.coordination.links(topic))
        is_local = self._server.hot.fanouts.of(topic).local > 0
        return RouteView(topic, is_local, peers, links is not None and links.coordination.is_exact)

    def view(self) -> ClusterView:
        links, membership, now = self._links, self._membership, time.monotonic()
        assert links is not None and membership is not None
        return ClusterView(
            self.settings.name,
            links.node,
            links.boot,
            self.address,
            links.coordination.method,
            links.relays,
            [_node_view(each, now) for each in membership.view(now)],
            [self._link_view(links, node, now) for node in sorted(links.spooling.ends)],
            links.forwarding.repeated,
            links.forwarding.stopped,
            links.coordination.holding,
        )

    def _link_view(self, links: Links, node: str, now: float) -> LinkView:
        end, link, past = links.spooling.ends[node], links.up.get(node), self._past_of(node)
        traffic = links.coordination.traffic(node)
        state = "down" if link is None else "up" if links.is_synced(node) else "syncing"
        return LinkView(
            peer=node,
            state=state,
            since=now - (past.since if link is None else link.since),
            reason="" if link is not None else self._why_not(node) or past.reason,
            address=link.channel.address if link is not None else self._address_of(node),
            version=0 if link is None else link.version,
            method=links.coordination.method_of(node),
            round_trip=None if link is None else link.liveness.round_trip,
            bytes_received=past.bytes_received + (0 if link is None else link.bytes_received),
            bytes_sent=end.bytes_sent,
            messages_received=end.messages_received,
            messages_sent=end.messages_sent,
            dropped=end.dropped,
            spool_messages=end.spool.waiting,
            spool_bytes=end.spool.bytes,
            spool_limit=end.spool.max_bytes,
            states=0 if traffic is None else traffic.states,
            state_bytes=0 if traffic is None else traffic.state_bytes,
            changes=0 if traffic is None else traffic.changes,
            change_bytes=0 if traffic is None else traffic.change_bytes,
            reconnects=max(0, past.links - 1),
        )

    def _why_not(self, node: str) -> str:
        attempts = self._attempts.get(self._address_of(node))
        return "" if attempts is None else attempts.reason

    # ---- links ---------------------------------------------------------------------------------------------------

    def _accepted(self, channel: Channel) -> Peer:
        assert self._links is not None
        return self._links.open(channel, "")

    def _objection(self, link: Link) -> str:
        """Why a node may not be linked, as far as it has shown who it is."""
        tls = self.settings.tls
        if tls is not None:
            names = identities(link.channel.certificate or {}, tls.identity)
            if names is not None and link.node not in names:
                return f"the certificate is not of node {link.node} (cluster.tls.identity = {tls.identity!r})"
        elif not self._secret and not link.channel.loopback:
            return "links with other machines need cluster.tls or cluster.secret"
        return ""

    def _link_changed(self, link: Link) -> None:
        """It came up, or went down."""
        now = self._server.hot.now
        node = link.node
        if link.dialed:
            attempts = self._attempts.setdefault(link.dialed, _Attempts())
            attempts.is_under_way = False
            if node:
                self._node_at[link.dialed] = node
            if link.why and link.why != ALREADY and (self._links is None or node not in self._links.up):
                if link.end is not None and now - link.since < STEADY:
                    attempts.pause = attempts.before  # it will not be better at once
                self._failed(link.dialed, attempts, link.why, now)
            else:
                attempts.before = attempts.pause
                attempts.pause, attempts.reason = FIRST_PAUSE, ""
        if not node or link.end is None:
            return
        past = self._past_of(node)
        past.since = now
        if link.why:
            past.reason = link.why
            past.bytes_received += link.bytes_received
        else:
            past.links += 1
            self._greet_by_gossip(link)
            assert self._links is not None and self._membership is not None
            self._keep_members(dict(self._links.spooling.members), self._membership.view(now))

    def _failed(self, address: str, attempts: _Attempts, why: str, now: float) -> None:
        if why != attempts.reason:
            attempts.reason = why
            log.info("no link with %s: %s; trying again", address, why)
        attempts.next = now + attempts.pause * (0.5 + self._random.random())
        attempts.pause = min(2 * attempts.pause, LONGEST_PAUSE)

    def _past_of(self, node: str) -> _Past:
        return self._past.setdefault(node, _Past(self._server.hot.now))

    # ---- dialing -------------------------------------------------------------------------------------------------

    def _dial(self) -> None:
        if not self._is_running:
            return
        now = self._server.hot.now
        if not self._has_left:
            self._dial_some(now)
        self._server.timers.at(now + LOOK, self._dial)

    def _dial_some(self, now: float) -> None:
        addresses = self._to_dial(now)
        self._random.shuffle(addresses)
        under_way = sum(each.is_under_way for each in self._attempts.values())
        for address in addresses:
            attempts = self._attempts.setdefault(address, _Attempts())
            if not attempts.is_under_way and now >= attempts.next and under_way < MOST_DIALED:
                under_way += 1
                self._dial_one(address, attempts)
        if max(len(self._attempts), len(self._node_at)) > MOST_ADDRESSES:
            self._forget_addresses(now)

    def _forget_addresses(self, now: float) -> None:
        """Those that are nobody's any more: a member may tell another one as often as it likes."""
        links, membership = self._links, self._membership
        assert links is not None and membership is not None
        used = {each.address for each in membership.view(now)}
        used.update(self._addresses, [each.dialed for each in links.up.values()])
        self._attempts = {each: found for each, found in self._attempts.items() if found.is_under_way or each in used}
        self._node_at = {each: node for each, node in self._node_at.items() if each in used}

    def _to_dial(self, now: float) -> list[str]:
        links, membership = self._links, self._membership
        assert links is not None and membership is not None
        found: dict[str, None] = {}
        is_away = any(node not in links.up for node in links.spooling.ends)
        for member in membership.view(now) if is_away else ():  # it looks at all that it has heard of all
            node = member.node
            if node == links.node or node in links.up or not member.address or not links.is_neighbour(node):
                continue
            if _is_gone(member):
                continue
            if links.node < node or now - self._past_of(node).since > SECOND:
                found[member.address] = None
        for address in self._addresses:
            if self._node_at.get(address) not in (*links.up, links.node):
                found[address] = None
        found.pop(self.address, None)
        return list(found)

    def _dial_one(self, address: str, attempts: _Attempts) -> None:
        assert self._dialer is not None
        attempts.is_under_way = True

        def done(channel: Channel | None, reason: str) -> None:
            now = self._server.hot.now
            if channel is None:
                attempts.is_under_way = False
                self._failed(address, attempts, reason, now)
            elif self._links is not None and self._is_running:
                self._links.open(channel, address)

        self._dialer.dial(address, done)

    async def _resolve(self) -> None:
        """The addresses to join, again and again: names may lead elsewhere, and the file may have others."""
        assert self._resolver is not None
        while True:
            seeds = [*self._seeds, *self._read_file()]
            resolved = await self._resolver.resolve(seeds, RESOLVE_TIMEOUT)
            found = seed_addresses(seeds, resolved, own=[self.address, *self._door.addresses])
            with self._server.turn():
                if self._links is not None and self._membership is not None and not self._has_left:
                    known = [each for each in self._links.spooling.members.values() if each and each not in found]
                    self._addresses = [*found, *known]
                    self._membership.seek(self._addresses)
            await asyncio.sleep(RESOLVE_AGAIN)

    def _read_file(self) -> list[Seed]:
        if not self.settings.join_file:
            return []
        try:
            self._file_seeds = parse_seed_file(Path(self.settings.join_file).read_text(), PORT)
        except (OSError, ValueError) as error:
            log.warning("cluster.join_file %s: %s; what it had before is used", self.settings.join_file, error)
        return self._file_seeds

    # ---- membership ----------------------------------------------------------------------------------------------

    def _begin_membership(self, generation: int) -> None:
        assert self._links is not None
        self._addresses = [each for each in self._links.spooling.members.values() if each]
        timing = Timing(interval=self.settings.heartbeat)
        self._membership = Membership(
            *(self.settings.name, self._links.node, generation, self.address, self._random, timing)
        )
        self._membership.seek(self._addresses)
        self._membership.set(SOFTWARE_KEY, version_line().encode()[:64])
        if not self._is_kept:
            self._membership.set(PASSING_KEY, b"1")
        self.serves_at([])

    def _round(self) -> None:
        """A round of gossip."""
        if not self._is_running:
            return
        now = self._server.hot.now
        assert self._membership is not None
        self._server.timers.at(now + self.settings.heartbeat, self._round)
        self._send(self._membership.tick(now, self._progress()))
        self._see_changes()
        if not self._has_left and self._links is not None:  # addresses come later than the first news of a node
            self._keep_members(dict(self._links.spooling.members), self._membership.view(now))

    def _progress(self) -> int:
        """Grows unless one commit has been under way since the last round."""
        journal = self._server.journal
        sequence = journal.sequence if journal is not None and journal.running else 0
        if not sequence or sequence != self._commit:
            self._rounds += 1
        self._commit = sequence
        return self._rounds

    def _send(self, messages: list[Outgoing]) -> None:
        assert self._links is not None
        up = self._links.up
        for node, address, data in messages:
            link = up.get(node or self._node_at.get(address, ""))
            if link is None and self._links.relays and up:
                link = self._random.choice(list(up.values()))  # what is said is not for one alone
            if link is not None and link.end is not None:
                link.end.send(Gossip(data))

    def _greet_by_gossip(self, link: Link) -> None:
        """Who has just been linked need not wait for the next round."""
        assert self._membership is not None
        if link.end is not None:
            link.end.send(Gossip(self._membership.greeting(self._server.hot.now)))

    def _heard(self, link: Link, data: bytes) -> None:
        if self._membership is None or self._has_left:
            return
        try:
            answer = self._membership.receive(data, self._server.hot.now, link.node)
        except MalformedGossip as error:
            link.failed(str(error))
            return
        if answer is not None and link.end is not None:
            link.end.send(Gossip(answer))
        self._see_changes()

    def _see_changes(self) -> None:
        links, membership = self._links, self._membership
        assert links is not None and membership is not None
        changes = membership.take_changes()
        if not changes or self._has_left:  # then they are nothing to this node any more
            return
        view = {each.node: each for each in membership.view(self._server.hot.now)}
        members = dict(links.spooling.members)
        for change in changes:
            log.info("node %s is %s (%s)", change.node, change.after or "forgotten", change.reason)
            if _is_gone(view.get(change.node)):
                links.forget(change.node)
                members.pop(change.node, None)
                self._past.pop(change.node, None)
            else:
                links.join(change.node)
        self._keep_members(members, list(view.values()))

    def _keep_members(self, members: dict[str, str], view: list[MemberView]) -> None:
        """For the next start: those that are known already, and those that were linked meanwhile."""
        links = self._links
        assert links is not None
        for member in view:
            is_kept = not _is_gone(member) and PASSING_KEY not in member.values and links.is_known(member.node)
            if member.node != links.node and is_kept:
                members[member.node] = member.address or members.get(member.node, "")
        links.spooling.keep_members(members)

    def _node_left(self, node: str) -> None:
        if self._links is not None and self._membership is not None:
            self._membership.parted(node, self._server.hot.now)
            self._links.forget(node)
            kept = self._links.spooling.members
            self._links.spooling.keep_members({each: kept[each] for each in kept if each != node})
            self._see_changes()

    def _address_of(self, node: str) -> str:
        if self._membership is not None:
            for each in self._membership.view(self._server.hot.now):
                if each.node == node:
                    return each.address
        return ""


def _is_gone(member: MemberView | None) -> bool:
    """Whether nothing is owed to it any more: it is forgotten, has left, or is dead and cannot come back."""
    if member is None or member.state == State.LEFT:
        return True
    return member.state == State.DEAD and PASSING_KEY in member.values


def _node_view(member: MemberView, now: float) -> NodeView:
    return NodeView(
        *(member.node, str(member.state), member.address, member.generation, member.phi, now - member.since),
        *(member.reason, member.values.get(MQTT_KEY, b"").decode(errors="replace")),
        member.values.get(SOFTWARE_KEY, b"").decode(errors="replace"),
    )


def _read_secret(settings: ClusterSettings) -> bytes:
    if not settings.secret_file:
        return settings.secret.get_secret_value().encode()
    try:
        found = Path(settings.secret_file).read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"cluster.secret_file {settings.secret_file}: {error.strerror}") from None
    if len(found) < 16:
        raise ConfigError(f"the secret in {settings.secret_file} has fewer than 16 characters")
    return found


def _nothing() -> None:
    pass
