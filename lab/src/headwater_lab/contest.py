"""The same traffic for several brokers in turns, and what a message cost each of them.

Theory. A case is traffic of the load generator. Every contender gets brokers of its own for the case: one, or as many
as the case's topology has. In every round each contender has one turn, and the rounds differ in who begins, so that
whatever else the machine does meets all of them. A figure is the median over the rounds; a ratio is one of medians,
and its spread is half the distance between the least and the greatest ratio of single rounds. Absolute figures
depend on the machine and its mood, ratios of one contest much less.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from headwater.fleet.process import BrokerError, RunningBroker
from headwater_lab.contenders import Command, running
from headwater_lab.load import VIOLATIONS, LoadError, LoadGenerator, Result

MOSQUITTO: Final = "mosquitto"

Launcher = Callable[[int, Path], AbstractContextManager[list[RunningBroker]]]
"""Starts so many brokers, which may know each other; files they need go to the folder."""


def unconnected(command: Command) -> Launcher:
    """Brokers of one command line that do not know each other."""

    @contextlib.contextmanager
    def launch(count: int, folder: Path) -> Iterator[list[RunningBroker]]:
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(running(command, folder)) for _ in range(count)]

    return launch


@dataclass(frozen=True)
class Case:
    """One piece of traffic. `options` are the load generator's; `goal` is the most that a ratio of costs may be."""

    key: str
    what: str
    options: tuple[str, ...]
    mqtt: int = 4
    brokers: int = 1
    goal: float | None = None

    @property
    def version(self) -> str:
        return "5.0" if self.mqtt == 5 else "3.1.1"


@dataclass
class ContestOutcome:
    """What the rounds of a case measured, by contender; `error` says why there is nothing."""

    case: Case
    samples: dict[str, list[Result]] = field(default_factory=dict)
    error: str = ""

    def median(self, contender: str, name: str = "us") -> float:
        """The median over the rounds of one measured quantity; `us` is CPU time per delivered message."""
        return statistics.median(sample[name] for sample in self.samples[contender])

    def ratio(self, above: str, below: str, name: str = "us") -> float:
        return self.median(above, name) / self.median(below, name)

    def spread(self, above: str, below: str, name: str = "us") -> float:
        """Half the distance between the least and the greatest ratio of single rounds."""
        each = self.ratios(above, below, name)
        return (max(each) - min(each)) / 2

    def ratios(self, above: str, below: str, name: str = "us") -> list[float]:
        """Of single rounds."""
        pairs = zip(self.samples[above], self.samples[below], strict=True)
        return [upper[name] / lower[name] for upper, lower in pairs]

    def violations(self, contender: str) -> dict[str, int]:
        """Messages lost, repeated, reordered, misrouted or changed in the worst round; empty when all is well."""
        samples = self.samples.get(contender, [])
        worst = {name: max((s[name] for s in samples), key=abs, default=0.0) for name in VIOLATIONS}
        return {name: int(count) for name, count in worst.items() if count}

    @property
    def failed(self) -> bool:
        """Whether one of ours went wrong, as opposed to slow."""
        return bool(self.error) or any(self.violations(name) for name in self.samples if name != MOSQUITTO)

    def as_json(self) -> dict[str, Any]:
        """All samples, with the medians that the tables show."""
        shown = ("us", "rate", "mean", "p50", "p99", "peak_bytes")
        medians = {name: {each: self.median(name, each) for each in shown} for name in self.samples}
        violations = {name: self.violations(name) for name in self.samples}
        return {**asdict(self), "median": medians, "violations": violations}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ContestOutcome:
        case = dict(data["case"])
        return cls(Case(**{**case, "options": tuple(case["options"])}), data["samples"], data["error"])


def interleave(names: Sequence[str], rounds: int, sample: Callable[[str], Result]) -> dict[str, list[Result]]:
    """Every contender once a round; rounds differ in who begins. LoadError says whose sample failed."""
    samples: dict[str, list[Result]] = {name: [] for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in [*names[first:], *names[:first]]:
            try:
                samples[name].append(sample(name))
            except (LoadError, BrokerError) as problem:
                raise LoadError(f"{name}: {problem}") from problem
    return samples


@dataclass(frozen=True)
class Contest:
    """How to run cases: contenders by name, the load generator, a folder for files, how often and how long."""

    contenders: Mapping[str, Launcher]
    load: LoadGenerator
    folder: Path
    rounds: int = 5
    seconds: float = 2.0
    warmup: float = 0.5

    def run(self, cases: Sequence[Case]) -> Iterator[ContestOutcome]:
        """One outcome per case, as soon as it is there. A case that fails does not stop the others."""
        for case in cases:
            try:
                with contextlib.ExitStack() as stack:
                    started = {
                        name: stack.enter_context(launch(case.brokers, self.folder))
                        for name, launch in self.contenders.items()
                    }
                    outcome = ContestOutcome(case, self._rounds(case, started))
            except (LoadError, BrokerError) as problem:
                outcome = ContestOutcome(case, error=str(problem))
            yield outcome

    def _rounds(self, case: Case, started: Mapping[str, list[RunningBroker]]) -> dict[str, list[Result]]:
        return interleave(list(started), self.rounds, lambda name: self._sample(case, started[name]))

    def _sample(self, case: Case, brokers: list[RunningBroker]) -> Result:
        pids = ",".join(str(pid) for broker in brokers for pid in broker.pids())
        options = [*case.options, "--mqtt", str(case.mqtt), "--broker-pids", pids]
        options += ["--seconds", str(self.seconds), "--warmup", str(self.warmup)]
        ports = [broker.port for broker in brokers]
        try:
            result = self.load.run("traffic", ports, options, limit=self.seconds + self.warmup + 60)
        except LoadError:
            for broker in brokers:
                broker.check_alive()  # if it has died, that is what should be reported
            raise
        return result | {"peak_bytes": float(sum(broker.peak_bytes() for broker in brokers))}
