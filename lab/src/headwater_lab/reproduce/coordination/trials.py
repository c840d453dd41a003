"""Which trials are run, in order.

Each set-up has brokers of its own, started afresh when a trial has left messages under way. A trial whose generator was
the bottleneck says nothing about brokers: it is run once more, while there is time, and the second one counts.

In a whole run each placement has a trial at the fixed interval; then the search for the limit, from the longest
interval on until two have not passed; then a long trial at the limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from headwater_lab.reproduce.coordination.detector import signs
from headwater_lab.reproduce.coordination.generator import Generator, Trial
from headwater_lab.reproduce.coordination.plan import INTERVALS, PLACEMENTS, SINGLE, Course, Setup, Sizes
from headwater_lab.reproduce.coordination.results import Step, limit, summarised
from headwater_lab.reproduce.coordination.systems import System, running

Tell = Callable[[str, Course], None]
"""Of a trial that begins: words, and what it is."""

MOST_FAILED = 2
"""Intervals that may fail before the search ends."""


class Trials:
    def __init__(self, generator: Generator, folder: Path, sizes: Sizes, tell: Tell) -> None:
        self._generator = generator
        self._folder = folder
        self._sizes = sizes
        self._tell = tell
        self._began = time.monotonic()

    def run(self, setups: Sequence[Setup]) -> Iterator[Trial]:
        """LoadError, BrokerError: it could not be measured."""
        for setup in setups:
            with _Fresh(setup, self._folder) as fresh:
                for placement in PLACEMENTS:
                    yield from self._placed(fresh, placement)
        with _Fresh(SINGLE, self._folder) as fresh:
            yield self._trial(fresh, PLACEMENTS[0], "slow", self._sizes.slow)

    def _placed(self, fresh: _Fresh, placement: str) -> Iterator[Trial]:
        yield self._trial(fresh, placement, "fixed", self._sizes.fixed)
        if self._sizes.searched is None or self._sizes.limit is None:
            return
        steps: list[Step] = []
        for interval in INTERVALS:
            trial = self._trial(fresh, placement, "searched", replace(self._sizes.searched, interval_ms=interval))
            steps.append(summarised(trial).step)
            yield trial
            if sum(not step.passes for step in steps) == MOST_FAILED:
                break
        smallest = limit(steps)
        if smallest is not None:
            yield self._trial(fresh, placement, "limit", replace(self._sizes.limit, interval_ms=smallest))

    def _trial(self, fresh: _Fresh, placement: str, purpose: str, course: Course) -> Trial:
        trial = self._once(fresh, placement, purpose, course)
        if purpose != "slow" and signs(trial.samples).causes and time.monotonic() - self._began < self._sizes.patience:
            trial = self._once(fresh, placement, purpose, course)
        return trial

    def _once(self, fresh: _Fresh, placement: str, purpose: str, course: Course) -> Trial:
        self._tell(f"{fresh.setup.name}, {placement}, {purpose}, {course.interval_ms:g} ms", course)
        trial = self._generator.run(fresh.setup, placement, purpose, fresh.system(), course)
        if trial.counted.received < trial.counted.expected:
            fresh.drop()
        return trial


class _Fresh:
    """A system that is started when it is needed."""

    def __init__(self, setup: Setup, folder: Path) -> None:
        self.setup = setup
        self._folder = folder
        self._stack = ExitStack()
        self._system: System | None = None

    def __enter__(self) -> _Fresh:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    def system(self) -> System:
        if self._system is None:
            self._system = self._stack.enter_context(running(self.setup, self._folder))
        return self._system

    def drop(self) -> None:
        self._system = None
        self._stack.close()
