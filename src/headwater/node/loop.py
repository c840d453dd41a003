"""Where readiness comes from. The data plane's sockets are served in turns:

    wait for events -> read each ready socket once, deal with its packets -> run due timers -> one send per connection
                    -> a slice of time for what takes longer (chores.py)

`EpollPlane` is the fast one: it waits on epoll itself and returns to its caller only when someone else's descriptor is
ready, when it was interrupted, or at the caller's deadline. `selector.py` puts it inside asyncio's own loop.
`GuestPlane` does the same under any asyncio loop (uvloop, somebody's application) through add_reader and call_soon.
Registrations with epoll change only when a write blocks or a reader must be paused.

Those who are connected come first: what others want (a handshake, a password, a session of their own) costs many times
as much as a message, so if a turn has taken some time already only one of them is dealt with in it; the others are
ready again in the next one. And nobody has much more than a fraction of a millisecond in a turn: who sends much is read
from in larger pieces, unless dealing with those takes long, and behind the others; if many send much, a turn has time
for some of them, and the next one for others.
"""

from __future__ import annotations

import os
import select
import time
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

from headwater.message import NEVER
from headwater.node.channel import Channel
from headwater.node.chores import SLICE
from headwater.node.hotpath import HotPath
from headwater.node.polling import poll_of
from headwater.node.timers import Timers
from headwater.session.connection import CLOSING, CONNECTED

