"""Clients are led to the broker that has their session (theory: peering/homes/homes.py): notes, disk, time, sockets.

    client --> proxy where it came in --> side door of the home's proxy --> home broker
                 passes bytes on             taps, as if the client had come there

A proxy takes clients that others lead to it at a door of their own, on the address where it listens for nodes. Who
comes there shows a key, which the proxy has told the other one over their link, and says where the client is; with
`cluster.tls` all of it is encrypted as links are. So nobody else gets in, and a client cannot say that it was led.

What a client is promised is not lost with this proxy: a SUBACK of a session that outlives its connection leaves when it
is on disk that the session is here. Before it has one, a session has nothing to lose.

    z <client id>   a session at the own broker (peering/homes/residents.py)
    x               JSON: the nodes that are proxies
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from headwater.node.access.limits import host_of
from headwater.node.links.post import Service
from headwater.node.plane.timers import Timer
from headwater.node.proxy.answers import refusal, started_clean, taken_over
from headwater.node.proxy.entering import Entering, Target, Usher
from headwater.node.proxy.pair import ASKED, CLAIMING, CLOSED, DIALING, OPEN, PARTING, Pair
from headwater.node.proxy.tap import TappedClient, Watcher
from headwater.node.transports.listener import Listener
from headwater.node.transports.settings import ListenerSettings
from headwater.peering.frames.frame import MalformedFrame
from headwater.peering.homes.homes import CLEAN, LEAD, REFUSE, Homes, Visit
from headwater.peering.homes.notes import KEY, Door, Note, decode, encode
from headwater.peering.homes.residents import Resident, record_of, resident_in
from headwater.peering.sessions.messages import Answer, Claim
from headwater.wire.packets import V5, Connect
from headwater.wire.primitives import FOR_EVER

if TYPE_CHECKING:
    from headwater.node.links.contexts import LinkContexts
    from headwater.node.links.links import Links
    from headwater.node.protocol.server import Server

log = logging.getLogger("headwater.proxy")

RESIDENT: Final = b"z"
PROXIES: Final = b"x"
LED: Final = 0
"""The first byte at the side door: no packet of MQTT begins so."""
HEAD: Final = 1 + KEY + 1
SWEPT: Final = 200
"""Sessions that end by time in one heartbeat."""


@dataclass
class LeadingCounters:
    """They only grow."""

    led: int = 0
    """Clients that were led to another proxy."""
    led_in: int = 0
    """Clients that other proxies have led here."""
    anew: int = 0
    """Clients that began anew here, as their session's proxy could not be reached."""
    refused: int = 0
    """Clients that were refused for that."""
    taken_over: int = 0
    """Connections that were ended because the client has connected to another proxy."""


class Guest(Visit):
    """A client that has come in at this proxy."""

    def __init__(self, leading: Leading, pair: Pair, connect: Connect) -> None:
        is_new = connect.version == V5
        expiry = 0
        if is_new and connect.properties is not None:
            expiry = connect.properties.session_expiry_interval or 0
        elif not is_new and not connect.clean_start:
            expiry = FOR_EVER
        super().__init__(connect.client_id, not connect.clean_start, expiry > 0, expiry)
        self.leading = leading
        self.pair = pair
        self.version = connect.version
        self.largest = 0
        if connect.properties is not None:
            self.largest = connect.properties.maximum_packet_size or 0
        self.timer: Timer | None = None
        self.opening = b""
        """What it has sent, while it is being led."""

    @property
    def is_elsewhere(self) -> bool:
        return self.decision is not None and self.decision.kind == LEAD

    def decided(self) -> None:
        self.leading.decided(self)

    def close(self) -> None:
        self.leading.take_over(self)


