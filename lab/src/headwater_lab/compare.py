"""Runs a case against both brokers in turn and compares what it cost them.

Every sample is one cost, less is better: CPU time per message or connection, memory per thing held, seconds until
listening. The brokers take turns within each round, so that whatever else the machine does meets both. The ratio is
Mosquitto's median over ours: above 1, ours is ahead. The spread is half the distance between the least and the
greatest ratio of single rounds.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from headwater.fleet.process import BrokerError, RunningBroker
from headwater_lab.contenders import Command, mosquitto_command, running
from headwater_lab.load import VIOLATIONS, LoadError, LoadGenerator, Result
from headwater_lab.scenarios import Case

OURS: Final = "ours"
MOSQUITTO: Final = "mosquitto"
WARMED_UP_BY: Final = 50  # connections made and closed before memory is measured, so that lazy imports are not counted

Samples = dict[str, list[Result]]


@dataclass
class Row:
    """The comparison of one case. `samples` holds each broker's raw results; `error` says why there are none."""

    case: dict[str, Any]
    unit: str
    samples: Samples = field(default_factory=dict)
    error: str = ""

    @property
    def key(self) -> str:
        version = "/mqtt5" if self.case["mqtt"] == 5 else ""
        return f"{self.case['scenario']}/{self.case['name']}{version}"

    def median(self, broker: str, name: str) -> float:
        """The median over the rounds of one measured quantity, 0 where it was not measured."""
        return statistics.median(sample.get(name, 0.0) for sample in self.samples[broker])

    @property
    def ratio(self) -> float:
        return self.median(MOSQUITTO, "cost") / self.median(OURS, "cost")

    @property
    def spread(self) -> float:
        pairs = zip(self.samples[MOSQUITTO], self.samples[OURS], strict=True)
        each = [theirs["cost"] / ours["cost"] for theirs, ours in pairs]
        return (max(each) - min(each)) / 2

    def violations(self, broker: str = OURS) -> dict[str, int]:
        """Messages lost, reordered, repeated, misrouted or changed in any round; empty when all is well."""
        samples = self.samples.get(broker, [])
        worst = {name: max((s.get(name, 0.0) for s in samples), key=abs, default=0.0) for name in VIOLATIONS}
        return {name: int(count) for name, count in worst.items() if count}

    @property
    def failed(self) -> bool:
        """Whether something went wrong, as opposed to slow."""
        return bool(self.error or self.violations())

    def as_json(self) -> dict[str, Any]:
        """All of it, with the figures that follow from the samples."""
        data: dict[str, Any] = {"key": self.key, **asdict(self)}
        if not self.error:
            data |= {"ratio": self.ratio, "spread": self.spread, "violations": self.violations()}
            data |= {broker: self.median(broker, "cost") for broker in (OURS, MOSQUITTO)}
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Row:
        return cls(data["case"], data["unit"], data["samples"], data["error"])


@dataclass(frozen=True)
class Comparison:
    """How to run cases: the two brokers, the load generator, a folder for files, and how long."""

    ours: Command
    load: LoadGenerator
    folder: Path
    rounds: int | None = None  # as each case says
    seconds: float = 2.0
    warmup: float = 0.5
    mosquitto: Command = mosquitto_command

    def run(self, cases: Sequence[Case]) -> Iterator[Row]:
        """One row per case, as soon as it is there. A case that fails does not stop the others."""
        for _, group in itertools.groupby(cases, key=lambda case: (case.scenario, case.mqtt)):
            yield from self._run_scenario(list(group))

    def _run_scenario(self, cases: list[Case]) -> Iterator[Row]:
        """The cases of a scenario that send traffic share two brokers, started for them."""
        with contextlib.ExitStack() as stack:
            pair: dict[str, RunningBroker] = {}
            for case in cases:
                row = Row(asdict(case), case.unit)
                try:
                    if case.measure in ("traffic", "storm"):
                        if not pair:
                            pair = {n: stack.enter_context(running(c, self.folder)) for n, c in self._commands.items()}
                        row.samples = self._interleave(case, functools.partial(self._load_running, case, pair))
                    else:
                        row.samples = self._interleave(case, functools.partial(self._measure_fresh, case))
                except (LoadError, BrokerError) as problem:
                    row = Row(asdict(case), case.unit, error=str(problem))
                    stack.close()
                    pair = {}
                yield row

    @property
    def _commands(self) -> dict[str, Command]:
        return {MOSQUITTO: self.mosquitto, OURS: self.ours}

    def _interleave(self, case: Case, sample: Callable[[str], Result]) -> Samples:
        samples: Samples = {OURS: [], MOSQUITTO: []}
        for turn in range(self.rounds or case.rounds):
            # The second of a round meets a machine that the first has warmed up: take turns at that, too.
            for broker in (MOSQUITTO, OURS) if turn % 2 == 0 else (OURS, MOSQUITTO):
                try:
                    samples[broker].append(sample(broker))
                except (LoadError, BrokerError) as problem:
                    raise LoadError(f"{broker}: {problem}") from problem
        return samples

    def _load_running(self, case: Case, pair: dict[str, RunningBroker], name: str) -> Result:
        broker = pair[name]
        pids = ",".join(map(str, broker.pids()))
        options = [*case.options, "--mqtt", str(case.mqtt), "--broker-pids", pids]
        options += ["--seconds", str(self.seconds), "--warmup", str(self.warmup)]
        limit = self.seconds + self.warmup + 60
        try:
            result = self.load.run("storm" if case.measure == "storm" else "traffic", broker.port, options, limit=limit)
        except LoadError:
            broker.check_alive()  # if it has died, that is what should be reported
            raise
        return result | {"cost": result["us"]}

    def _measure_fresh(self, case: Case, name: str) -> Result:
        with running(self._commands[name], self.folder) as broker:
            if case.measure == "start":
                return {"cost": broker.seconds_to_listen}
            return self._measure_memory(case, broker)

    def _measure_memory(self, case: Case, broker: RunningBroker) -> Result:
        with self.load.hold(broker.port, clients=WARMED_UP_BY, subscriptions=WARMED_UP_BY, mqtt=case.mqtt):
            pass
        before = broker.resident_bytes()
        held = self.load.hold(broker.port, clients=case.clients, subscriptions=case.subscriptions, mqtt=case.mqtt)
        with held as result:
            grown = broker.resident_bytes() - before
        if not result["granted"]:
            raise LoadError("the broker granted no subscription")
        cost = grown / 1024 / case.clients if case.measure == "connection memory" else grown / result["granted"]
        return result | {"cost": max(cost, 0.001), "grown": grown}
