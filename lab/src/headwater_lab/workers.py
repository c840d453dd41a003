"""What workers cost, and bring: `scripts/bench workers`, or `python -m headwater_lab.workers`.

`headwater broker --workers 2` beside `headwater broker`, and traffic of the load generator: W2, 50 publishers and 50
subscribers in pairs, QoS 0. The system spreads the 100 connections over the workers by a hash of their addresses, so
the ends of about half of the pairs are at different workers. What is compared is CPU time of all processes of a node
per delivered message (lock: one message under way per publisher), messages per second (deep: many under way), and p99
of the delay (paced: 10,000 a second), in interleaved rounds of one run; medians, and ratios of them.

The load generator needs a core of its own, and so does each worker: on a machine with two cores the rate of two workers
cannot be seen. What it would be with a core for each is projected from CPU time: twice the rate, divided by what a
message costs two workers over one (lock, where packets come one by one; in deep, processes that wait for a core find
more packets at a time, and cost less than they would). It is named so, and was not measured.

Every subscriber checks that each publisher's messages come complete, once and in order. The exit status is 1 if they do
not, and does not depend on speed.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from headwater.fleet.process import BrokerError, RunningBroker, free_port
from headwater_lab import machine, results
from headwater_lab.cluster.figures import Figure, Findings, progress
from headwater_lab.cluster.traffic import Arrangement, Course, all_at
from headwater_lab.contest import Case, ContestOutcome
from headwater_lab.load import LoadError, build
from headwater_lab.options import figure_options
from headwater_lab.report import update
from headwater_lab.scenarios import REGIMES, WORKLOADS

ONE: Final = "one process"
TWO: Final = "two workers"
START_LIMIT: Final = 30.0
"""Seconds until all workers have to listen."""
LISTENING: Final = "0A"
"""A state of /proc/net/tcp."""

FIGURES: Final = {
    "workers2/lock-W2/cpu_ratio": Figure("CPU per message of two workers, over one process", "", "≤", 1.33),
    "workers2/lock-W2/projected_rate_ratio": Figure(
        "projected, not measured: the rate with a core for each worker and for the clients", ""
    ),
    "workers2/deep-W2/rate_ratio": Figure("messages per second of two workers, over one process", ""),
    "workers2/deep-W2/cpu_ratio": Figure("CPU per message, many under way", ""),
    "workers2/paced/p99_ratio": Figure("p99 of two workers at 10,000 messages a second, over one process", ""),
}


class Sizes(NamedTuple):
    rounds: int
    seconds: float
    warmup: float


FULL: Final = Sizes(9, 1.0, 0.3)
QUICK: Final = Sizes(5, 0.5, 0.3)


def listening(port: int) -> int:
    """Sockets of this machine that listen on a port of IPv4."""
    with Path("/proc/net/tcp").open() as lines:
        rows = [line.split() for line in lines][1:]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == LISTENING for row in rows)


@contextlib.contextmanager
def node(folder: Path, workers: int) -> Iterator[RunningBroker]:
    """`headwater broker` on a free port, when all its workers listen. BrokerError: they do not."""
    port = free_port()
    words = [sys.executable, "-m", "headwater", "broker", "--port", str(port), "--log-level", "error"]
    broker = RunningBroker([*words, "--workers", str(workers)], port, folder / f"node-{port}.log")
    deadline = time.monotonic() + START_LIMIT
    try:
        while listening(port) < workers:
            broker.check_alive()
            if time.monotonic() > deadline:
                raise BrokerError(f"{listening(port)} of {workers} workers listen after {START_LIMIT:.0f} s")
            time.sleep(0.05)
        yield broker
    finally:
        broker.stop()


class Campaign:
    """One run; what nodes keep goes to `folder`."""

    def __init__(self, folder: Path, sizes: Sizes, tell: Callable[[str], None]) -> None:
        self.folder = folder
        self.tell = tell
        self.findings = Findings(FIGURES)
        self.course = Course(build(folder), *sizes)

    def run(self) -> None:
        """LoadError, BrokerError: it could not be measured."""
        with node(self.folder, 1) as one, node(self.folder, 2) as two:
            there = {ONE: all_at([one]), TWO: all_at([two])}
            findings = self.findings
            lock = self._measured("lock", there)
            findings.compare("workers2/lock-W2/cpu_ratio", lock, TWO, ONE)
            findings.add("workers2/lock-W2/projected_rate_ratio", 2 / lock.ratio(TWO, ONE))
            deep = self._measured("deep", there)
            findings.compare("workers2/deep-W2/rate_ratio", deep, TWO, ONE, "rate")
            findings.compare("workers2/deep-W2/cpu_ratio", deep, TWO, ONE)
            findings.compare("workers2/paced/p99_ratio", self._measured("paced", there), TWO, ONE, "p99")

    def _measured(self, regime: str, there: Mapping[str, Arrangement]) -> ContestOutcome:
        options = f"{WORKLOADS['W2']} {REGIMES[regime]['W2']}"
        case = Case(f"workers2/{regime}-W2", f"{regime} W2", tuple(options.split()))
        outcome = self.course.run(case, there)
        self.findings.outcomes.append(outcome)
        self.tell(progress(outcome))
        return outcome


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and return the exit status."""
    chosen = figure_options("workers", __doc__, quick="a slice of half a minute").parse_args(arguments)
    began = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        campaign = Campaign(Path(name), QUICK if chosen.quick else FULL, tell)
        try:
            campaign.run()
        except (BrokerError, LoadError) as error:
            print(f"scripts/bench workers: {error}", file=sys.stderr)
            return 1
    return publish(chosen.json, None if chosen.quick or chosen.no_docs else chosen.docs, campaign.findings)


def publish(file: Path | None, docs: Path | None, findings: Findings) -> int:
    """Print what was found, and write it where it is wanted; the exit status."""
    about = machine.describe("scripts/bench workers", mosquitto=False)
    cores = os.cpu_count() or 1
    report = f"{findings.markdown(about)}\n{limit(cores)}\n"
    print(f"\n{report}")
    if file is not None:
        results.write_json(file, findings.records())
    if docs is not None:
        update(docs / "performance.md", report, "workers")
        results.keep(docs, "workers", findings.details(about))
    for each in findings.wrong():
        print(f"NOT AS IT WAS PUBLISHED: {each}", file=sys.stderr)
    return 1 if findings.wrong() else 0


def limit(cores: int) -> str:
    """What of the figures is a projection."""
    if cores > 2:
        return (
            f"Measured on {cores} cores, of which the load generator needs one; the projected rate is a limit by CPU."
        )
    return (
        f"On {cores} cores, which two workers share with the load generator, a rate above that of one process cannot "
        "be seen: `projected_rate_ratio` is the limit by CPU time if each had a core, and was not measured."
    )


if __name__ == "__main__":
    sys.exit(main())
