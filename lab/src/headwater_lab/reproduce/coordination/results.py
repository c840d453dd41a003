"""What trials say.

- Rates: of each half second, messages attempted (ingress), completed and received (egress); mean, standard deviation.
- Egress to ingress: received / (10 × attempted). The limit is the smallest interval at which this is 0.99 or more (the
  paper's formula 1), and at which publishers could send nearly all that they were to: one that gets rid of 5,000 of
  16,667 messages has not an interval of 3 ms. With interval 0 nobody says how many they were to send: there it is
  counted since the load began, so that what waits in sockets is not delivered; else full sockets would look like a
  broker that keeps up.
- CPU: of all brokers and proxies per delivered message. And, as there are fewer cores here than machines in the paper:
  of the busiest process per message that came in anywhere; one that has a core for itself is full at 1 / that. This
  `projected` limit takes for granted that CPU per message is the same at higher rates (batches make it less), and that
  nothing else is in the way.
- Latency: of probes, from the first broker to the last, or at the one that there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median, pstdev
from typing import Final, NamedTuple

from headwater_lab.reproduce.coordination.detector import Signs, signs
from headwater_lab.reproduce.coordination.generator import Sample, Trial
from headwater_lab.reproduce.coordination.plan import LOCAL, PAPER_TIMES, SETUPS, SINGLE, SUBSCRIBERS
from headwater_lab.results import Record, record

RULE: Final = 0.99
KEPT: Final = 0.95

Key = tuple[str, str]
"""Set-up and placement."""


class Spread(NamedTuple):
    mean: float
    deviation: float
    least: float
    median: float
    most: float
    values: int


NOTHING: Final = Spread(0.0, 0.0, 0.0, 0.0, 0.0, 0)


def spread(values: Iterable[float]) -> Spread:
    """Of all values; the deviation is the population's."""
    found = list(values)
    if not found:
        return NOTHING
    return Spread(fmean(found), pstdev(found), min(found), median(found), max(found), len(found))


def rates(samples: Sequence[Sample], name: str) -> list[tuple[float, float]]:
    """Of a counter between samples: the middle of the time, seconds since the first; per second."""
    begin = samples[0].at
    found = []
    for before, after in pairwise(samples):
        seconds = after.at - before.at
        count = getattr(after, name) - getattr(before, name)
        found.append(((before.at + after.at) / 2.0 - begin, count / seconds))
    return found


def delivered_share(attempted: int, received: int, copies: int = SUBSCRIBERS) -> float:
    """Egress / (copies × ingress)."""
    return received / (copies * attempted) if attempted else 0.0


class Step(NamedTuple):
    """What one interval gave: `kept` is the part of nominal messages that publishers could send, 1 with interval 0."""

    interval_ms: float
    share: float
    kept: float

    @property
    def passes(self) -> bool:
        return self.share >= RULE and self.kept >= KEPT


def limit(steps: Iterable[Step]) -> float | None:
    """The smallest interval that passes; None: not even the largest does."""
    return min((step.interval_ms for step in steps if step.passes), default=None)


class Summary(NamedTuple):
    """`far` and `near` are latencies in ms; `cpu` of each process, µs per message that came in anywhere."""

    trial: Trial
    ingress: Spread
    completed: Spread
    egress: Spread
    step: Step
    loss: float
    near: Spread
    far: Spread
    probes_lost: int
    cpu: Mapping[str, float]
    cpu_per_delivered: float
    signs: Signs

    @property
    def key(self) -> Key:
        return self.trial.setup, self.trial.placement

    @property
    def latency(self) -> Spread:
        return self.far if self.trial.is_far else self.near

    @property
    def busiest(self) -> str:
        return max(self.cpu, key=lambda name: self.cpu[name])

    @property
    def projected(self) -> float:
        """Messages a second that come in, when the busiest process has a core for itself and uses all of it."""
        most = self.cpu[self.busiest]
        return 1e6 / most if most else 0.0


