"""Where readiness comes from. The data plane's sockets are served in turns:

    wait for events -> read each ready socket once, deal with its packets -> run due timers -> one send per connection
                    -> a slice of time for one kind of what may wait -> timers and sends again, if that left any

`EpollPlane` is the fast one: it waits on epoll itself and returns to its caller only when someone else's descriptor is
ready, when it was interrupted, or at the caller's deadline. `selector.py` puts it inside asyncio's own loop.
`GuestPlane` (guest.py) does the same under any asyncio loop (uvloop, somebody's application).
Registrations with epoll change only when a write blocks or a reader must be paused.

Those who are connected and send little come first. Six kinds of work may wait until they have got theirs: connections
to accept, reading from those who are not connected (a handshake, a password, a session cost many times as much as a
message), parting from those who have hung up (a session ends, a will is published), reading from those who send much,
background tasks (background.py), and sending what came of all these. A turn has one slice of time for them and deals
with one kind at least, the next turn with the next kind: what is left is ready again then. So nobody waits for more
than one slice, and for what cannot be divided. As long as only such work comes, a turn has time for all kinds. Who
sends much is read from in larger pieces, unless dealing with those takes long; if many do, a turn has time for some of
them, and the next one for others. While sends wait there is neither more to read from those who send much nor are there
background tasks: both could only add to what waits.
"""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

from headwater.message import NEVER
from headwater.node.plane.background import SLICE
from headwater.node.plane.channel import RESTING, Channel
from headwater.node.plane.polling import poll_of
from headwater.node.plane.timers import Timers
from headwater.node.plane.turn import Turn
from headwater.session.connection import CLOSING, CONNECTED

