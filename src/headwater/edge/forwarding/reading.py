"""A forward's reading: what its lanes want of the store, in threads, a part at a time.

The live lane reads what is new in its round; it is in the store's memory, as a rule. The backlog lane reads beside the
rounds, because the disk may take a while. Each keeps its iterator as long as it goes on where the last part ended: a
block of the store is then unpacked once, not for each part.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import Final

from headwater.edge.forwarding.lanes import Lanes, Wanted
from headwater.edge.forwarding.source import Part, Source
from headwater.edge.forwarding.wishes import Counts, Wishes
from headwater.store.entry import Entry
from headwater.store.store import PositionGone

LATE_EVERY: Final = 5.0
"""Seconds between two looks at how late we are."""
NEVER: Final = float("-inf")

log: Final = logging.getLogger("headwater.forward")


class Reading:
    """`wake` is called when a part of the backlog is there."""

    def __init__(
        self, name: str, lanes: Lanes, source: Source, wishes: Wishes, counts: Counts, wake: Callable[[], None]
    ) -> None:
        self._name = name
        self._lanes = lanes
        self._source = source
        self._wishes = wishes
        self._counts = counts
        self._wake = wake
        self.is_fresh = True
        """There is a new connection, and nothing was read since."""
        self._live: tuple[int, Iterator[Part]] | None = None
        """Where the live lane goes on, and with what."""
        self._backlog: tuple[int, int, Iterator[Part]] | None = None
        """Class and place of the backlog lane, and with what it goes on."""
        self._task: asyncio.Task[None] | None = None
        self._looked_at = (-1, NEVER)
        self.since: int | None = None
        """Arrival of the oldest message that is owed, as it was last looked at."""

    # ---- the live lane -------------------------------------------------------------------------------------------

    async def read_live(self) -> None:
        """What is new, as long as there is room; what is late is left behind."""
        lanes, source, progress = self._lanes, self._source, self._lanes.progress
        oldest = lanes.oldest_live()
        was_away = self.is_fresh and source.next - progress.live > lanes.bounds.most_queued
        self.is_fresh = False
        if was_away or (oldest is not None and lanes.is_late(oldest, clock())):
            lanes.leave_behind(source.next)
        while lanes.has_live_room() and progress.live < source.next:
            if self._live is None or self._live[0] != progress.live:
                self._live = progress.live, source.parts(self._wishes.only, progress.live, source.next)
            parts = self._live[1]
            self._live = None
            try:
                part = await asyncio.to_thread(next, parts, None)
            except PositionGone:
                self.lose()
                continue
            if part is not None and not (self._is_late(part) and lanes.leave_behind(source.next)):
                lanes.take_live(part.entries, part.stop)
                self._live = part.stop, parts

    def _is_late(self, part: Part) -> bool:
        return bool(part.entries) and self._lanes.is_late(part.entries[0].arrival, clock())

    # ---- the backlog lane ----------------------------------------------------------------------------------------

    def read_backlog(self) -> None:
        """Begin to read the next part, if there is room and nobody reads. Raises what the last one raised."""
        if self._task is not None:
            if not self._task.done():
                return
            self._task.result()
            self._task = None
        lanes = self._lanes
        wanted = lanes.wanted()
        if wanted is None:
            self._backlog = None
            return
        lanes.put_back(wanted.urgency)
        if lanes.has_backlog_room():
            self._task = asyncio.get_running_loop().create_task(self._read_part(wanted))

    def read_again(self) -> None:
        """What is queued of the backlog is to be looked at anew."""
        self._lanes.put_back(-1)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._task

    async def _read_part(self, wanted: Wanted) -> None:
        urgency, start, stop = wanted
        if self._backlog is None or self._backlog[:2] != (urgency, start):
            self._backlog = urgency, start, self._source.parts(self._wishes.filter_of(urgency), start, stop)
        parts = self._backlog[2]
        self._backlog = None
        try:
            part = await asyncio.to_thread(self._next_part, parts)
        except PositionGone:
            self.lose()
        else:
            if part is not None and part.stop > start:
                self._lanes.take_backlog(Wanted(urgency, start, part.stop), part.entries)
                self._backlog = urgency, part.stop, parts
        self._wake()

    def _next_part(self, parts: Iterator[Part]) -> Part | None:
        """In a thread. A retained message goes without its flag if a later one has taken its place."""
        part = next(parts, None)
        if part is None or not any(entry.retain for entry in part.entries):
            return part
        return Part([self._without_flag(entry) if entry.retain else entry for entry in part.entries], part.stop)

    def _without_flag(self, entry: Entry) -> Entry:
        return entry._replace(retain=not self._source.is_replaced(entry.topic, entry.position))

    # ---- what is lost, and late ----------------------------------------------------------------------------------

    def lose(self) -> None:
        """Count what retention has removed and was owed."""
        gone = self._lanes.lost(self._source.first)
        count = sum(stop - start for start, stop in gone)
        if count:
            self._counts.lost += count
            told = ", ".join(f"{start} to {stop - 1}" for start, stop in gone[-10:])
            log.error(
                "forward %r: retention has removed %d positions that were not forwarded: %s", self._name, count, told
            )

    def look_for_lost(self) -> None:
        if self._source.first > self._lanes.progress.position + 1:
            self.lose()

    async def look_how_late(self) -> None:
        position, now = self._lanes.progress.position, time.monotonic()
        if position + 1 >= self._source.next:
            self.since = None
            self._looked_at = -1, NEVER
        elif self._looked_at[0] != position and now >= self._looked_at[1] + LATE_EVERY:
            self._looked_at = position, now
            with contextlib.suppress(PositionGone):
                entry = await asyncio.to_thread(self._source.at, position + 1)
                self.since = None if entry is None else entry.arrival


def clock() -> int:
    """Microseconds since 1970, as arrivals are."""
    return time.time_ns() // 1000