class Tapping(Watcher):
    """Tells of one client: which session is here, then the core."""

    def __init__(self, leading: Leading, guest: Guest, core: Watcher) -> None:
        super().__init__()
        self.leading = leading
        self.guest = guest
        self.core = core

    def opened(self, client: TappedClient) -> None:
        self.guest.opening = b""
        if not self.guest.is_elsewhere:
            self.leading.opened(self.guest, client)
            self.core.opened(client)

    def refused(self) -> None:
        self.leading.left(self.guest.pair)

    def subscribing(
        self, client: TappedClient, packet_id: int, filters: list[tuple[str, int]], release: Callable[[], None]
    ) -> bool:
        if self.guest.is_elsewhere:
            return False
        both = _Both(release)
        journal = self.leading.server.journal
        if client.is_persistent and journal is not None:
            both.waiting += 1
            journal.tell_when_durable(both.one_is_there)
        both.waiting += 1
        if not self.core.subscribing(client, packet_id, filters, both.one_is_there):
            both.waiting -= 1
        if both.waiting == 1:
            return False
        both.one_is_there()
        return True

    def unsubscribed(self, client: TappedClient, filters: list[str]) -> None:
        if not self.guest.is_elsewhere:
            self.core.unsubscribed(client, filters)

    def retained(self, client: TappedClient, topic: str, payload: bytes | None, qos: int) -> None:
        if not self.guest.is_elsewhere:
            self.core.retained(client, topic, payload, qos)

    def closed(self, client: TappedClient, session_ended: bool) -> None:
        if not self.guest.is_elsewhere:
            self.leading.closed(self.guest, session_ended)
            self.core.closed(client, session_ended)


class _Both:
    """Releases when all of what a SUBACK waits for is there, and whoever asked for it has said so."""

    def __init__(self, release: Callable[[], None]) -> None:
        self.waiting = 1
        self._release = release

    def one_is_there(self) -> None:
        self.waiting -= 1
        if self.waiting == 0:
            self._release()


