"""The relay: bytes of clients to the home broker, and back.

Theory. What a proxy costs are calls of the system: a message that comes alone is one `recv` and one `send` in each
direction, whatever is done in between. So the relay is made to find many messages in one read:

- Its sockets are in an epoll of their own, which is one descriptor among others for the plane (node/plane/loop.py, or
  any asyncio loop). A turn asks once which sockets are ready, reads each of them once, up to 64 KiB, and gives what it
  read to the other socket in one send.
- After a turn it rests, and does not even wait for its sockets, as long as that pays (pacing.py). What comes meanwhile
  is found together.
- Bytes are looked at by the tap alone (scanner.py), with one addition per packet; where no packet matters, they do not
  even become an object, nor does their event: a turn is one call, and comes back with what it left (passages.py).

Back-pressure. A socket that does not take all leaves the rest in `End.waiting`, and the other end is not read from
until it has gone. So at most one read waits in each direction, and its sender meets a full socket, as without a proxy.
When what waits in all ends reaches `max_memory`, reads are `SMALL_READ` bytes: beyond it, an end adds that at most.

The end. What one end ends with (FIN) is told to the other behind all bytes, and reading in the other direction goes on:
half-closed connections stay so, for `write_timeout`: who does not go by then must not keep two sockets. An end that
fails (RST) takes the pair with it as soon as the other has what waits for it. Descriptors are closed when the turn
ends, so that no event of this turn meets a newer socket of the same number.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import time
from collections.abc import Callable
from itertools import takewhile
from typing import Final

from headwater.node.plane.loop import Plane
from headwater.node.plane.polling import poll_of
from headwater.node.plane.timers import Timers
from headwater.node.proxy.answers import with_reason
from headwater.node.proxy.pacing import BURST, ENOUGH, MOST_EVENTS, Pace
from headwater.node.proxy.pair import (
    ASKED,
    CLOSED,
    LARGEST_READ,
    OPEN,
    OPENING,
    PARTING,
    End,
    Opening,
    Pair,
    RelayCounters,
)
from headwater.node.proxy.passages import FAILED, READ, REST, UNTOUCHED, Passages
from headwater.node.proxy.short_way import short_way

log = logging.getLogger("headwater.proxy")

READABLE: Final = select.EPOLLIN
WRITABLE: Final = select.EPOLLOUT
SMALL_READ: Final = 1024
"""Bytes of a read while too much waits."""
CONTROL_READ: Final = 4096
"""Bytes of the next read from who sent a packet that matters: dealing with such takes longer than passing bytes on."""


class Relay:
    """`opening` is set before the first pair comes. All calls are from the loop's thread."""

    opening: Opening

    def __init__(self, plane: Plane, timers: Timers, max_memory: int, write_timeout: float) -> None:
        self.plane = plane
        self.timers = timers
        self.max_memory = max_memory
        self.write_timeout = write_timeout
        self.counters = RelayCounters()
        self.ends: dict[int, End] = {}
        self.used = 0
        """Bytes that wait in all ends."""
        self.epoll = select.epoll()
        self.fd = self.epoll.fileno()
        self.poll: Callable[[float, int], list[tuple[int, int]]] = poll_of(self.epoll)
        self.clock: Callable[[], float] = time.monotonic
        self.passages: Passages | None = None
        """None: all bytes go the relay's own way."""
        make = short_way()
        if make is not None:
            self.passages = Passages(make(self.epoll, ENOUGH, BURST))
        self.is_listening = False
        self.is_closed = False
        self._closing: list[socket.socket] = []
        self._leaving: dict[End, float] = {}
        """Those that were told that nothing more comes, and when, the oldest first."""
        self._pace = Pace()

    def start(self) -> None:
        self._listen(True)

    def close(self) -> None:
        """End all connections."""
        for end in list(self.ends.values()):
            self.end(end.pair)
        self._listen(False)
        self.is_closed = True
        self.close_sockets()
        self.epoll.close()

    def _listen(self, wanted: bool) -> None:
        if wanted != self.is_listening:
            self.is_listening = wanted
            if wanted:
                self.plane.listen(self.fd, self.turn, True)
            else:
                self.plane.unlisten(self.fd)

    # ---- turns ---------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Serve all that are ready, once."""
        if self.is_closed:
            return
        began = self.clock()
        self._pace.begin()
        served = self._serve_by_poll() if self.passages is None else self._serve_by_passages(self.passages)
        if self._closing:
            self.close_sockets()
        now = self.clock()
        rest = self._pace.rest_after(now - began, served) if served else 0.0
        self._listen(rest == 0.0)
        if rest:
            self.timers.at(now + rest, self.turn)
            self.plane.wake()

    def _serve_by_poll(self) -> int:
        """All that are ready; how many."""
        events = self.poll(0.0, MOST_EVENTS)
        for fd, mask in events:
            self._serve(fd, mask, UNTOUCHED, b"")
        return len(events)

    def _serve_by_passages(self, passages: Passages) -> int:
        """The same, most of it in one step."""
        served, reads, small, bursts, from_clients, from_broker, left = passages.serve(
            MOST_EVENTS, self.max_memory - self.used
        )
        self._pace.passed(reads, small, bursts)
        self.counters.bytes_from_clients += from_clients
        self.counters.bytes_from_broker += from_broker
        if left is not None:
            for fd, _, kind, data in left:
                if kind == REST:  # before anything else is sent there
                    end = self.ends[fd]
                    if end.other is not None:
                        self._let_wait(end.other, data)
                        self.watch(end)
            for fd, mask, kind, data in left:
                if kind != REST:
                    self._serve(fd, mask, kind, data)
        return served

    def _serve(self, fd: int, mask: int, kind: int, data: bytes) -> None:
        """One that is ready, and what is done of it already."""
        end = self.ends.get(fd)
        if end is None:
            return
        pair = end.pair
        passages = self.passages if pair.is_plain else None
        try:
            if passages is not None:
                passages.close(pair)
            if kind == READ:
                self._got(end, data)
            elif kind == FAILED:
                self._failed(end)
            else:
                if mask & WRITABLE:
                    self._writable(end)
                if mask & ~WRITABLE and end.is_registered:
                    self._readable(end, mask)
            if self.passages is not None and pair.is_plain:
                self.passages.open(pair)
        except Exception:  # one connection's end must never be the proxy's
            self.counters.failures += 1
            log.exception("serving a connection failed")
            self.end(pair)

    def close_sockets(self) -> None:
        closing = self._closing
        self._closing = []
        for each in closing:
            each.close()

    # ---- what epoll is asked for ---------------------------------------------------------------------------------

    def add(self, end: End) -> None:
        self.ends[end.fd] = end
        self.watch(end)

    def watch(self, end: End) -> None:
        """Ask for what there is to be asked for now."""
        if end.fd < 0:
            return
        events = 0
        if end.is_connecting or end.wants_writable or (end.waiting and not end.is_securing):
            events = WRITABLE
        if self._is_read_from(end):
            events |= READABLE
        if not end.is_registered:
            if events:
                end.is_registered = True
                end.events = events
                self.epoll.register(end.fd, events)
        elif events != end.events:
            end.events = events
            self.epoll.modify(end.fd, events)

    @staticmethod
    def _is_read_from(end: End) -> bool:
        if end.has_ended or end.is_connecting:
            return False
        pair = end.pair
        if pair.stage in (OPENING, PARTING) or end.is_securing:
            return True
        other = end.other
        if other is None or other.is_connecting or other.waiting:
            return False
        if end.is_client:
            return True
        return not pair.held_back and (pair.mixing is None or not pair.mixing.is_stalled)

    def _unregister(self, end: End) -> None:
        if end.is_registered:
            end.is_registered = False
            end.events = 0
            self.epoll.unregister(end.fd)

    # ---- in ------------------------------------------------------------------------------------------------------

    def _readable(self, end: End, mask: int) -> None:
        if end.events & READABLE == 0:
            if mask & ~(READABLE | WRITABLE):
                self._unregister(end)  # it is told again when it is read from again
            return
        size = end.read_size
        if self.used > self.max_memory:
            size = SMALL_READ
        carrier = end.carrier
        try:
            data = end.recv(size) if carrier is None else carrier.recv(size)
        except BlockingIOError:
            return
        except OSError:
            self._failed(end)
            return
        self._got(end, data)

    def _got(self, end: End, data: bytes) -> None:
        """Bytes came; none: nothing more comes."""
        if not data:
            self._ended(end)
            return
        pair = end.pair
        self._count(end, len(data))
        if not end.is_client:
            self._from_broker(pair, end, data)
        elif pair.stage in (OPENING, PARTING):
            self.opening.received(pair, data)
        else:
            self._from_client(pair, end, data)

    def _count(self, end: End, got: int) -> None:
        """A read brought so many bytes."""
        if got == end.read_size and got < LARGEST_READ:
            end.read_size = got * 2
        if end.is_client:
            self.counters.bytes_from_clients += got
        else:
            self.counters.bytes_from_broker += got

    def _from_client(self, pair: Pair, end: End, data: bytes) -> None:
        if pair.mixing is not None:
            pair.mixing.from_client(data)
        else:
            self._tapped_from_client(pair, end, data)
        if pair.stage == ASKED:
            self.opening.learned(pair)

    def to_broker(self, pair: Pair, data: bytes) -> None:
        """What the broker is to have of what its client sent."""
        if pair.client is not None:
            self._tapped_from_client(pair, pair.client, data)

    def _to_client(self, pair: Pair, end: End, data: bytes) -> None:
        if pair.mixing is not None:
            pair.mixing.from_broker(data)
        else:
            self.pass_on(end, data)

    def _tapped_from_client(self, pair: Pair, end: End, data: bytes) -> None:
        tap = pair.tap
        if tap is not None:
            scanner = tap.of_client
            before = scanner.packets
            was_blind = tap.is_blind
            if tap.from_client(data):
                end.read_size = CONTROL_READ
            if tap.is_blind and not was_blind:
                self.counters.blind += 1
            self._pace.read(scanner.packets - before)
        self.pass_on(end, data)

    def _from_broker(self, pair: Pair, end: End, data: bytes) -> None:
        tap = pair.tap
        if tap is not None:
            scanner = tap.of_broker
            before = scanner.packets
            held_from = tap.from_broker(data)
            self._pace.read(scanner.packets - before)
            if pair.reason and pair.stage == ASKED:
                data = with_reason(data, pair.reason, pair.largest)
            if held_from >= 0 and tap.holding:
                pair.held_back = data[held_from:]
                data = data[:held_from]
                self.watch(end)
            if pair.stage == ASKED and tap.is_accepted:
                self.opening.accepted(pair)
        elif pair.verdict is not None and pair.verdict.is_welcome(data):
            pair.verdict = None
            self.opening.accepted(pair)
        if data:
            self._to_client(pair, end, data)

    def go_on(self, pair: Pair) -> None:
        """What was held back of it may go."""
        data = pair.held_back
        pair.held_back = b""
        broker = pair.broker
        if pair.stage == CLOSED or broker is None:
            return
        if data:
            self._to_client(pair, broker, data)
        self.watch(broker)
        self._finish(broker)

    # ---- out -----------------------------------------------------------------------------------------------------

    def pass_on(self, end: End, data: bytes) -> None:
        """Give to the other end what came from this one."""
        other = end.other
        if other is None or other.is_shut:
            return
        if other.waiting:
            other.waiting += data
            self.used += len(data)
            return
        try:
            sent = other.send(data) if other.carrier is None else other.carrier.send_bytes(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._failed(other)
            return
        if sent < len(data):
            self._let_wait(other, data[sent:])
            self.watch(end)

    def _let_wait(self, end: End, data: bytes) -> None:
        """Its socket has not taken these bytes."""
        end.waiting = data
        end.stuck_since = self.clock()
        self.used += len(data)
        self.watch(end)

    def _writable(self, end: End) -> None:
        if end.is_connecting:
            self.opening.connected(end.pair)
            return
        if not end.waiting or end.is_securing:
            if end.carrier is not None and end.carrier.transport is not None:
                end.carrier.transport.writable()
            self.watch(end)
            return
        try:
            sent = end.send(end.waiting) if end.carrier is None else end.carrier.send_bytes(end.waiting)
        except BlockingIOError:
            return
        except OSError:
            self._failed(end)
            return
        if sent:
            self.used -= sent
            end.waiting = end.waiting[sent:]
            end.stuck_since = self.clock()
        if not end.waiting:
            self.watch(end)
            if end.other is not None:
                self.watch(end.other)
                self._finish(end.other)
            if end.is_client and end.pair.mixing is not None:
                end.pair.mixing.drained()

    # ---- the end -------------------------------------------------------------------------------------------------

    def _ended(self, end: End) -> None:
        """It has said that nothing more comes."""
        end.has_ended = True
        if end.other is None or end.pair.stage in (OPENING, PARTING):
            self.end(end.pair)
            return
        self.watch(end)
        self._finish(end)

    def _finish(self, end: End) -> None:
        """Tell the other end that nothing more comes from this one, if that is so and it has all the rest."""
        other = end.other
        if not end.has_ended or other is None or end.pair.stage == CLOSED:
            return
        if other.waiting or (end.pair.held_back and not end.is_client):
            return
        if other.has_ended:
            self.end(end.pair)
        elif not other.is_shut:
            other.is_shut = True
            self._leaving[other] = self.clock()
            shut(other)

    def _failed(self, end: End) -> None:
        """Its connection is broken; what it sent before still goes to the other end."""
        other = end.other
        end.has_ended = True
        end.is_shut = True
        self.used -= len(end.waiting)
        end.waiting = b""
        self._unregister(end)
        if other is None:
            self.end(end.pair)
            return
        other.has_ended = True
        self.watch(other)
        self._finish(end)

    def end(self, pair: Pair) -> None:
        """Close both of its sockets."""
        if pair.stage == CLOSED:
            return
        self.opening.closed(pair)
        pair.stage = CLOSED
        pair.held_back = b""
        for end in (pair.client, pair.broker):
            if end is not None:
                self._close(end)
        if pair.mixing is not None:
            pair.mixing.closed()
        if pair.tap is not None:
            pair.tap.close()

    def _close(self, end: End) -> None:
        if end.fd < 0:
            return
        if self.passages is not None:
            self.passages.close(end.pair)
        self._unregister(end)
        self.used -= len(end.waiting)
        end.waiting = b""
        del self.ends[end.fd]
        self._leaving.pop(end, None)
        end.fd = -1
        if not end.is_shut:
            say_goodbye(end)
        self._closing.append(end.connection)
        end.other = None
        end.carrier = None

    def drop_broker(self, pair: Pair) -> None:
        """Close its connection to the broker alone."""
        if pair.broker is not None:
            self._close(pair.broker)
            pair.broker = None
        if pair.client is not None:
            pair.client.other = None

    def part(self, pair: Pair, words: bytes) -> None:
        """End it with these, as far as the client's socket takes them. What the client still sends is read: otherwise
        its system would throw away what it has not read yet."""
        client = pair.client
        assert client is not None
        if self.passages is not None:
            self.passages.close(pair)
        is_whole = not client.waiting and not pair.held_back and (pair.tap is None or pair.tap.of_broker.is_between)
        self.drop_broker(pair)
        self.used -= len(client.waiting)
        client.waiting = pair.held_back = b""
        pair.stage = PARTING
        if pair.mixing is not None:
            pair.mixing.closed()
        if pair.tap is not None:
            pair.tap.close()
        with contextlib.suppress(OSError):
            if words and is_whole:
                client.send(words) if client.carrier is None else client.carrier.send_bytes(words)
            shut(client)
            client.is_shut = True
        self.watch(client)

    def sweep(self, now: float) -> None:
        """End the pairs of which one end has taken nothing for too long, or stays though the other has ended."""
        limit = now - self.write_timeout
        stuck = [each for each in self.ends.values() if each.waiting and each.stuck_since < limit] if self.used else []
        for end in stuck:
            if end.pair.stage in (ASKED, OPEN):
                self._give_up(end, "takes nothing")
        for end in [end for end, since in takewhile(lambda each: each[1] < limit, self._leaving.items())]:
            self._give_up(end, "does not go")
        self.close_sockets()

    def _give_up(self, end: End, why: str) -> None:
        if end.pair.stage == CLOSED:
            return
        self.counters.stuck += 1
        log.info("%s ends: its %s %s", end.pair.address, "client" if end.is_client else "broker", why)
        self.end(end.pair)


def say_goodbye(end: End) -> None:
    """Of the layers, where there are any."""
    if end.carrier is not None and end.carrier.transport is not None:
        end.carrier.transport.end()


def shut(end: End) -> None:
    say_goodbye(end)
    with contextlib.suppress(OSError):  # it is gone already, and reading from it tells
        end.connection.shutdown(socket.SHUT_WR)