LARGEST_READ: Final = 61440
READABLE: Final = select.EPOLLIN
WRITABLE: Final = select.EPOLLOUT
GONE: Final = select.EPOLLERR | select.EPOLLHUP
"""What is told also of channels that are not read from."""
MAX_EVENTS: Final = 64
WORK: Final = 0.005
REST: Final = 0.002
"""Seconds of chores without a pause, and of the pause, in which others are served. Only a process of real-time priority
needs it: from one that is never idle Linux takes the processor away for 50 ms in a second, and all clients wait."""
SPARE: Final = 0.0001
"""Seconds since a turn began in which more than one newcomer may be dealt with."""
SMALLEST_READ: Final = 120
MEASURED_READ: Final = 480
"""Bytes from which on it is measured how long dealing with them takes."""
HEAVY_READ: Final = 3840
"""A connection that is asked for more bytes than this at once sends much: behind others, and not in every turn."""
LONG_READ: Final = 0.00003
"""Seconds to deal with what was read at once: above, the next piece is half as large."""
LONG_READ_ALONE: Final = 0.0003
"""The same as long as only those who send much send anything."""
ALONE: Final = 0.1
"""Seconds without others after which that is so."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Plane:
    """Serves channels and listeners."""

    def __init__(self, hot: HotPath, timers: Timers) -> None:
        self.hot = hot
        self.timers = timers
        self.long_read = LONG_READ
        hot.now = time.monotonic()

    def add(self, channel: Channel) -> None:
        """Read from this channel from now on."""
        raise RuntimeError("no plane")

    def watch(self, channel: Channel, readable: bool, writable: bool) -> None:
        """Change what is waited for."""
        raise RuntimeError("no plane")

    def remove(self, channel: Channel) -> None:
        """The channel's descriptor is about to be closed."""
        raise RuntimeError("no plane")

    def listen(self, fd: int, ready: Callable[[], None]) -> None:
        raise RuntimeError("no plane")

    def unlisten(self, fd: int) -> None:
        raise RuntimeError("no plane")

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
            hot.slow.lost(channel)
            return
        if not data:
            hot.slow.lost(channel)
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
            channel.read_size = max(size // 2, SMALLEST_READ)
        elif size == channel.read_size and took < self.long_read / 2 and size < LARGEST_READ:
            channel.read_size = size * 2

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
    def __init__(self, hot: HotPath, timers: Timers, epoll: select.epoll) -> None:
        super().__init__(hot, timers)
        self.epoll = epoll
        self.poll: Callable[[float, int], list[tuple[int, int]]] = poll_of(epoll)
        self.clock: Callable[[], float] = time.monotonic
        self.channels: dict[int, Channel] = {}
        self.listeners: dict[int, Callable[[], None]] = {}
        self.interrupted = False
        self.worked = 0.0
        """Seconds of chores since the last pause."""
        self.rests = has_real_time_priority()
        self.rest_until = 0.0
        self.light_at = 0.0
        self.heavy: list[Channel] = []
        self.next_heavy = 0

    def add(self, channel: Channel) -> None:
        self.channels[channel.fd] = channel
        self.epoll.register(channel.fd, READABLE)

    def watch(self, channel: Channel, readable: bool, writable: bool) -> None:
        reads = readable and not channel.paused
        self.epoll.modify(channel.fd, (READABLE if reads else 0) | (WRITABLE if writable else 0))

    def remove(self, channel: Channel) -> None:
        del self.channels[channel.fd]  # epoll forgets a descriptor when it is closed

    def listen(self, fd: int, ready: Callable[[], None]) -> None:
        self.listeners[fd] = ready
        self.epoll.register(fd, READABLE)

    def unlisten(self, fd: int) -> None:
        if self.listeners.pop(fd, None) is not None:
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
        chores = hot.chores.waiting
        while True:
            wake_at = timers.soonest if timers.soonest < deadline else deadline
            wait = -1.0 if wake_at == NEVER else wake_at - now if wake_at > now else 0.0
            if chores:
                if self.worked >= WORK and self.rests:
                    self.worked = 0.0
                    self.rest_until = now + REST
                rest = self.rest_until - now
                wait = 0.0 if rest <= 0.0 else rest if wait < 0.0 or rest < wait else wait
            events = poll(wait, MAX_EVENTS)
            now = clock()
            hot.now = now
            hot.until = now + SLICE
            others: list[tuple[int, int]] | None = None
            newcomer = False
            for fd, mask in events:
                channel = channels.get(fd)
                if channel is None:
                    ready = self.listeners.get(fd)
                    if ready is not None:
                        ready()  # contains its own failures
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
                        elif not newcomer or clock() - now < SPARE:
                            newcomer = True
                            self._read(channel)
                except Exception:  # one connection's end must never be the broker's
                    hot.slow.crashed(channel)
            if self.heavy:
                self._read_heavy()
            if hot.open or hot.dirty or hot.changed or timers.soonest <= now:
                self._end_turn(now)
            if chores and now >= self.rest_until:
                self._work(now)
            if others is not None:
                return others
            if self.interrupted or now >= deadline:
                return []

    def _end_turn(self, now: float) -> None:
        hot = self.hot
        hot.now = now
        if self.timers.soonest <= now:
            self.timers.run(now)
        while hot.open or hot.dirty or hot.changed:
            hot.flush()

    def _read_heavy(self) -> None:
        """From those who send much, in turn, as long as there is time; from one at least."""
        heavy = self.heavy
        now = self.clock()
        until = now + SLICE
        self.long_read = LONG_READ if now < self.light_at + ALONE else LONG_READ_ALONE
        first = self.next_heavy % len(heavy)
        for number in range(first, first + len(heavy)):
            channel = heavy[number % len(heavy)]
            try:
                if channel.fd >= 0 and not channel.paused:
                    self._read(channel)
            except Exception:
                self.hot.slow.crashed(channel)
            if self.clock() > until:
                break
        self.next_heavy = number + 1
        heavy.clear()

    def _work(self, now: float) -> None:
        """A slice of time, or half as long as the rest of the turn has taken if that is more."""
        hot = self.hot
        began = self.clock()
        hot.until = began + max(SLICE, (began - now) / 2)
        hot.chores.run(hot.until)
        self._end_turn(now)
        self.worked += self.clock() - began

    def wake(self) -> None:
        # Callers from outside a turn run inside asyncio; the next `run` looks at what they left.
        pass


class GuestPlane(Plane):
    """A data plane in somebody else's event loop: correct, and slower by that loop's cost per event."""

    def __init__(self, hot: HotPath, timers: Timers, loop: AbstractEventLoop) -> None:
        super().__init__(hot, timers)
        self.loop = loop
        self.scheduled = False
        self.alarm: TimerHandle | None = None
        self.alarm_at = NEVER

    def add(self, channel: Channel) -> None:
        self.loop.add_reader(channel.fd, self._readable, channel)
        self.wake()

    def watch(self, channel: Channel, readable: bool, writable: bool) -> None:
        if readable and not channel.paused:
            self.loop.add_reader(channel.fd, self._readable, channel)
        else:
            self.loop.remove_reader(channel.fd)
        if writable:
            self.loop.add_writer(channel.fd, self._writable, channel)
        else:
            self.loop.remove_writer(channel.fd)

    def remove(self, channel: Channel) -> None:
        self.loop.remove_reader(channel.fd)
        self.loop.remove_writer(channel.fd)

    def listen(self, fd: int, ready: Callable[[], None]) -> None:
        self.loop.add_reader(fd, ready)

    def unlisten(self, fd: int) -> None:
        self.loop.remove_reader(fd)

    def wake(self) -> None:
        if not self.scheduled:
            self.scheduled = True
            self.loop.call_soon(self._end_turn)

    def close(self) -> None:
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None

    def _readable(self, channel: Channel) -> None:
        if channel.fd >= 0:
            self.hot.now = time.monotonic()
            self.hot.until = self.hot.now + SLICE
            self._read(channel)
            self.wake()

    def _writable(self, channel: Channel) -> None:
        if channel.fd >= 0:
            self.hot.now = time.monotonic()
            self._write(channel)
            self.wake()

    def _end_turn(self) -> None:
        self.scheduled = False
        hot = self.hot
        now = hot.now = time.monotonic()
        if self.timers.soonest <= now:
            self.timers.run(now)
        while hot.open or hot.dirty or hot.changed:
            hot.flush()
        if hot.chores.waiting:
            hot.until = now + SLICE
            hot.chores.run(hot.until)
            self.wake()
        soonest = self.timers.soonest
        if soonest < self.alarm_at or self.alarm_at <= now:
            if self.alarm is not None:
                self.alarm.cancel()
            self.alarm_at = soonest
            self.alarm = None if soonest == NEVER else self.loop.call_later(max(0.0, soonest - now), self._rang)

    def _rang(self) -> None:
        # Perhaps a little early, as uvloop rounds to milliseconds: then it has to be set again.
        self.alarm = None
        self.alarm_at = NEVER
        self._end_turn()
