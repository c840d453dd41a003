"""What a proxy costs: `scripts/bench proxy`, or `python -m headwater_lab.proxy`.

Clients of Mosquitto, and the same clients of a `headwater proxy` in front of the same Mosquitto, in interleaved rounds
of one run, with traffic of the load generator. What is compared is CPU time per delivered message, the proxy's own over
Mosquitto's own without the proxy, and the p99 of the delay, paced at 10,000 messages a second. W1: 10 publishers, 5
topics, 10 subscribers on each; W2: 50 pairs; QoS 0. deep: many messages under way; lock: one under way per publisher.

Last, what members of a shared group gain where the proxy keeps it (proxy_groups.py).

Every subscriber checks that each publisher's messages come complete, once and in order. The exit status is 1 if they do
not, or if it could not be measured, never because something was slow. A full run writes the part of docs/performance.md
between the marks `proxy`, and docs/results/proxy-DATE.json.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from headwater.fleet.process import BrokerError, RunningBroker, free_port
from headwater_lab import machine, results
from headwater_lab.cluster.figures import Figure, Findings, progress
from headwater_lab.cluster.traffic import Arrangement, Course, all_at
from headwater_lab.contenders import mosquitto_command, raise_file_limit, running
from headwater_lab.contest import MOSQUITTO, Case, ContestOutcome
from headwater_lab.load import LoadError, build
from headwater_lab.options import figure_options
from headwater_lab.proxy_groups import GROUPS, worked_off
from headwater_lab.report import update
from headwater_lab.scenarios import REGIMES, WORKLOADS

PROXY: Final = "proxy"
COMMAND: Final = (
    "{python} -m headwater proxy --broker 127.0.0.1:{broker} --listen 127.0.0.1:{port} "
    "--cluster-port 0 --log-level error"
)
KEEPS_GROUPS: Final = "--set proxy.groups=proxy"

FIGURES: Final = {
    "proxy/deep-W1/cpu_ratio": Figure(
        "CPU of the proxy per message, over Mosquitto's own, many under way", "", "≤", 0.3
    ),
    "proxy/deep-W2/cpu_ratio": Figure("the same, each topic with one subscriber", "", "≤", 0.5),
    "proxy/lock-W2/cpu_ratio": Figure("the same, one message under way", "", "≤", 1.5),
    "proxy/paced/added_p99_ms": Figure("p99 that the proxy adds at 10,000 messages a second", "ms", "≤", 3.0),
    "proxy/paced/added_p50_ms": Figure("the median of it", "ms"),
    "proxy/paced/cpu_ratio": Figure("CPU of the proxy per message, over Mosquitto's own, paced", ""),
    "proxy/deep-W2/rate_ratio": Figure("messages per second through the proxy, over without it", ""),
    "proxy/lock-W2/rate_ratio": Figure("the same, one message under way", ""),
    "proxy/groups/slow/mean_ms": Figure(
        "until a message is worked off by four members of a group that the proxy keeps, one of them slow", "ms"
    ),
    "proxy/groups/slow/mosquitto_mean_ms": Figure("the same at Mosquitto, which goes round", "ms"),
    "proxy/groups/alike/mean_ms": Figure("by four members that are alike", "ms"),
    "proxy/groups/alike/mosquitto_mean_ms": Figure("the same at Mosquitto", "ms"),
}


class Sizes(NamedTuple):
    rounds: int
    seconds: float
    warmup: float


FULL: Final = Sizes(9, 1.0, 0.3)
QUICK: Final = Sizes(5, 0.5, 0.3)


@contextlib.contextmanager
def proxy(command: str, folder: Path, broker: RunningBroker) -> Iterator[RunningBroker]:
    """A proxy in front of this broker, on a free port."""
    port = free_port()
    words = shlex.split(command.format(python=shlex.quote(sys.executable), broker=broker.port, port=port))
    process = RunningBroker(words, port, folder / f"proxy-{port}.log")
    try:
        yield process
    finally:
        process.stop()


class Campaign:
    """One run; what processes keep goes to `folder`."""

    def __init__(self, folder: Path, command: str, sizes: Sizes, tell: Callable[[str], None]) -> None:
        self.folder = folder
        self.command = command
        self.tell = tell
        self.findings = Findings(FIGURES)
        self.course = Course(build(folder), *sizes)

    def run(self) -> None:
        """LoadError, BrokerError: it could not be measured."""
        with running(mosquitto_command, self.folder) as broker, proxy(self.command, self.folder, broker) as relay:
            there = {MOSQUITTO: all_at([broker]), PROXY: all_at([relay])}
            self._compare("deep", "W1", there)
            deep = self._compare("deep", "W2", there)
            self.findings.compare("proxy/deep-W2/rate_ratio", deep, PROXY, MOSQUITTO, "rate")
            lock = self._compare("lock", "W2", there)
            self.findings.compare("proxy/lock-W2/rate_ratio", lock, PROXY, MOSQUITTO, "rate")
            self._added(self._measured("paced", "W2", there))
            with proxy(f"{self.command} {KEEPS_GROUPS}", self.folder, broker) as keeper:
                self._groups(broker.port, keeper.port)

    def _groups(self, broker: int, keeper: int) -> None:
        for name, services in GROUPS.items():
            self.findings.add(f"proxy/groups/{name}/mosquitto_mean_ms", worked_off(broker, services, f"at-it-{name}"))
            self.findings.add(f"proxy/groups/{name}/mean_ms", worked_off(keeper, services, f"kept-{name}"))

    def _compare(self, regime: str, workload: str, there: Mapping[str, Arrangement]) -> ContestOutcome:
        outcome = self._measured(regime, workload, there)
        self.findings.compare(f"proxy/{regime}-{workload}/cpu_ratio", outcome, PROXY, MOSQUITTO)
        return outcome

    def _added(self, outcome: ContestOutcome) -> None:
        self.findings.compare("proxy/paced/cpu_ratio", outcome, PROXY, MOSQUITTO)
        for name in ("p50", "p99"):
            each = [
                (through[name] - without[name]) / 1000
                for through, without in zip(outcome.samples[PROXY], outcome.samples[MOSQUITTO], strict=True)
            ]
            added = (outcome.median(PROXY, name) - outcome.median(MOSQUITTO, name)) / 1000
            self.findings.add(f"proxy/paced/added_{name}_ms", added, (max(each) - min(each)) / 2)

    def _measured(self, regime: str, workload: str, there: Mapping[str, Arrangement]) -> ContestOutcome:
        options = f"{WORKLOADS[workload]} {REGIMES[regime][workload]}"
        case = Case(f"proxy/{regime}-{workload}", f"{regime} {workload}", tuple(options.split()))
        outcome = self.course.run(case, there)
        self.findings.outcomes.append(outcome)
        self.tell(progress(outcome))
        return outcome


def main(arguments: list[str] | None = None) -> int:
    """Run and return the exit status."""
    parser = figure_options("proxy", __doc__, quick="a slice of half a minute")
    parser.add_argument("--command", default=COMMAND, help="the proxy, with {port} and {broker} (default: headwater's)")
    chosen = parser.parse_args(arguments)
    raise_file_limit()
    began = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        campaign = Campaign(Path(name), chosen.command, QUICK if chosen.quick else FULL, tell)
        try:
            campaign.run()
        except (BrokerError, LoadError) as error:
            print(f"scripts/bench proxy: {error}", file=sys.stderr)
            return 1
    return publish(chosen.json, None if chosen.quick or chosen.no_docs else chosen.docs, campaign.findings)


def publish(file: Path | None, docs: Path | None, findings: Findings) -> int:
    """Print what was found, and write it where it is wanted; the exit status."""
    about = machine.describe("scripts/bench proxy")
    report = findings.markdown(about)
    print(f"\n{report}")
    if file is not None:
        results.write_json(file, findings.records())
    if docs is not None:
        update(docs / "performance.md", report, "proxy")
        results.keep(docs, "proxy", findings.details(about))
    for each in findings.wrong():
        print(f"NOT AS IT WAS PUBLISHED: {each}", file=sys.stderr)
    return 1 if findings.wrong() else 0


if __name__ == "__main__":
    sys.exit(main())
