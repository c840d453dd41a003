"""What is true of a fleet's day, from the columns that it is made of: neither Spark nor the pipeline has a hand in it.

Theory. Who makes the messages knows which of them are broken, which device measured what and when, and when it arrived;
no payload has to be read for that. Readings wait until their windows are final, which they are when a turn ends behind
the window's end + lateness, and then are sorted by (window, device, time, store, position); a window is a run of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy
import pyarrow as pa
from numpy.typing import NDArray

from headwater.pipeline.derive.settings import Settings
from headwater_lab.fleet_day import MICROSECONDS, NONE, TIME, Messages, Names, Plan, Whole, turns
from headwater_lab.fleet_day_payloads import VALUES

MINUTE: Final = 60 * MICROSECONDS
FLAGS: Final = numpy.array(
    ["", "gap", "flatline", "gap,flatline", "jump", "gap,jump", "flatline,jump", "gap,flatline,jump"]
)
"""By 1 for a gap + 2 for a flatline + 4 for a jump."""


@dataclass(frozen=True)
class Truth:
    """Tables, with these columns:

    - messages: store, minute, messages; quarantined: store, messages
    - gold: window_start, topic, count, mean, min, max, first, last, gaps, longest_gap, flags
    - late: window_start, topic, minute, behind, ahead
    - latest: topic, time, arrival, value, store, position
    """

    messages: pa.Table
    quarantined: pa.Table
    gold: pa.Table
    late: pa.Table
    latest: pa.Table


def truth(plan: Plan, settings: Settings) -> Truth:
    """The whole day, if windows are made with these settings. Means are rounded in another order than by others."""
    return _Account(plan, settings).of_day()


class _Account:
    def __init__(self, plan: Plan, settings: Settings) -> None:
        self._plan = plan
        self._settings = settings
        self._names = Names(plan)
        self._minutes: list[Whole] = []
        self._quarantined = numpy.zeros(plan.stores, numpy.int64)
        self._waiting = NONE
        self._windows: list[pa.Table] = []
        self._late: list[Whole] = []
        self._last = NONE

    def of_day(self) -> Truth:
        end = 0
        for turn in turns(self._plan):
            self._take(turn.messages)
            end = turn.end
            self._close(end)
        self._close(end + _whole(self._settings.window + self._settings.lateness + self._settings.clock_ahead))
        return Truth(
            self._messages(),
            pa.table({"store": self._names.stores, "messages": self._quarantined}),
            pa.concat_tables(self._windows),
            self._late_table(),
            self._latest(),
        )

    def _take(self, messages: Messages) -> None:
        minute = messages.arrival // MINUTE * MINUTE
        self._minutes.append(_counted(messages.store, minute))
        self._quarantined += numpy.bincount(messages.store[messages.is_broken], minlength=self._plan.stores)
        readings = messages.take(~messages.is_broken)
        begin = self._begin(readings)
        apart = readings.measured - readings.arrival
        ahead = apart > _whole(self._settings.clock_ahead)
        behind = -apart > _whole(self._settings.clock_behind)
        behind |= readings.arrival >= begin + _whole(self._settings.window + self._settings.lateness)
        not_counted = ahead | behind
        arrived = (readings.arrival // MINUTE * MINUTE)[not_counted]
        self._late.append(_counted(begin[not_counted], readings.device[not_counted], arrived, ahead[not_counted]))
        self._waiting = self._waiting.with_others(readings.take(~not_counted))
        self._last = _last_of(self._last.with_others(readings), _whole(self._settings.clock_ahead))

    def _begin(self, readings: Messages) -> Whole:
        window = self._settings.window * MICROSECONDS
        return readings.measured // window * window

    def _close(self, clock: int) -> None:
        """All windows that are final when every store is at this time."""
        final = self._begin(self._waiting) + _whole(self._settings.window + self._settings.lateness) <= clock
        if final.any():
            self._windows.append(windows(self._waiting.take(final), self._settings, self._names))
            self._waiting = self._waiting.take(~final)

    def _messages(self) -> pa.Table:
        store, minute, count = _added(self._minutes)
        return pa.table(
            {"store": self._names.stores.take(pa.array(store)), "minute": _times(minute), "messages": count}
        )

    def _late_table(self) -> pa.Table:
        begin, device, minute, ahead, count = _added(self._late)
        both = [_counted_with(count * side, begin, device, minute) for side in (1 - ahead, ahead)]
        begin, device, minute, behind = both[0]
        topics = self._names.topics.take(pa.array(device))
        times = {"window_start": _times(begin), "topic": topics, "minute": _times(minute)}
        return pa.table({**times, "behind": behind, "ahead": both[1][-1]})

    def _latest(self) -> pa.Table:
        last = self._last
        return pa.table(
            {
                "topic": self._names.topics.take(pa.array(last.device)),
                "time": _times(last.measured),
                "arrival": _times(last.arrival),
                "value": VALUES[last.number],
                "store": self._names.stores.take(pa.array(last.store)),
                "position": last.position,
            }
        )


def windows(readings: Messages, settings: Settings, names: Names) -> pa.Table:
    """Gold of these readings, all of which count."""
    window = settings.window * MICROSECONDS
    begin = readings.measured // window * window
    order = numpy.lexsort((readings.position, readings.store, readings.measured, readings.device, begin))
    readings, begin = readings.take(order), begin[order]
    value, time = VALUES[readings.number], readings.measured
    is_first = numpy.ones(len(begin), numpy.bool_)
    is_first[1:] = (begin[1:] != begin[:-1]) | (readings.device[1:] != readings.device[:-1])
    first = numpy.flatnonzero(is_first)
    count = numpy.diff(first, append=len(begin))
    least, most = numpy.minimum.reduceat(value, first), numpy.maximum.reduceat(value, first)
    gaps, longest = _silences(time, begin, first, count, settings)
    flat = (count >= settings.flatline) & (least == most)
    jump = _jumps(value, first, count, settings)
    return pa.table(
        {
            "window_start": _times(begin[first]),
            "topic": names.topics.take(pa.array(readings.device[first])),
            "count": count,
            "mean": numpy.add.reduceat(value, first) / count,
            "min": least,
            "max": most,
            "first": value[first],
            "last": value[first + count - 1],
            "gaps": gaps,
            "longest_gap": longest / MICROSECONDS,
            "flags": FLAGS[(gaps > 0) + 2 * flat + 4 * jump],
        }
    )


def _silences(time: Whole, begin: Whole, first: Whole, count: Whole, settings: Settings) -> tuple[Whole, Whole]:
    """How many of each window are too long, and the longest."""
    last = first + count - 1
    before = time[first] - begin[first]
    after = numpy.diff(time, append=0)
    after[last] = begin[last] + settings.window * MICROSECONDS - time[last]
    allowed = _whole(settings.gap)
    gaps = numpy.add.reduceat((after > allowed).astype(numpy.int64), first) + (before > allowed)
    return gaps, numpy.maximum(numpy.maximum.reduceat(after, first), before)


def _jumps(value: NDArray[numpy.float64], first: Whole, count: Whole, settings: Settings) -> NDArray[numpy.bool_]:
    """Whether the largest step of each window is one."""
    of_window = numpy.repeat(numpy.arange(len(first)), count)
    inside = of_window[1:] == of_window[:-1]
    step, of_window = numpy.abs(numpy.diff(value))[inside], of_window[1:][inside]
    step = step[numpy.lexsort((step, of_window))]
    jump = numpy.zeros(len(first), numpy.bool_)
    has = count > 1
    begin = (numpy.cumsum(count - 1) - (count - 1))[has]
    largest = step[begin + count[has] - 2]
    typical = step[begin + (count[has] - 2) // 2]
    if settings.jump_factor is not None:
        usable = (count[has] >= settings.jump_readings) & (typical > 0)
        jump[has] |= usable & (largest > settings.jump_factor * typical)
    if settings.jump_absolute is not None:
        jump[has] |= largest > settings.jump_absolute
    return jump


def _last_of(readings: Messages, allowed: int) -> Messages:
    """The last of each device; one whose clock is further ahead than allowed counts when it arrived."""
    ahead = readings.measured - readings.arrival > allowed
    moment = numpy.where(ahead, readings.arrival, readings.measured)
    sorted = readings.take(numpy.lexsort((readings.position, readings.store, moment, readings.device)))
    return sorted.take(numpy.diff(sorted.device, append=-1) != 0)


def _whole(seconds: float) -> int:
    return round(seconds * MICROSECONDS)


def _times(column: Whole) -> pa.Array:
    return pa.array(column).cast(TIME)


def _counted(*columns: NDArray[numpy.generic]) -> Whole:
    """The different rows, as columns, and how often each is there as the last one."""
    return _counted_with(numpy.ones(len(columns[0]), numpy.int64), *columns)


def _counted_with(weight: Whole, *columns: NDArray[numpy.generic]) -> Whole:
    found, which = numpy.unique(numpy.stack(columns).astype(numpy.int64), axis=1, return_inverse=True)
    count = numpy.bincount(which.ravel(), weight, minlength=found.shape[1]).astype(numpy.int64)
    return numpy.vstack([found, count])


def _added(parts: list[Whole]) -> Whole:
    rows = numpy.concatenate(parts, axis=1)
    return _counted_with(rows[-1], *rows[:-1])