def summarised(trial: Trial) -> Summary:
    first, last = trial.samples[0], trial.samples[-1]
    came, went = last.attempted - first.attempted, last.received - first.received
    used = {name: last.cpu[name] - first.cpu[name] for name in last.cpu}
    times: dict[int, list[float]] = {0: [], 1: []}
    for probe in trial.probes:
        if probe.received is not None:
            times[probe.pair].append((probe.received - probe.sent) * 1e3)
    nominal = trial.course.nominal
    kept = 1.0 if nominal is None else came / (nominal * (last.at - first.at))
    share = delivered_share(last.attempted, last.received) if nominal is None else delivered_share(came, went)
    counted = trial.counted
    return Summary(
        trial,
        spread(rate for _, rate in rates(trial.samples, "attempted")),
        spread(rate for _, rate in rates(trial.samples, "completed")),
        spread(rate for _, rate in rates(trial.samples, "received")),
        Step(trial.course.interval_ms, share, kept),
        1.0 - counted.received / counted.expected if counted.expected else 0.0,
        spread(times[0]),
        spread(times[1]),
        sum(probe.received is None for probe in trial.probes),
        {name: seconds * 1e6 / max(came, 1) for name, seconds in used.items()},
        sum(used.values()) * 1e6 / max(went, 1),
        signs(trial.samples),
    )


class Results:
    """All trials of a run, by purpose."""

    def __init__(self, trials: Iterable[Trial]) -> None:
        self.all = [summarised(trial) for trial in trials]
        self.fixed = {each.key: each for each in self._of("fixed")}
        self.at_limit = {each.key: each for each in self._of("limit")}
        self.slow = next(iter(self._of("slow")), None)
        self.steps: dict[Key, list[Step]] = {}
        for each in self._of("searched"):
            self.steps.setdefault(each.key, []).append(each.step)

    def _of(self, purpose: str) -> list[Summary]:
        return [each for each in self.all if each.trial.purpose == purpose]

    def speedup(self, key: Key) -> float | None:
        """Projected limit over that of one broker, which has the same clients."""
        one = self.fixed.get((SINGLE.name, key[1]))
        return self.fixed[key].projected / one.projected if one and one.projected else None

    @property
    def lost(self) -> int:
        """Messages of the fixed interval that did not come, and what came twice or to the wrong one at any."""
        missing = sum(each.trial.counted.expected - each.trial.counted.received for each in self.fixed.values())
        return missing + sum(each.trial.counted.repeated + each.trial.counted.misrouted for each in self.all)

    def records(self) -> list[Record]:
        found = [each for key in self.fixed for each in self._fixed_records(key)]
        found += [each for key in self.at_limit for each in self._limit_records(key)]
        for key, steps in self.steps.items():
            smallest = limit(steps)
            if smallest is not None:
                paper = SETUPS[key[0]].paper if key[1] == LOCAL else None
                found.append(record(f"{prefix(key)}/interval_ms", paper, smallest, "ms"))
        if self.slow is not None:
            found.append(record("slow-generator/flagged", None, float(bool(self.slow.signs.causes)), ""))
        return found

    def _fixed_records(self, key: Key) -> list[Record]:
        each, name = self.fixed[key], prefix(key)
        in_paper = key[1] == LOCAL and SETUPS[key[0]].paper is not None
        found = [
            record(f"{name}/cpu_us_per_message", None, each.cpu_per_delivered, "µs"),
            record(f"{name}/loss", 0.0 if in_paper else None, each.loss, "", 6),
            record(f"{name}/latency_mean_ms", None, each.latency.mean, "ms"),
            record(f"{name}/latency_deviation_ms", None, each.latency.deviation, "ms"),
            record(f"{name}/projected_per_s", None, each.projected, "1/s", 0),
            record(f"{name}/flagged", None, float(bool(each.signs.causes)), ""),
        ]
        times = self.speedup(key)
        if times is not None:
            paper = PAPER_TIMES if key == ("line5-subscribe", LOCAL) else None
            found.append(record(f"{name}/speedup_projected", paper, times, ""))
        return found

    def _limit_records(self, key: Key) -> list[Record]:
        each, name = self.at_limit[key], prefix(key)
        return [
            record(f"{name}/at_limit/ingress_per_s", None, each.ingress.mean, "1/s", 1),
            record(f"{name}/at_limit/egress_per_s", None, each.egress.mean, "1/s", 1),
            record(f"{name}/at_limit/latency_mean_ms", None, each.latency.mean, "ms"),
            record(f"{name}/at_limit/loss", None, each.loss, "", 6),
        ]


def prefix(key: Key) -> str:
    setup, placement = key
    return setup if placement == LOCAL else f"{setup}/{placement}"
