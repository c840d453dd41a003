"""How a client comes to the home broker: from its first bytes until the broker has accepted it.

    accept -> layers (PROXY header, TLS, WebSocket) -> a whole CONNECT -> dial the broker -> CONNACK -> the pair is open

Theory. Until the broker has accepted it, a client is a stranger, and what strangers take has bounds of its own: their
number, their bytes (strangers.py), and the time of each stage. For one more, the one that has been a stranger for
longest gives way, so a crowd that says nothing keeps nobody out. The broker is dialed when the CONNECT is whole: who
sends half of one costs the broker nothing. What is no CONNECT, or one of more than `LARGEST_OPENING` bytes, is led to
the broker as it comes and not understood: the broker decides what it is, and of its answer only that is looked at.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, NamedTuple

from mypy_extensions import mypyc_attr

from headwater.node.plane.channel import Channel, Entrance
from headwater.node.plane.turn import Turn
from headwater.node.proxy.announcing import Version, proxy_header
from headwater.node.proxy.pair import (
    ASKED,
    CLAIMING,
    CLOSED,
    DIALING,
    OPEN,
    OPENING,
    PARTING,
    End,
    Mixing,
    Opening,
    Pair,
)
from headwater.node.proxy.relay import Relay
from headwater.node.proxy.strangers import Strangers
from headwater.node.proxy.tap import Watcher
from headwater.node.proxy.tapping import Tap, Verdict
from headwater.node.transports.listener import Listener
from headwater.node.transports.sockets import BACKLOG, address_text, is_loopback, send_at_once
from headwater.node.transports.tls import Tls
from headwater.wire.decode import decode_connect
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.framing import PacketReader
from headwater.wire.packets import CONNECT, Connect

log = logging.getLogger("headwater.proxy")

LARGEST_OPENING: Final = 65536
"""Bytes of a CONNECT that is understood."""
ACCEPTS: Final = 32
"""Connections that are accepted in a turn, by each listener."""
LONGEST: Final = 60.0
"""Seconds of a stage that has a shorter time elsewhere."""
LATER: Final = 1.0
"""Seconds for which a listener is left alone that could not accept, and between two sweeps."""
OTHER_FILES: Final = 64
"""Descriptors that are not for clients: links, journal, logs."""


class Target(NamedTuple):
    """An address of the home broker; with a context, TLS is spoken there."""

    address: tuple[str, int]
    context: ssl.SSLContext | None = None
    hostname: str | None = None

    @property
    def family(self) -> int:
        return socket.AF_INET6 if ":" in self.address[0] else socket.AF_INET


@dataclass(frozen=True)
class EnteringLimits:
    max_connections: int = 100_000
    max_unauthenticated: int = 4096
    max_unauthenticated_per_address: int = 1024
    max_unauthenticated_memory: int = 64 * 1024 * 1024
    connect_timeout: float = 10.0
    dial_timeout: float = 5.0
    answer_timeout: float = 30.0
    """Seconds that the broker has to accept a client, AUTH exchange included."""
    send_proxy: Version | Literal[""] = ""


@mypyc_attr(allow_interpreted_subclasses=True)
class Usher:
    """Says where a client is served, if not always at the home broker (leading.py)."""

    door: Listener
    """Where clients come in that other proxies have led here."""

    def introduced(self, pair: Pair) -> bool:
        """At that door more of `opening` is there; what is not the client's is taken from it. True: all of that is
        there. False: not yet, or the pair has ended."""
        raise NotImplementedError

    def watcher(self, pair: Pair, connect: Connect) -> Watcher:
        """Who is told of this client, before anything else is called for it."""
        raise NotImplementedError

    def came(self, pair: Pair) -> None:
        """Its CONNECT is whole. Calls `dial`, `dial_to` or `part`, now or later."""
        raise NotImplementedError

    def not_reached(self, pair: Pair, why: str) -> bool:
        """There is no connection to where it was led. False: it was to be served here."""
        raise NotImplementedError

    def left(self, pair: Pair) -> None:
        """It is gone, whatever its stage was."""
        raise NotImplementedError


class Entering(Opening):
    """Where clients come in. `target` says where the home broker is now; None: nobody knows."""

    def __init__(
        self,
        relay: Relay,
        turn: Turn,
        listeners: Sequence[Listener],
        target: Callable[[], Target | None],
        watcher: Watcher,
        limits: EnteringLimits,
    ) -> None:
        super().__init__()
        self.relay = relay
        self.turn = turn
        self.limits = limits
        self.most = min(limits.max_connections, most_pairs())
        self.mixing: Callable[[Pair, Connect], Mixing] | None = None
        """Who adds something to what a client gets here, from its CONNECT on."""
        self.usher: Usher | None = None
        """None: all are served here."""
        self._listeners = list(listeners)
        self._target = target
        self._watcher = watcher
        self.strangers = Strangers(
            *(limits.max_unauthenticated, limits.max_unauthenticated_per_address, limits.max_unauthenticated_memory),
            self._cut_off,
        )
        self._pairs = 0
        relay.opening = self

    @property
    def connections(self) -> int:
        return self._pairs

    def add(self, listener: Listener) -> None:
        """One more, before the start."""
        self._listeners.append(listener)

    def start(self) -> list[tuple[str, int]]:
        """Serve who comes; returns the addresses, but those of Unix sockets."""
        self.relay.start()
        addresses: list[tuple[str, int]] = []
        for listener in self._listeners:
            listener.watch = self._watch
            listener.located = self._located
            for each in listener.sockets:
                each.listen(BACKLOG)
                if not listener.settings.unix:
                    addresses.append(each.getsockname()[:2])
                self._listen(listener, each)
        self._sweep()
        return addresses

    def close(self) -> None:
        """Nobody comes in any more, and all go."""
        for listener in self._listeners:
            for each in listener.sockets:
                self.relay.plane.unlisten(each.fileno())
            listener.close()
        self.relay.close()

    # ---- accepting -----------------------------------------------------------------------------------------------

    def _listen(self, listener: Listener, listening: socket.socket) -> None:
        if not self.relay.is_closed and listening.fileno() >= 0:
            self.relay.plane.listen(listening.fileno(), partial(self._accept, listener, listening))

    def _accept(self, listener: Listener, listening: socket.socket) -> None:
        for _ in range(ACCEPTS):
            try:
                connection, peer = listening.accept()
            except BlockingIOError:
                break
            except OSError as error:
                log.error("cannot accept a connection: %s; raise the limit of open files (ulimit -n)", error.strerror)
                self.relay.plane.unlisten(listening.fileno())
                self.relay.timers.at(self.relay.clock() + LATER, partial(self._listen, listener, listening))
                self.relay.plane.wake()
                return
            try:
                connection.setblocking(False)
                self._come_in(listener, connection, listener.address_of(peer)[0])
            except Exception:
                self.relay.counters.failures += 1
                log.exception("serving a new connection failed")
                connection.close()
        self.relay.close_sockets()

    def _come_in(self, listener: Listener, connection: socket.socket, address: str) -> None:
        relay = self.relay
        relay.counters.accepted += 1
        settings = listener.settings
        is_full = settings.max_connections is not None and listener.connections >= settings.max_connections
        if is_full or (self._pairs >= self.most and not self.strangers.give_way("max_connections")):
            relay.counters.refused += 1
            log.info("%s was turned away: %s reached max_connections", address, listener if is_full else "the proxy")
            connection.close()
            return
        pair = Pair(address, relay.clock(), listener)
        end = pair.client = End(connection, pair, True)
        if listener.context is not None or settings.protocol != "mqtt" or settings.proxy_protocol:
            channel = Channel(self.turn, end.fd, connection.recv, connection.send)
            channel.socket = connection
            channel.address = address
            if not listener.admit(channel):
                connection.close()
                return
            end.carrier = channel
        listener.connections += 1
        self._pairs += 1
        relay.add(end)
        self.strangers.came(pair, listener.weight)
        if not listener.behind_proxy and not self._is_side_door(listener):
            self.strangers.moved(pair, address)

    def _watch(self, channel: Channel, readable: bool, writable: bool) -> None:
        """TLS has something to say, or has said it."""
        end = self.relay.ends.get(channel.fd)
        if end is not None:
            end.wants_writable = writable
            self.relay.watch(end)

    # ---- strangers -----------------------------------------------------------------------------------------------

    def _is_side_door(self, entrance: Entrance | None) -> bool:
        return self.usher is not None and entrance is self.usher.door

    def _located(self, channel: Channel) -> None:
        """A PROXY header has said where it comes from."""
        end = self.relay.ends.get(channel.fd)
        if end is not None:
            self.strangers.moved(end.pair, channel.address)

    def _cut_off(self, pair: Pair) -> None:
        self.relay.counters.cut_off += 1
        self.relay.end(pair)

    def learned(self, pair: Pair) -> None:
        kept = 0 if pair.tap is None else pair.tap.kept
        if pair.mixing is not None:
            kept += pair.mixing.kept
        more = kept - pair.learned
        if more:
            pair.learned += more
            self.strangers.keeps(pair, more)

    def _sweep(self) -> None:
        relay = self.relay
        if relay.is_closed:
            return
        now = relay.clock()
        limits = self.limits
        patience = {OPENING: limits.connect_timeout, DIALING: limits.dial_timeout, ASKED: limits.answer_timeout}
        for pair in [each for each in self.strangers.everybody if now > each.since + patience.get(each.stage, LONGEST)]:
            if pair.stage == DIALING:
                self._not_dialed(pair, "no answer")
            elif pair.stage == PARTING:
                relay.end(pair)
            else:
                self.strangers.cut_off(
                    pair, "it sent no CONNECT in time" if pair.stage == OPENING else "no CONNACK in time"
                )
        relay.sweep(now)
        relay.timers.at(now + LATER, self._sweep)
        relay.plane.wake()

    # ---- a CONNECT -----------------------------------------------------------------------------------------------

    def received(self, pair: Pair, data: bytes) -> None:
        if pair.stage == PARTING:
            return
        pair.opening += data
        if not self.strangers.keeps(pair, len(data)):
            return
        usher = self.usher
        if usher is not None and self._is_side_door(pair.entrance) and not pair.is_led:
            if not usher.introduced(pair):
                return
            self.strangers.moved(pair, pair.address)
        if pair.stage == CLOSED or not pair.opening:
            return
        size = connect_size(pair.opening)
        if size > len(pair.opening) and size <= LARGEST_OPENING:
            return
        if 0 < size <= LARGEST_OPENING:
            self._understand(pair, pair.opening[:size])
        pair.connect_size = size
        if pair.tap is None:
            pair.verdict = Verdict()
        if usher is None or pair.tap is None:
            self.dial(pair)
            return
        self._next(pair, CLAIMING)
        assert pair.client is not None
        self.relay.watch(pair.client)
        usher.came(pair)

    def _understand(self, pair: Pair, packet: bytes) -> None:
        try:
            connect = connect_in(packet)
            watcher = self._watcher if self.usher is None else self.usher.watcher(pair, connect)
            pair.tap = Tap(connect, watcher, partial(self.relay.go_on, pair))
        except RemoteProtocolError as error:
            log.info("the CONNECT of %s is not understood: %s", pair.address, error)

    # ---- the home broker -----------------------------------------------------------------------------------------

    def dial(self, pair: Pair) -> None:
        """Connect it to the home broker."""
        target = self._target()
        if target is None:
            self._not_dialed(pair, "its address is not known")
            return
        assert pair.client is not None
        if self.mixing is not None and pair.tap is not None and pair.mixing is None:
            connect, behind = pair.opening[: pair.connect_size], pair.opening[pair.connect_size :]
            mixing = pair.mixing = self.mixing(pair, connect_in(connect))
            pair.opening = connect + mixing.before(behind)
            if pair.stage == CLOSED:
                return
        self.dial_to(pair, target, self._header(pair, pair.client))

    def dial_to(self, pair: Pair, target: Target, header: bytes) -> None:
        """Connect it elsewhere; `header` goes before what the client has sent."""
        relay = self.relay
        if pair.tap is not None and len(pair.opening) > pair.connect_size:
            pair.tap.begin()
            pair.tap.from_client(pair.opening[pair.connect_size :])
        self.learned(pair)
        if pair.stage == CLOSED:
            return  # it gave way itself
        try:
            connection = socket.socket(target.family, socket.SOCK_STREAM)
        except OSError as error:
            self._not_dialed(pair, error.strerror or "no socket")
            return
        connection.setblocking(False)
        send_at_once(connection, is_loopback(target.address[0]))
        broker = pair.broker = End(connection, pair, False)
        client = pair.client
        assert client is not None
        client.other, broker.other = broker, client
        broker.is_connecting = True
        broker.waiting = header + pair.opening
        broker.stuck_since = relay.clock()
        relay.used += len(broker.waiting)
        pair.opening = b""
        self._next(pair, DIALING)
        relay.add(broker)
        relay.watch(client)
        status = connection.connect_ex(target.address)
        if status not in (0, errno.EINPROGRESS):
            self._not_dialed(pair, os.strerror(status))
        elif target.context is not None:
            self._secure(broker, target)

    def _header(self, pair: Pair, client: End) -> bytes:
        version = self.limits.send_proxy
        if not version:
            return b""
        door = client.connection.getsockname()
        address = pair.address if client.carrier is None else client.carrier.address
        return proxy_header(version, address, address_text(door[0], door[1]) if isinstance(door, tuple) else "")

    def _secure(self, broker: End, target: Target) -> None:
        connection = broker.connection
        channel = broker.carrier = Channel(self.turn, broker.fd, connection.recv, connection.send)
        channel.socket = connection
        channel.address = address_text(*target.address)
        assert target.context is not None
        tls = Tls(
            channel,
            target.context,
            lambda channel, _: self._secured(broker),
            lambda wanted: self._watch(channel, True, wanted),
            None,
            target.hostname,
            False,
        )
        channel.recv, channel.send_bytes, channel.transport = tls.recv, tls.send, tls

    def _secured(self, broker: End) -> None:
        broker.is_securing = False
        self.relay.watch(broker)
        if broker.other is not None:
            self.relay.watch(broker.other)

    def connected(self, pair: Pair) -> None:
        broker = pair.broker
        assert broker is not None
        status = broker.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if status:
            self._not_dialed(pair, os.strerror(status))
            return
        broker.is_connecting = False
        self._next(pair, ASKED)
        tls = None if broker.carrier is None else broker.carrier.transport
        if isinstance(tls, Tls):
            broker.is_securing = True
            try:
                tls.begin()
            except OSError as error:
                self._not_dialed(pair, str(error))
                return
        self.relay.watch(broker)
        if broker.other is not None:
            self.relay.watch(broker.other)

    def accepted(self, pair: Pair) -> None:
        pair.stage = OPEN
        client, broker = pair.client, pair.broker
        is_plain = client is not None and broker is not None and client.carrier is None and broker.carrier is None
        pair.is_plain = is_plain and pair.mixing is None
        if pair.mixing is not None:
            pair.mixing.accepted()
        self.strangers.left(pair)

    def closed(self, pair: Pair) -> None:
        self.strangers.left(pair)
        if self.usher is not None:
            self.usher.left(pair)
        self._pairs -= 1
        if pair.entrance is not None:
            pair.entrance.connections -= 1

    def _next(self, pair: Pair, stage: int) -> None:
        pair.stage = stage
        pair.since = self.relay.clock()

    def part(self, pair: Pair, words: bytes) -> None:
        """End it with these words of the proxy."""
        self.strangers.parts(pair)
        self._next(pair, PARTING)
        self.relay.part(pair, words)

    def _not_dialed(self, pair: Pair, why: str) -> None:
        if self.usher is not None and self.usher.not_reached(pair, why):
            return
        self.relay.counters.not_dialed += 1
        log.info("%s ends: cannot connect to the broker: %s", pair.address, why)
        self.relay.end(pair)


def connect_in(packet: bytes) -> Connect:
    """Raises RemoteProtocolError."""
    reader = PacketReader()
    reader.feed(packet)
    frame = reader.next_frame()
    assert frame is not None
    return decode_connect(frame[1])


def connect_size(data: bytes) -> int:
    """Bytes of the CONNECT that begins here, as far as can be said: more than there are, if its header is not whole. 0:
    it is none."""
    if data[0] >> 4 != CONNECT:
        return 0
    length = 0
    for number in range(4):
        if len(data) < number + 2:
            return len(data) + 1
        byte = data[number + 1]
        length |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            return length + number + 2
    return 0


def most_pairs() -> int:
    """As many as there are descriptors for: two each."""
    return max(1, (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - OTHER_FILES) // 2)
