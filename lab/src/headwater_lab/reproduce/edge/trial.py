"""One load at running nodes: devices and cloud, each a process of its own; CPU samples meanwhile, then three logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple, TypeVar

from headwater_lab.reproduce.edge.cloud import QUIET, Arrival, Arrivals, listen
from headwater_lab.reproduce.edge.devices import Begin, Ready, Sent, made, send
from headwater_lab.reproduce.edge.ground import Ground, Stored
from headwater_lab.reproduce.edge.plan import SAMPLE, Load, Scenario
from headwater_lab.reproduce.process import Process, ProcessError

START_LIMIT: Final = 30.0
ANSWER_LIMIT: Final = 60.0
LEAD: Final = 1.0
"""Seconds between everybody's being ready and the first reading, so that starting is over."""

Answer = TypeVar("Answer")
Watch = Callable[[float], None]
"""Called a few times a second with the seconds gone."""
Samples = list[tuple[float, float]]
"""Seconds since the begin, and percent of a processor since the sample before."""


class EdgeOutcome(NamedTuple):
    """What came of a run. `cpu` and `used`, by the names of tiers: samples of the processor, and seconds of it from the
    begin until all has arrived. The three logs: `made` by the devices, in order; `mqtt`, as it came; `rest`, of each
    store in the order of positions."""

    scenario: Scenario
    load: Load
    seed: int
    begin: Begin
    sent: Sent
    cpu: dict[str, Samples]
    used: dict[str, float]
    made: list[tuple[str, bytes]]
    mqtt: list[Arrival]
    rest: list[Stored]


def run_load(grounds: Sequence[Ground], load: Load, seed: int, progress: Watch) -> list[EdgeOutcome]:
    """At all of these at the same time; each has a seed of its own."""
    seeds = range(seed, seed + len(grounds))
    begins = [ground.nexts() for ground in grounds]
    with ExitStack() as stack:
        clouds = [
            stack.enter_context(Process("cloud", listen, ground.sources, load.readings, LEAD + load.seconds))
            for ground in grounds
        ]
        devices = [
            stack.enter_context(Process("devices", send, ground.scenario, load, each, ground.ports))
            for ground, each in zip(grounds, seeds, strict=True)
        ]
        for process in (*clouds, *devices):
            expect(process, Ready, START_LIMIT)
        begin = begin_soon()
        for process in clouds:
            process.pipe.send("listen")
        for process in devices:
            process.pipe.send(begin)
        meters = [Meter(ground) for ground in grounds]
        sample(meters, begin.at, load.seconds, progress)
        sent = [expect(process, Sent, ANSWER_LIMIT + load.seconds) for process in devices]
        arrivals = [expect(process, Arrivals, ANSWER_LIMIT + QUIET) for process in clouds]
        used = [meter.used() for meter in meters]
        stored = [ground.stored(each) for ground, each in zip(grounds, begins, strict=True)]
    return [
        EdgeOutcome(
            *(ground.scenario, load, seeds[at], begin, sent[at], meters[at].samples, used[at]),
            *(made(load, seeds[at], begin.wall), arrivals[at].all, stored[at]),
        )
        for at, ground in enumerate(grounds)
    ]


def begin_soon() -> Begin:
    return Begin(time.monotonic() + LEAD, time.time_ns() // 1000 + round(LEAD * 1e6))


class Meter:
    """What the nodes of a ground take of the processor since `start`."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self.samples: dict[str, Samples] = {name: [] for name in ground.nodes}

    def start(self) -> None:
        self._at = time.monotonic()
        self._first = self._before = self._ground.cpu_seconds()

    def look(self, begin: float) -> None:
        self._ground.check_alive()
        now, used = time.monotonic(), self._ground.cpu_seconds()
        for name, samples in self.samples.items():
            samples.append((now - begin, 100.0 * (used[name] - self._before[name]) / (now - self._at)))
        self._at, self._before = now, used

    def used(self) -> dict[str, float]:
        return {name: seconds - self._first[name] for name, seconds in self._ground.cpu_seconds().items()}


def sample(meters: Sequence[Meter], begin: float, seconds: float, progress: Watch) -> None:
    """Percent of a processor in each half second from begin to end."""
    time.sleep(max(0.0, begin - time.monotonic()))
    for meter in meters:
        meter.start()
    for number in range(1, round(seconds / SAMPLE) + 1):
        time.sleep(max(0.0, begin + number * SAMPLE - time.monotonic()))
        for meter in meters:
            meter.look(begin)
        progress(time.monotonic() - begin)


def expect(process: Process, kind: type[Answer], limit: float) -> Answer:
    """Its answer, which is text if it has failed."""
    answer = process.receive(limit)
    if not isinstance(answer, kind):
        raise ProcessError(f"the {process.name} failed: {answer}")
    return answer