class Leading(Usher):
    """`ended` is told of a session at the home broker that is its client's no more."""

    def __init__(
        self,
        server: Server,
        links: Links,
        contexts: LinkContexts | None,
        entering: Entering,
        core: Watcher,
        ended: Callable[[str], None],
        lost: str,
        port: int,
        most_bytes: int,
    ) -> None:
        super().__init__()
        self.server = server
        self._since = time.time() - time.monotonic()
        """A wall clock that is set while the node runs ends no session."""
        self.links = links
        self.entering = entering
        self.counters = LeadingCounters()
        self.homes = Homes(
            *(links.node, self._note, self._keep, ended, lost, links.settings.session_wait, most_bytes),
        )
        self.door = Listener(ListenerSettings(host=links.settings.host, port=port))
        self._contexts = contexts
        if contexts is not None:
            self.door.context = contexts.server
        self._core = core
        self._key = os.urandom(KEY)
        self._doors: dict[str, Door] = {}
        self._known: set[str] = set()
        """Other nodes that are proxies."""
        self._service = _Homes(self)
        self._telling: Timer | None = None

    # ---- from start to stop --------------------------------------------------------------------------------------

    def start(self) -> None:
        """When what is on disk has been recovered, before clients come. Raises OSError."""
        spooling = self.links.spooling
        for key, record in spooling.kept(RESIDENT):
            self.homes.restore(key[1:].decode(), resident_in(record, self.links.node, self._wall()))
        for _, record in spooling.kept(PROXIES):
            self._known = set(json.loads(record)) & spooling.members.keys()
        self.homes.never_heard = set(self._known)
        self.door.open()
        self.entering.add(self.door)
        self.entering.usher = self
        self.links.post.add(self._service)
        for node in list(self.links.up):
            self.link_up(node)

    # ---- a client comes ------------------------------------------------------------------------------------------

    def introduced(self, pair: Pair) -> bool:
        data = pair.opening
        size = HEAD + data[HEAD - 1] if len(data) >= HEAD else HEAD
        if data[0] != LED or (len(data) >= HEAD and not hmac.compare_digest(data[1 : 1 + KEY], self._key)):
            self.entering.strangers.cut_off(pair, "it is not led here by a proxy")
            return False
        if len(data) < size:
            return False
        pair.is_led = True
        pair.address = data[HEAD:size].decode(errors="replace")
        pair.opening = data[size:]
        return True

    def watcher(self, pair: Pair, connect: Connect) -> Watcher:
        guest = pair.visit = Guest(self, pair, connect)
        return Tapping(self, guest, self._core)

    def came(self, pair: Pair) -> None:
        guest = pair.visit
        assert isinstance(guest, Guest)
        if not guest.client_id:
            self.entering.dial(pair)  # the broker gives it an id that nobody has
        elif pair.is_led:
            self.counters.led_in += 1
            self.homes.is_led_here(guest, self._wall())
        else:
            now = self.server.hot.now
            self.homes.arrives(guest, now, self._wall())
            if guest.decision is None:
                guest.timer = self.server.timers.at(now + self.homes.wait, partial(self._is_late, guest))

    def _is_late(self, guest: Guest) -> None:
        guest.timer = None
        self.homes.is_late(guest)

    def decided(self, guest: Guest) -> None:
        """Called from frames of links as well: one client's end must never be a link's."""
        try:
            self._decided(guest)
        except Exception:
            self.entering.relay.counters.failures += 1
            log.exception("serving client %.200r failed", guest.client_id)
            self.entering.relay.end(guest.pair)

    def _decided(self, guest: Guest) -> None:
        pair, decision = guest.pair, guest.decision
        assert decision is not None
        self._no_timer(guest)
        if pair.stage != CLAIMING:
            return
        if decision.kind == LEAD:
            self._lead(guest, decision.node)
        elif decision.kind == REFUSE:
            self.counters.refused += 1
            why = f"the session of this client is at node {decision.node}, which is not reached; try again later"
            log.info("client %.200r is refused: %s", guest.client_id, why)
            self.entering.part(pair, refusal(guest.version, why))
        else:
            if decision.kind == CLEAN and guest.resumes:
                self._begin_anew(guest, decision.node)
            self.entering.dial(pair)

    def _begin_anew(self, guest: Guest, node: str) -> None:
        self.counters.anew += 1
        why = f"the session of this client is at node {node}, which is not reached: it begins anew"
        log.info("client %.200r: %s", guest.client_id, why)
        if guest.version == V5:
            guest.pair.reason, guest.pair.largest = why, guest.largest
            guest.pair.opening = started_clean(guest.pair.opening)

    def _lead(self, guest: Guest, node: str) -> None:
        pair, door, link = guest.pair, self._doors.get(node), self.links.up.get(node)
        if door is None or link is None:
            self.homes.not_reached(guest)
            return
        self.counters.led += 1
        client = pair.client
        assert client is not None
        address = (pair.address if client.carrier is None else client.carrier.address).encode()[:255]
        guest.opening = pair.opening
        host = host_of(link.channel.address) if link.channel.over_tcp else "127.0.0.1"
        context = None if self._contexts is None else self._contexts.client
        header = bytes((LED,)) + door.key + bytes((len(address),)) + address
        log.debug("client %.200r is led to node %s", guest.client_id, node)
        self.entering.dial_to(pair, Target((host, door.port), context), header)

    def not_reached(self, pair: Pair, why: str) -> bool:
        guest = pair.visit
        if not isinstance(guest, Guest) or not guest.is_elsewhere or pair.stage not in (DIALING, ASKED):
            return False
        assert guest.decision is not None
        log.info("client %.200r cannot be led to node %s: %s", guest.client_id, guest.decision.node, why)
        self.entering.relay.drop_broker(pair)
        pair.opening, guest.opening = guest.opening, b""
        pair.stage = CLAIMING
        self.homes.not_reached(guest)
        return True

    # ---- what becomes of it --------------------------------------------------------------------------------------

    def opened(self, guest: Guest, client: TappedClient) -> None:
        tap = guest.pair.tap
        expiry = 0 if tap is None else tap.expiry
        self.homes.opened(guest, client.client_id, client.is_persistent, expiry, self._wall())
        self._tell_soon()

    def closed(self, guest: Guest, session_ended: bool) -> None:
        tap = guest.pair.tap
        expiry = 0 if tap is None else tap.expiry
        self.homes.closed(guest, session_ended, expiry, self._wall())
        self._tell_soon()

    def left(self, pair: Pair) -> None:
        guest = pair.visit
        if isinstance(guest, Guest):
            self._no_timer(guest)
            if not guest.is_open:
                self.homes.closed(guest, True, 0, self._wall())

    def take_over(self, guest: Guest) -> None:
        """It has connected to another proxy."""
        self.server.timers.at(self.server.hot.now, partial(self._take_over, guest))

    def _take_over(self, guest: Guest) -> None:
        pair = guest.pair
        if pair.stage not in (CLOSED, PARTING):
            self.counters.taken_over += 1
            self.entering.part(pair, taken_over(guest.version) if pair.stage == OPEN else b"")

    def _no_timer(self, guest: Guest) -> None:
        if guest.timer is not None:
            self.server.timers.cancel(guest.timer)
            guest.timer = None

    def _keep(self, client_id: str, resident: Resident | None) -> None:
        record = None if resident is None else record_of(resident)
        self.links.spooling.keep(RESIDENT + client_id.encode(), record)

    # ---- other proxies -------------------------------------------------------------------------------------------

    def link_up(self, node: str) -> None:
        """To nodes that are no proxies that is nothing."""
        self.links.post.note(node, self._service, encode(Door(self.door.port, self._key)))

    def link_down(self, node: str) -> None:
        if self._doors.pop(node, None) is not None:
            self.homes.link_down(node)

    def forgotten(self, node: str) -> None:
        self._doors.pop(node, None)
        self.homes.forgotten(node)
        self._know(self._known - {node})

    def received(self, node: str, body: bytes) -> None:
        """Raises MalformedFrame."""
        note = decode(body)
        if isinstance(note, Door):
            self._doors[node] = note
            self._know(self._known | {node})
            self.homes.link_up(node)
        elif node not in self._doors:
            raise MalformedFrame("a proxy that has not told its door")
        else:
            self.homes.received(node, note, self._wall())
            self._tell_soon()

    def _know(self, proxies: set[str]) -> None:
        if proxies != self._known:
            self._known = proxies
            self.links.spooling.keep(PROXIES, json.dumps(sorted(proxies)).encode())

    def beat(self) -> None:
        self.homes.sweep(self._wall(), SWEPT)
        self._tell_soon()

    def _wall(self) -> float:
        """What sessions' ends and stamps are told by, also on disk and to other nodes."""
        return self._since + time.monotonic()

    def _note(self, node: str, note: Note) -> None:
        """What CONNECTs ask is given up where too much waits for a link; what sessions there are has to be known."""
        is_needed = not isinstance(note, (Claim, Answer))
        self.links.post.note(node, self._service, encode(note), is_needed)

    def _tell_soon(self) -> None:
        if self._telling is None and self.homes.has_news:
            self._telling = self.server.timers.at(self.server.hot.now, self._tell_when_durable)

    def _tell_when_durable(self) -> None:
        """What others have heard is so also after a crash."""
        news = self.homes.take_news()
        self._telling = None
        if self.server.journal is None:
            self.homes.tell(*news)
        else:
            self.server.journal.tell_when_durable(partial(self.homes.tell, *news))


class _Homes(Service):
    def __init__(self, leading: Leading) -> None:
        self.name = "homes"  # of the instance: a compiled base does not see what an interpreted class says
        self.leading = leading

    def link_up(self, node: str) -> None:
        self.leading.link_up(node)

    def link_down(self, node: str) -> None:
        self.leading.link_down(node)

    def forgotten(self, node: str) -> None:
        self.leading.forgotten(node)

    def received(self, node: str, body: bytes, is_letter: bool) -> None:
        if is_letter:
            raise MalformedFrame("a letter about homes")
        self.leading.received(node, body)

    def beat(self, now: float) -> None:
        self.leading.beat()
