"""The data plane in an event loop that is not ours (uvloop, somebody's application), by add_reader and call_soon.

What a turn is, loop.py says. Here the other loop tells of sockets one by one, so a turn begins with the first that is
ready and ends when that loop comes to the callback that was asked for.
"""

from __future__ import annotations

import time
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable

from headwater.message import NEVER
from headwater.node.plane.background import SLICE
from headwater.node.plane.channel import Channel
from headwater.node.plane.loop import Plane
from headwater.node.plane.timers import Timers
from headwater.node.plane.turn import Turn


class GuestPlane(Plane):
    """A data plane in somebody else's event loop: correct, and slower by that loop's cost per event."""

    def __init__(self, hot: Turn, timers: Timers, loop: AbstractEventLoop) -> None:
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

    def listen(self, fd: int, ready: Callable[[], None], urgent: bool = False) -> None:
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
            self.timers.run(now, now + SLICE)
        while hot.open or hot.dirty or hot.changed:
            hot.flush()
        if hot.background.waiting:
            hot.until = now + SLICE
            hot.background.run(hot.until)
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
