"""One run: a fresh node, devices and cloud, each in a process of its own; CPU samples meanwhile, then three logs."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from headwater.edge.copies import Copy, from_batch
from headwater.fleet.node import RunningNode
from headwater.store.reader import StoreReader
from headwater_lab.reproduce.edge.cloud import QUIET, Arrival, Arrivals, listen
from headwater_lab.reproduce.edge.devices import Begin, Ready, Sent, made, send
from headwater_lab.reproduce.edge.plan import FILTERS, SAMPLE, Scenario
from headwater_lab.reproduce.process import Process, ProcessError

START_LIMIT: Final = 30.0
ANSWER_LIMIT: Final = 60.0
LEAD: Final = 1.0
"""Seconds between everybody's being ready and the first reading, so that starting is over."""

Answer = TypeVar("Answer")
Watch = Callable[[float], None]
"""Called a few times a second with the seconds gone."""


class EdgeOutcome(NamedTuple):
    """What came of a run. `cpu`: seconds since the begin, and percent of a processor since the sample before. The three
    logs: `made` by the devices, in order; `mqtt`, as it came; `rest`, in the order of positions."""

    scenario: Scenario
    seed: int
    begin: Begin
    sent: Sent
    cpu: list[tuple[float, float]]
    made: list[tuple[str, bytes]]
    mqtt: list[Arrival]
    rest: list[Copy]


def run_trial(scenario: Scenario, seed: int, progress: Watch) -> EdgeOutcome:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headwater-edge-")))
        node = stack.enter_context(RunningNode(folder))
        cloud = stack.enter_context(Process("cloud", listen, node.port, scenario.readings, LEAD + scenario.seconds))
        devices = stack.enter_context(Process("devices", send, scenario, seed, node.port))
        for process in (cloud, devices):
            expect(process, Ready, START_LIMIT)
        begin = begin_soon()
        cloud.pipe.send("listen")
        devices.pipe.send(begin)
        cpu = _sample(node, begin.at, scenario.seconds, progress)
        sent = expect(devices, Sent, ANSWER_LIMIT + scenario.seconds)
        arrivals = expect(cloud, Arrivals, ANSWER_LIMIT + QUIET)
        rest = read_all(node.url)
    return EdgeOutcome(scenario, seed, begin, sent, cpu, made(scenario, seed, begin.wall), arrivals.all, rest)


def begin_soon() -> Begin:
    return Begin(time.monotonic() + LEAD, time.time_ns() // 1000 + round(LEAD * 1e6))


def read_all(url: str) -> list[Copy]:
    """What REST returns for the experiment's topics, in the order of positions."""
    reader = StoreReader(url)
    return sorted(copy for filter in FILTERS for batch in reader.read(0, topic=filter) for copy in from_batch(batch))


def _sample(node: RunningNode, begin: float, seconds: float, progress: Watch) -> list[tuple[float, float]]:
    """Percent of a processor in each half second from begin to end."""
    time.sleep(max(0.0, begin - time.monotonic()))
    samples: list[tuple[float, float]] = []
    before, used = time.monotonic(), node.cpu_seconds()
    for number in range(1, round(seconds / SAMPLE) + 1):
        time.sleep(max(0.0, begin + number * SAMPLE - time.monotonic()))
        node.check_alive()
        now, now_used = time.monotonic(), node.cpu_seconds()
        samples.append((now - begin, 100.0 * (now_used - used) / (now - before)))
        before, used = now, now_used
        progress(now - begin)
    return samples


def expect(process: Process, kind: type[Answer], limit: float) -> Answer:
    """Its answer, which is text if it has failed."""
    answer = process.receive(limit)
    if not isinstance(answer, kind):
        raise ProcessError(f"the {process.name} failed: {answer}")
    return answer
