"""`scripts/bench cluster`: all contests of a run, one after another."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import headwater_lab.cluster as package
from headwater.fleet.process import BrokerError
from headwater_lab import machine, results
from headwater_lab.cluster import interest
from headwater_lab.cluster.churn import churning
from headwater_lab.cluster.figures import Findings, progress
from headwater_lab.cluster.nodes import SYNC, linked, single
from headwater_lab.cluster.traffic import Arranged, Arrangement, Course, all_at, crossing, in_turns
from headwater_lab.contest import Case, ContestOutcome
from headwater_lab.load import LoadError, build
from headwater_lab.options import figure_options
from headwater_lab.report import update
from headwater_lab.scenarios import REGIMES, WORKLOADS
from headwater_lab.topologies import REGIMES as TOPOLOGY_REGIMES

ONE: Final = "one node"
METHODS: Final = ("flood", "subscribe", "bloom")
CHURN: Final = 600.0
FIVE_TIMES: Final = ("--publishers", "250", "--subscribers", "250", "--topics", "250")
"""W2 at each of five nodes."""
UNLINKED: Final = "five without a cluster"
LOCAL: Final = {
    "": "five nodes",
    "unlinked/": UNLINKED,
    "split/": "one load over five",
    "one/": "one of five in turns",
}
QOS1: Final = "--publishers 50 --subscribers 50 --topics 50 --qos 1 --window 20 --keep-sessions"


class Sizes(NamedTuple):
    """`controls`: also what explains figures."""

    rounds: int
    seconds: float
    warmup: float
    filters: int
    changes: int
    topics: int
    controls: bool


FULL: Final = Sizes(7, 0.8, 0.3, 100_000, 12_000, 100_000, controls=True)
QUICK: Final = Sizes(5, 0.5, 0.3, 100_000, 3000, 50_000, controls=False)


def _w2(scenario: str, regime: str, what: str) -> Case:
    options = f"{WORKLOADS['W2']} {REGIMES[regime]['W2']}"
    return Case(f"{scenario}/{regime}-W2", f"{what}, {regime} W2", tuple(options.split()))


class Campaign:
    """One run; what nodes keep goes to `folder`."""

    def __init__(self, folder: Path, sizes: Sizes, tell: Callable[[str], None]) -> None:
        self.folder = folder
        self.sizes = sizes
        self.tell = tell
        self.findings = Findings()
        self.course = Course(build(folder), sizes.rounds, sizes.seconds, sizes.warmup)

    def run(self) -> None:
        """LoadError, BrokerError: it could not be measured."""
        self.off()
        self.cross_deep()
        self.cross("cross2/lock-W2/cpu_ratio", _w2("cross2", "lock", "from one node to another"), ())
        case = Case("cross2/qos1-sync", "from one node to another, QoS 1, disk to disk", tuple(QOS1.split()))
        self.cross("cross2/qos1-sync/cpu_ratio", case, SYNC)
        self.local()
        self.topologies()
        self.churn()
        self.bloom()

    def off(self) -> None:
        """Two nodes of each kind: two that are the same differ by a few parts in a hundred, each all its life. Many
        short rounds: what else the machine does lasts as long as a round, and two rounds that follow each other share
        it or do not."""
        case = _w2("off", "deep", "a cluster's name alone")
        with contextlib.ExitStack() as stack:
            there = {}
            for number in range(2):
                there[f"{ONE} {number}"] = all_at(stack.enter_context(single(self.folder)))
                there[f"a name {number}"] = all_at(stack.enter_context(linked(1, self.folder)))
            course = self.course._replace(rounds=2 * self.course.rounds, seconds=self.course.seconds / 2)
            found = course.run(case, there).samples
        pooled = {name: [*found[f"{name} 0"], *found[f"{name} 1"]] for name in (ONE, "a name")}
        outcome = self._found(ContestOutcome(case, pooled))
        self.findings.compare("off/deep-W2/ratio", outcome, ONE, "a name")

    def cross_deep(self) -> None:
        """By each method: the second node's share is the hop."""
        with contextlib.ExitStack() as stack:
            there = {ONE: all_at(stack.enter_context(single(self.folder)))}
            for method in METHODS:
                there[method] = crossing(stack.enter_context(linked(2, self.folder, method)))
            outcome = self._found(self.course.run(_w2("cross2", "deep", "from one node to another"), there))
        self.findings.compare("cross2/deep-W2/cpu_ratio", outcome, "subscribe", ONE)
        for method in METHODS:
            self.findings.add(f"hop/{method}/us_per_message", outcome.median(method) - outcome.median(ONE))

    def cross(self, name: str, case: Case, options: Sequence[str]) -> None:
        with single(self.folder, options) as one, linked(2, self.folder, options=options) as two:
            outcome = self._found(self.course.run(case, {ONE: all_at(one), "two nodes": crossing(two)}))
        self.findings.compare(name, outcome, "two nodes", ONE)

    def local(self) -> None:
        """Five nodes, the clients of a topic at one of them: W2 at each, one W2 for all, or all of it at one."""
        with contextlib.ExitStack() as stack:
            one = stack.enter_context(single(self.folder))
            five = stack.enter_context(linked(5, self.folder))
            alone = [stack.enter_context(single(self.folder))[0] for _ in range(5)]
            there: dict[str, Arranged] = {
                ONE: all_at(one),
                "five nodes": all_at(five)._replace(instead=FIVE_TIMES),
                UNLINKED: all_at(alone)._replace(instead=FIVE_TIMES),
                "one load over five": all_at(five),
                "one of five in turns": in_turns(five),
            }
            if self.sizes.controls:
                there["one load over five without a cluster"] = all_at(alone)
            outcome = self._found(self.course.run(_w2("local5", "lock", "nothing crosses"), there))
        for name, arrangement in LOCAL.items():
            self.findings.compare(f"local5/{name}lock-W2/cpu_ratio", outcome, arrangement, ONE)
        self.findings.compare("local5/over-unlinked/lock-W2/cpu_ratio", outcome, "five nodes", UNLINKED)

    def topologies(self) -> None:
        """Eight publishers spread over two nodes (Banno and Yoshizawa 2021): a subscriber of all at each (MLT-SGL), or
        one group of two at each (MLT-SHD), beside the same clients at one node."""
        for name, clients in (("SGL", "--subscribers 2"), ("SHD", "--subscribers 4 --share workers")):
            options = f"--publishers 8 --topics 1 {clients} {TOPOLOGY_REGIMES['full', 1]}"
            case = Case(f"topology/MLT-{name}", f"MLT-{name}: eight publishers at two nodes", tuple(options.split()))
            with single(self.folder) as one, linked(2, self.folder) as two:
                outcome = self._found(self.course.run(case, {ONE: all_at(one), "two nodes": all_at(two)}))
            self.findings.compare(f"topology/MLT-{name}/cpu_ratio", outcome, "two nodes", ONE)

    def churn(self) -> None:
        case = _w2("churn600", "deep", "one of two nodes")
        with linked(2, self.folder) as (here, there):
            quiet = Arrangement([here], [here], [here])
            busy = quiet._replace(meanwhile=partial(churning, there.port, CHURN))
            outcome = self._found(self.course.run(case, {"no changes": quiet, "600 changes/s": busy}))
        self.findings.compare("churn600/deep-W2/cpu_ratio", outcome, "600 changes/s", "no changes")

    def bloom(self) -> None:
        sizes, add = self.sizes, self.findings.add
        crossed = interest.messages(interest.FILTERS, sizes.topics)
        if crossed.denied:
            raise LoadError(f"{crossed.denied} messages that are wanted do not cross by bloom")
        add("bloom/messages_ratio", crossed.summary / crossed.exact)
        exact, summary = (
            interest.told_bytes(method, sizes.filters, sizes.changes, CHURN) for method in ("subscribe", "bloom")
        )
        add("bloom/state_bytes_ratio", summary.state / exact.state)
        add("bloom/churn_bytes_ratio", summary.changes / exact.changes)
        add("bloom/growth_bytes_ratio", summary.growth / exact.growth)
        self.tell(f"bloom: {crossed.summary:,} messages for {crossed.exact:,}; {summary} for {exact}")

    def _found(self, outcome: ContestOutcome) -> ContestOutcome:
        self.findings.outcomes.append(outcome)
        self.tell(progress(outcome))
        return outcome


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and return the exit status."""
    chosen = figure_options("cluster", package.__doc__, quick="a slice of two minutes").parse_args(arguments)
    began = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        campaign = Campaign(Path(name), QUICK if chosen.quick else FULL, tell)
        try:
            campaign.run()
        except (BrokerError, LoadError) as error:
            print(f"scripts/bench cluster: {error}", file=sys.stderr)
            return 1
    return publish(chosen.json, None if chosen.quick or chosen.no_docs else chosen.docs, campaign.findings)


def publish(file: Path | None, docs: Path | None, findings: Findings) -> int:
    """Print what was found, and write it where it is wanted; the exit status."""
    about = machine.describe("scripts/bench cluster", mosquitto=False)
    report = findings.markdown(about)
    print(f"\n{report}")
    if file is not None:
        results.write_json(file, findings.records())
    if docs is not None:
        update(docs / "performance.md", report, "cluster")
        results.keep(docs, "cluster", findings.details(about))
    for each in findings.wrong():
        print(f"NOT AS IT WAS PUBLISHED: {each}", file=sys.stderr)
    return 1 if findings.wrong() else 0


if __name__ == "__main__":
    sys.exit(main())