LARGEST_READ: Final = 61440
READABLE: Final = select.EPOLLIN
WRITABLE: Final = select.EPOLLOUT
GONE: Final = select.EPOLLERR | select.EPOLLHUP
"""What is told also of channels that are not read from."""
MAX_EVENTS: Final = 64
WORK: Final = 0.005
REST: Final = 0.002
"""Seconds of background tasks, and of reading from those who send much, without a pause, and of the pause, in which
others are served. Only a process of real-time priority needs it: from one that is never idle Linux takes the processor
away for 50 ms in a second, and all clients wait."""
SPARE: Final = 0.0001
"""Seconds of a turn for newcomers as long as nobody who sends little sends anything."""
ENTRANCES: Final = 0
NEWCOMERS: Final = 1
HEAVY: Final = 2
BACKGROUND: Final = 3
DEPARTED: Final = 4
SENDS: Final = 5
KINDS: Final = 6
"""Kinds of work that may wait."""
SMALLEST_READ: Final = 120
SMALLEST_POSTPONED_READ: Final = 1920
"""The same of a channel whose packets wait for a slice of time (`Slow.postponed`): these bound what a read takes, and
small reads would only cost more calls of the system, five for each 120 bytes."""
MEASURED_READ: Final = 480
"""Bytes from which on it is measured how long dealing with them takes."""
HEAVY_READ: Final = 3840
"""A connection that is asked for more bytes than this at once sends much: behind others, and not in every turn."""
LONG_READ: Final = 0.00002
"""Seconds to deal with what was read at once: above, the next piece is half as large."""
LONG_READ_ALONE: Final = 0.0003
"""The same as long as only those who send much send anything."""
ALONE: Final = 0.1
"""Seconds without others after which that is so."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Plane:
    """Serves channels and listeners."""

    def __init__(self, hot: Turn, timers: Timers) -> None:
        self.hot = hot
        self.timers = timers
        self.long_read = LONG_READ
        hot.now = time.monotonic()

    def add(self, channel: Channel) -> None:
        """Read from this channel from now on."""
        raise NotImplementedError

    def watch(self, channel: Channel, readable: bool, writable: bool) -> None:
        """Change what is waited for."""
        raise NotImplementedError

    def remove(self, channel: Channel) -> None:
        """The channel's descriptor is about to be closed."""
        raise NotImplementedError

    def listen(self, fd: int, ready: Callable[[], None], urgent: bool = False) -> None:
        """Call `ready` when something is there to be read; `urgent`: before what may wait, as clients wait for it."""
        raise NotImplementedError

    def unlisten(self, fd: int) -> None:
        raise NotImplementedError

    def wake(self) -> None:
        """Something was written, or a timer set, from outside a turn."""

    def close(self) -> None:
        """No channels and listeners are left."""

    def read(self, channel: Channel) -> None:
        """Read once from a channel that is paused."""
        if channel.fd >= 0:
            self._read(channel)

    def _read(self, channel: Channel) -> None:
        hot = self.hot
        transport = channel.transport
        try:
            data = channel.recv(channel.read_size) if transport is None else transport.recv(channel.read_size)
        except BlockingIOError:
            return
        except OSError:
            self._ended(channel)
            return
        if not data:
            self._ended(channel)
            return
        size = len(data)
        if channel.state == CLOSING:
            return
        hot.stats.bytes_received += size
        if size < MEASURED_READ and size < channel.read_size:
            hot.feed(channel, data)
            return
        began = time.monotonic()
        hot.feed(channel, data)
        took = time.monotonic() - began
        channel.heavy = took > LONG_READ / 2
        if took > self.long_read:
            channel.read_size = max(size // 2, SMALLEST_POSTPONED_READ if channel.postponed else SMALLEST_READ)
        elif size == channel.read_size and took < self.long_read / 2 and size < LARGEST_READ:
            channel.read_size = size * 2

    def _ended(self, channel: Channel) -> None:
        """The client has hung up."""
        self.hot.slow.lost(channel)

    def _write(self, channel: Channel) -> None:
        hot = self.hot
        if channel.backlog is None:
            if channel.transport is not None:
                channel.transport.writable()
            return
        if hot.writable(channel):
            hot.slow.written(channel)
        elif channel.congested and channel.fd >= 0 and channel.backlog_size * 2 < hot.outbound_buffer:
            hot.slow.relieved(channel)


def has_real_time_priority() -> bool:
    """Whether Linux bounds what this thread may have of a processor."""
    try:
        return os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK in (os.SCHED_RR, os.SCHED_FIFO)
    except (AttributeError, OSError):  # not Linux
        return False


class EpollPlane(Plane):
    def __init__(self, hot: Turn, timers: Timers, epoll: select.epoll) -> None:
        super().__init__(hot, timers)
        self.epoll = epoll
        self.poll: Callable[[float, int], list[tuple[int, int]]] = poll_of(epoll)
        self.clock: Callable[[], float] = time.monotonic
        self.channels: dict[int, Channel] = {}
        self.listeners: dict[int, Callable[[], None]] = {}
        self.urgent: set[int] = set()
        self.interrupted = False
        self.worked = 0.0
        """Seconds of reading from those who send much, and of background tasks, since the last pause."""
        self.rests = has_real_time_priority()
        self.rest_until = 0.0
        self.light_at = 0.0
        self.entrances: list[Callable[[], None]] = []
        self.newcomers: list[Channel] = []
        self.next_newcomer = 0
        self.heavy: list[Channel] = []
        self.next_heavy = 0
        self.resting: list[Channel] = []
        """Those who send much and are not read from during the pause."""
        self.departed: deque[Channel] = deque()
        self.next_kind = 0

    def add(self, channel: Channel) -> None:
        self.channels[channel.fd] = channel
        self.epoll.register(channel.fd, READABLE)

    def watch(self, channel: Channel, readable: bool, writable: bool) -> None:
        if channel.departed:
            return
        reads = readable and not channel.paused
        self.epoll.modify(channel.fd, (READABLE if reads else 0) | (WRITABLE if writable else 0))

    def remove(self, channel: Channel) -> None:
        del self.channels[channel.fd]  # epoll forgets a descriptor when it is closed

    def listen(self, fd: int, ready: Callable[[], None], urgent: bool = False) -> None:
        self.listeners[fd] = ready
        if urgent:
            self.urgent.add(fd)
        self.epoll.register(fd, READABLE)

    def unlisten(self, fd: int) -> None:
        if self.listeners.pop(fd, None) is not None:
            self.urgent.discard(fd)
            self.epoll.unregister(fd)

    def run(self, timeout: float) -> list[tuple[int, int]]:
        """Serve turns until `timeout` seconds are over (negative: no limit), or until there is something for others:
        their events are returned."""
        hot = self.hot
        timers = self.timers
        channels = self.channels
        poll = self.poll
        clock = self.clock
        now = clock()
        deadline = NEVER if timeout < 0 else now + timeout
        self.interrupted = False
        hot.until = now + SLICE
        if hot.open or hot.dirty or hot.changed or timers.soonest <= now:
            self._end_turn(now)
            if self.interrupted:
                deadline = now
        background = hot.background.waiting
        while True:
            wake_at = timers.soonest if timers.soonest < deadline else deadline
            wait = -1.0 if wake_at == NEVER else wake_at - now if wake_at > now else 0.0
            if hot.unsent or self.departed:
                wait = 0.0
            elif background or self.resting:
                rest = self.rest_until - now
                wait = 0.0 if rest <= 0.0 else rest if wait < 0.0 or rest < wait else wait
            events = poll(wait, MAX_EVENTS)
            now = clock()
            if self.resting and now >= self.rest_until:
                self._go_on()
            hot.now = now
            hot.until = now + SLICE
            others: list[tuple[int, int]] | None = None
            for fd, mask in events:
                channel = channels.get(fd)
                if channel is None:
                    ready = self.listeners.get(fd)
                    if ready is not None:
                        if fd in self.urgent:
                            ready()  # contains its own failures
                        else:
                            self.entrances.append(ready)
                    elif fd not in channels:
                        if others is None:
                            others = []
                        others.append((fd, mask))
                    continue
                try:
                    if mask & WRITABLE:
                        self._write(channel)
                        if channel.fd != fd:
                            continue
                    if mask & ~WRITABLE:
                        if channel.state == CONNECTED:
                            if channel.paused and mask & GONE:
                                self._read(channel)  # which finds out
                            elif channel.heavy or channel.read_size > HEAVY_READ:
                                self.heavy.append(channel)
                            else:
                                self.light_at = now
                                self._read(channel)
                        else:
                            self.newcomers.append(channel)
                except Exception:  # one connection's end must never be the broker's
                    hot.slow.crashed(channel)
            if hot.open or hot.dirty or hot.changed or timers.soonest <= now:
                self._end_turn(now)
            if self.heavy or self.newcomers or self.entrances or background or hot.unsent or self.departed:
                self._serve_patient(now)
            if others is not None:
                return others
            if self.interrupted or now >= deadline:
                return []

    def _end_turn(self, now: float) -> None:
        hot = self.hot
        hot.now = now
        if self.timers.soonest <= now:
            self.timers.run(now, self.clock() + SLICE)
        while hot.open or hot.dirty or hot.changed:
            hot.flush()

    def _serve_patient(self, now: float) -> None:
        """What may wait, kind by kind in turn, as long as there is time; of one kind at least."""
        hot = self.hot
        began = self.clock()
        alone = began > self.light_at + ALONE
        self.long_read = LONG_READ_ALONE if alone else LONG_READ
        kind = self.next_kind
        for _ in range(KINDS):
            kind = (kind + 1) % KINDS
            if not self._has_work(kind, now):
                continue
            self._serve(kind, now, SPARE if alone else SLICE)
            self.next_kind = kind
            if not alone and self.clock() > began + SLICE:
                break
        if self.worked >= WORK and self.rests:
            self._rest(self.clock())
        self.entrances.clear()
        self.newcomers.clear()
        self.heavy.clear()
        if alone:
            if hot.open or hot.dirty or hot.changed:
                self._end_turn(now)
        else:
            while hot.open or hot.dirty or hot.changed:
                hot.flush_later()
            if hot.unsent:
                hot.send_some(began + SLICE)

    def _has_work(self, kind: int, now: float) -> bool:
        if kind == ENTRANCES:
            return bool(self.entrances)
        if kind == NEWCOMERS:
            return bool(self.newcomers) and not self.departed  # who comes back has gone first
        if kind == DEPARTED:
            return bool(self.departed)
        if kind == SENDS:
            return bool(self.hot.unsent)
        if self.hot.unsent:
            return False
        if kind == HEAVY:
            return bool(self.heavy)
        return now >= self.rest_until and bool(self.hot.background.waiting)

    def _serve(self, kind: int, now: float, seconds: float) -> None:
        began = self.clock()
        self.hot.until = began + seconds
        if kind == ENTRANCES:
            for ready in self.entrances:
                ready()  # contains its own failures
        elif kind == NEWCOMERS:
            self.next_newcomer = self._read_some(self.newcomers, self.next_newcomer, True)
        elif kind == HEAVY:
            self.hot.until = began + SLICE
            self.next_heavy = self._read_some(self.heavy, self.next_heavy, False)
            self.worked += self.clock() - began
        elif kind == DEPARTED:
            self._part_from_some()
        elif kind == SENDS:
            self.hot.send_some(self.hot.until)
        else:
            # Half as long as the rest of the turn has taken, if that is more: else they would never end under load.
            self.hot.until = began + max(SLICE, (began - now) / 2)
            self.hot.background.run(self.hot.until)
            self.worked += self.clock() - began

    def _rest(self, now: float) -> None:
        """Neither background tasks nor those who send much, for a while."""
        self.worked = 0.0
        self.rest_until = now + REST
        for channel in self.heavy:
            if channel.fd >= 0 and not channel.departed:
                channel.paused |= RESTING
                self.watch(channel, False, channel.backlog_size > 0)
                self.resting.append(channel)

    def _go_on(self) -> None:
        for channel in self.resting:
            channel.paused &= ~RESTING
            if channel.fd >= 0 and not channel.paused:
                self.watch(channel, not channel.congested, channel.backlog_size > 0)
        self.resting.clear()

    def _read_some(self, channels: list[Channel], first: int, paused: bool) -> int:
        """From these, in turn, as long as there is time; from one at least; `paused`: even from such as are not to be
        read from, of which something is told only when they have gone. Returns whose turn is next."""
        until = self.hot.until - SLICE / 2  # the next one may take a slice, too
        first %= len(channels)
        for number in range(first, first + len(channels)):
            channel = channels[number % len(channels)]
            try:
                if channel.fd >= 0 and (paused or not channel.paused):
                    self._read(channel)
            except Exception:  # one connection's end must never be the broker's
                self.hot.slow.crashed(channel)
            if self.clock() > until:
                break
        return number + 1

    def _ended(self, channel: Channel) -> None:
        """Nothing more is told of it; the rest may wait."""
        if not channel.departed:
            channel.departed = True
            self.epoll.unregister(channel.fd)
            self.departed.append(channel)

    def _part_from_some(self) -> None:
        """From those who have hung up, as long as there is time; from one at least."""
        while self.departed:
            channel = self.departed.popleft()
            try:
                if channel.fd >= 0:
                    self.hot.slow.lost(channel)
            except Exception:  # one connection's end must never be the broker's
                self.hot.slow.crashed(channel)
            if self.clock() > self.hot.until:
                break

    def wake(self) -> None:
        # Callers from outside a turn run inside asyncio; the next `run` looks at what they left.
        pass
