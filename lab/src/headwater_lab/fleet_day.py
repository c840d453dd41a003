"""A day of a fleet of devices, with all that goes wrong on one, for those who measure and prove the pipeline.

Theory. Each device measures once in each period, at a phase of its own, a random walk. What it does wrong is drawn
before the day begins (`Fleet`): it is silent for a while, keeps its messages for a while and sends them then, has a
wrong clock, stands still, or moves to another store at noon. What happens to single messages is drawn as they are made:
spikes, payloads that are broken, and repeats of QoS 1. At noon half of the fleet changes the schema of its payloads.

The day is made in turns of a few minutes. Messages of a turn that arrive after it wait for the next ones, so each store
has its messages in the order of arrival, with positions from 1 and without gaps, as a real one gives them. The same
plan makes the same day. All of it is numpy and Arrow: more than a million messages a second.

What is true of the day is computed by `fleet_day_truth`, from the same columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy
import pyarrow as pa
from numpy.typing import NDArray

from headwater_lab.fleet_day_payloads import BROKEN, HUGE, LARGEST_NUMBER, NEWER, PLAIN, TAILS, VALUES, payloads

Whole = NDArray[numpy.int64]
MICROSECONDS: Final = 1_000_000
START: Final = 1_790_035_200 * MICROSECONDS
"""2026-09-22T00:00:00Z."""
CENTURY: Final = 4_102_444_800 * MICROSECONDS
"""2100-01-01T00:00:00Z."""
RESET: Final = 946_684_800 * MICROSECONDS
"""2000-01-01T00:00:00Z, where many clocks begin that have lost their battery."""
MOST_STORES: Final = 100
ROWS_OF_A_TURN: Final = 200_000
LONGEST_TURN: Final = 600.0
"""Seconds."""
TIME: Final = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Plan:
    """Times are in seconds since the day's start. Shares are of devices (at least one, unless 0) or of messages.
    `cut_off` says when nobody can read the last store: its messages come with their arrival, but later."""

    devices: int = 10_000
    seconds: int = 86_400
    period: int = 60
    stores: int = 2
    seed: int = 1
    silent: float = 0.02
    kept: float = 0.02
    longest_kept: float = 3600.0
    wrong_clocks: float = 0.004
    still: float = 0.01
    moving: float = 0.01
    spikes: float = 0.0005
    broken: float = 0.001
    huge: float = 0.00001
    repeated: float = 0.002
    cut_off: tuple[float, float] = (36_000.0, 39_600.0)

    def __post_init__(self) -> None:
        for name, least in (("devices", 20), ("period", 1), ("seconds", self.period), ("stores", 2)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; it has to be at least {least}")
        if self.stores > MOST_STORES:
            raise ValueError(f"stores is {self.stores}; there can be {MOST_STORES}")

    @property
    def noon(self) -> int:
        return START + self.seconds * MICROSECONDS // 2

    @property
    def periods_of_a_turn(self) -> int:
        return max(1, min(ROWS_OF_A_TURN // self.devices, int(LONGEST_TURN // self.period)))


class Messages(NamedTuple):
    """Columns of equal length. `measured` is the time by the device's clock, `number` an index of VALUES, `tail` says
    which end the payload has; times are in microseconds since 1970. Who has no position yet has 0."""

    device: Whole
    measured: Whole
    arrival: Whole
    number: Whole
    kind: Whole
    tail: Whole
    store: Whole
    position: Whole

    def take(self, which: Any) -> Messages:
        return Messages(*(column[which] for column in self))

    def with_others(self, others: Messages) -> Messages:
        return Messages(*(numpy.concatenate(pair) for pair in zip(self, others, strict=True)))

    @property
    def is_broken(self) -> NDArray[numpy.bool_]:
        return self.kind >= BROKEN


class Turn(NamedTuple):
    """All messages that arrived before `end` and after the turn before, in the order of arrival."""

    messages: Messages
    end: int


NONE: Final = Messages(*(numpy.zeros(0, numpy.int64) for _ in Messages._fields))


class Fleet:
    """What each device is like, for the whole day."""

    def __init__(self, plan: Plan, chance: numpy.random.Generator) -> None:
        self.plan = plan
        self._chance = chance
        count = plan.devices
        self.device = numpy.arange(count)
        self.phase = chance.integers(0, plan.period * 1000 - 5, count)
        """Milliseconds."""
        self.cents = chance.integers(1500, 2500, count)
        self.silent = self._whiles(self._some(plan.silent), 3600.0)
        self.kept = self._whiles(self._some(plan.kept), plan.longest_kept)
        self.still = numpy.isin(self.device, self._some(plan.still))
        self.moving = numpy.isin(self.device, self._some(plan.moving))
        self.clock = numpy.zeros(count, numpy.int64)
        wrong = self._some(plan.wrong_clocks, least=4)
        offsets = (3 * 86_400 * MICROSECONDS, -5 * 3600 * MICROSECONDS, CENTURY - START, RESET - START)
        self.clock[wrong] = numpy.resize(offsets, len(wrong))

    def _some(self, share: float, least: int = 1) -> Whole:
        count = max(least, round(share * self.plan.devices)) if share else 0
        return self._chance.permutation(self.plan.devices)[:count]

    def _whiles(self, devices: Whole, longest: float) -> tuple[Whole, Whole]:
        """From when to when something holds for each device; never for those that are not named."""
        begin, end = numpy.zeros((2, self.plan.devices), numpy.int64)
        span = self.plan.seconds * MICROSECONDS
        begin[devices] = START + self._chance.integers(0, span, len(devices))
        end[devices] = begin[devices] + self._chance.integers(
            60 * MICROSECONDS, int(longest * MICROSECONDS), len(devices)
        )
        return begin, end

    def measured(self, first: int, periods: int) -> Messages:
        """What the devices make in some periods, without positions."""
        chance, shape = self._chance, (periods, self.plan.devices)
        begin = START // 1000 + (first + numpy.arange(periods)[:, None]) * (self.plan.period * 1000)
        true = (begin + self.phase + chance.integers(0, 4, shape)) * 1000
        arrival = true + 5000 + numpy.minimum(chance.exponential(80_000.0, shape), 2e7).astype(numpy.int64)
        kept = (true >= self.kept[0]) & (true < self.kept[1])
        arrival = numpy.where(kept, self.kept[1] + (arrival - true), arrival)
        home = self.device % self.plan.stores
        kind = self._kinds(shape, true)
        made = (
            numpy.broadcast_to(self.device, shape),
            true + self.clock,
            arrival,
            self._numbers(shape, kind),
            kind,
            self._tails(first, periods, kind),
            numpy.where(self.moving & (true >= self.plan.noon), (home + 1) % self.plan.stores, home),
            numpy.zeros(shape, numpy.int64),
        )
        heard = ~((true >= self.silent[0]) & (true < self.silent[1]))
        return self._with_repeats(Messages(*(column[heard] for column in made)))

    def _kinds(self, shape: tuple[int, int], true: Whole) -> Whole:
        chance = self._chance
        kind = numpy.where((self.device % 2 == 1) & (true >= self.plan.noon), NEWER, PLAIN)
        kind[chance.random(shape) < self.plan.huge] = HUGE
        broken = chance.random(shape) < self.plan.broken
        kind[broken] = chance.integers(BROKEN, BROKEN + 6, int(broken.sum()))
        return kind

    def _numbers(self, shape: tuple[int, int], kind: Whole) -> Whole:
        steps = numpy.round(self._chance.normal(0.0, 10.0, shape)).astype(numpy.int64)
        walk = self.cents + numpy.cumsum(numpy.where(self.still, 0, steps), axis=0)
        self.cents = walk[-1]
        spike = (self._chance.random(shape) < self.plan.spikes) & ~self.still
        number = numpy.clip(walk, 0, LARGEST_NUMBER // 2) + numpy.where(spike, LARGEST_NUMBER // 2, 0)
        return numpy.where(kind >= HUGE, LARGEST_NUMBER + 1 + kind - HUGE, number)

    def _tails(self, first: int, periods: int, kind: Whole) -> Whole:
        """Radio strength or battery: of no consequence, but not the same in each message."""
        varied = self.device * 7 + (first + numpy.arange(periods))[:, None]
        return numpy.where(kind == NEWER, TAILS + varied % TAILS, varied % TAILS)

    def _with_repeats(self, made: Messages) -> Messages:
        which = numpy.flatnonzero(self._chance.random(len(made.device)) < self.plan.repeated)
        again = made.take(which)
        later = self._chance.integers(MICROSECONDS, 20 * MICROSECONDS, len(which))
        return made.with_others(again._replace(arrival=again.arrival + later))


def turns(plan: Plan) -> Iterator[Turn]:
    """The day as columns, in the order of arrival."""
    fleet = Fleet(plan, numpy.random.default_rng(plan.seed))
    waiting = NONE
    next_position = numpy.ones(plan.stores, numpy.int64)
    periods = plan.seconds // plan.period
    for first in range(0, periods, plan.periods_of_a_turn):
        last = min(first + plan.periods_of_a_turn, periods)
        waiting = waiting.with_others(fleet.measured(first, last - first))
        end = START + last * plan.period * MICROSECONDS
        if last == periods:
            end = max(end, int(waiting.arrival.max(initial=0)) + 1)
        due = waiting.arrival < end
        arrived = waiting.take(due)
        waiting = waiting.take(~due)
        arrived = arrived.take(numpy.argsort(arrived.arrival, kind="stable"))
        for store in range(plan.stores):
            here = numpy.flatnonzero(arrived.store == store)
            arrived.position[here] = next_position[store] + numpy.arange(len(here))
            next_position[store] += len(here)
        yield Turn(arrived, end)


def batches(plan: Plan) -> Iterator[pa.RecordBatch]:
    """The day as rows of bronze, each batch of one store, in the order in which a reader of all stores gets them."""
    names = Names(plan)
    held: list[pa.RecordBatch] = []
    begin, end = (START + int(each * MICROSECONDS) for each in plan.cut_off)
    for turn in turns(plan):
        if held and turn.end > end:
            yield from held
            held = []
        for store in range(plan.stores):
            here = turn.messages.take(turn.messages.store == store)
            if not len(here.device):
                continue
            cut = store == plan.stores - 1 and begin < turn.end <= end
            if cut:
                held.append(rows(here, names))
            else:
                yield rows(here, names)
    yield from held


class Names:
    """Of devices, as Arrow."""

    def __init__(self, plan: Plan) -> None:
        self.topics = pa.array([topic_of(device) for device in range(plan.devices)])
        self.publishers = pa.array([publisher_of(device) for device in range(plan.devices)])
        self.stores = pa.array([store_of(store) for store in range(plan.stores)])


def topic_of(device: int) -> str:
    return f"fleet/site-{device % 20:02d}/sensor-{device:05d}/temperature"


def publisher_of(device: int) -> str:
    return f"gateway-{device % 100:02d}"


def store_of(store: int) -> str:
    return f"store-{store:02d}"


def rows(messages: Messages, names: Names) -> pa.RecordBatch:
    """As the store would give them: what is no JSON has its arrival for a time, and no value."""
    count = len(messages.device)
    broken = messages.is_broken
    device = pa.array(messages.device)
    time = numpy.where(broken, messages.arrival, messages.measured)
    columns = {
        "store": names.stores.take(pa.array(messages.store)),
        "position": pa.array(messages.position),
        "topic": names.topics.take(device),
        "payload": payloads(messages.device, messages.measured // 1000, messages.number, messages.kind, messages.tail),
        "qos": pa.array(numpy.ones(count, numpy.int8)),
        "retain": pa.array(numpy.zeros(count, numpy.bool_)),
        "publisher": names.publishers.take(device),
        "time": pa.array(time).cast(TIME),
        "arrival": pa.array(messages.arrival).cast(TIME),
        "value": pa.array(VALUES[messages.number], mask=broken),
        "properties": pa.nulls(count, pa.string()),
        "day": pa.array((messages.arrival // (86_400 * MICROSECONDS)).astype(numpy.int32)).cast(pa.date32()),
    }
    return pa.RecordBatch.from_pydict(columns)
