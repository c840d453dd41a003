"""The command line that all contests share: options, progress, the result file and the part of docs/performance.md.

A full run writes docs/results/NAME-DATE.json and the part of docs/performance.md between the benchmark's markers; what
stands outside them is written by hand. A run of a slice, or with other contenders, writes to neither.
The exit status tells whether messages of ours went wrong or a case could not run, never whether it was fast.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater.fleet.process import BrokerError
from headwater.routing.shared import DISPATCHERS
from headwater_lab import machine, report, results
from headwater_lab.contenders import find_mosquitto, headwater_command, mosquitto_command, raise_file_limit
from headwater_lab.contest import MOSQUITTO, Case, Contest, ContestOutcome, Launcher, unconnected
from headwater_lab.load import LoadError, build
from headwater_lab.options import names, output_options


@dataclass(frozen=True)
class Benchmark:
    """A contest by name. `cases` gets the version of MQTT (4 is 3.1.1, None both or the one recorded), and "quick"."""

    name: str
    about: str
    cases: Callable[[int | None, bool], list[Case]]
    line: Callable[[ContestOutcome], str]  # for the terminal
    markdown: Callable[[Sequence[ContestOutcome]], str]
    dispatchers: tuple[str, ...]
    rounds: int
    seconds: float
    quick_seconds: float


def parse(benchmark: Benchmark, arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    ours = f"{shlex.quote(sys.executable)} -m headwater broker --port {{port}} --config {{config}}"
    parser = argparse.ArgumentParser(
        prog=f"bench {benchmark.name}",
        description=benchmark.about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--command", default=ours, help="the broker, with {port} and {config} (default: this headwater)"
    )
    parser.add_argument(
        "--dispatchers",
        type=names,
        default=list(benchmark.dispatchers),
        help=f"contenders of ours, by dispatcher (default: {','.join(benchmark.dispatchers)})",
    )
    parser.add_argument("--no-mosquitto", action="store_true", help="without Mosquitto")
    parser.add_argument("--quick", action="store_true", help="a slice, one round")
    parser.add_argument("--only", type=names, default=[], help="cases whose key begins with one of these (see --list)")
    parser.add_argument("--list", action="store_true", help="list the cases")
    parser.add_argument("--rounds", type=int, help=f"interleaved rounds of each case (default: {benchmark.rounds})")
    parser.add_argument("--seconds", type=float, help=f"measured time of a round (default: {benchmark.seconds:g})")
    parser.add_argument("--mqtt", type=int, choices=(4, 5), help="one version; 4 is 3.1.1 (default: what is recorded)")
    output_options(parser)
    options = parser.parse_args(arguments)
    unknown = set(options.dispatchers) - set(DISPATCHERS)
    if unknown:
        parser.error(f"no dispatcher is called {', '.join(sorted(unknown))}")
    return options


def main(benchmark: Benchmark, arguments: Sequence[str] | None = None) -> int:
    """Run and return the exit status."""
    options = parse(benchmark, arguments)
    cases = [case for case in benchmark.cases(options.mqtt, options.quick) if _is_chosen(case, options.only)]
    if not cases:
        print(f"no case begins with {' or '.join(options.only)}", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(f"{case.key:28} {case.what}" for case in cases))
        return 0
    facts = machine.describe(options.command.replace(shlex.quote(sys.executable), "python"))
    rounds, seconds = _length(benchmark, options)
    facts["rounds"] = f"{rounds} of {seconds:g} s"
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), flush=True)
    raise_file_limit()
    outcomes: list[ContestOutcome] = []
    try:
        with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
            for outcome in _contest(benchmark, options, Path(folder)).run(cases):
                outcomes.append(outcome)
                print(f"{outcome.case.key:28} {_said(benchmark, outcome)}", flush=True)
    except (LoadError, BrokerError) as problem:
        print(problem, file=sys.stderr)
        return 2
    if options.json:
        results.write_json(options.json, _content(outcomes, facts))
    if _is_complete(benchmark, options):
        write_docs(benchmark, options.docs, outcomes, facts)
    failed = [outcome.case.key for outcome in outcomes if outcome.failed]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def remarks(outcome: ContestOutcome) -> list[str]:
    """What went wrong with messages, by contender: losses of Mosquitto are told, too."""
    return [
        f"{contender}: {name} {count:,}"
        for contender in outcome.samples
        for name, count in outcome.violations(contender).items()
    ]


def losses(outcomes: Sequence[ContestOutcome], against: Callable[[ContestOutcome], list[str]]) -> str:
    """What broke, which messages went wrong, and what the benchmark has to say `against` us, as plainly as the rest."""
    lines = []
    for outcome in outcomes:
        said = [outcome.error] if outcome.error else remarks(outcome) + against(outcome)
        if said:
            lines.append(f"- {outcome.case.what}, MQTT {outcome.case.version}: {'; '.join(said)}.")
    return "Losses:\n\n" + ("\n".join(lines) or "- None, and no message lost, repeated or out of order.")


def ratio(outcome: ContestOutcome, above: str, below: str, name: str = "us") -> str:
    """A ratio and its spread as they stand in the tables; a single round has no spread."""
    text = f"{outcome.ratio(above, below, name):.2f}"
    return text if len(outcome.samples[above]) == 1 else f"{text} ± {outcome.spread(above, below, name):.2f}"


def write_docs(benchmark: Benchmark, docs: Path, outcomes: Sequence[ContestOutcome], facts: dict[str, str]) -> None:
    """The result file, and the generated part of performance.md; text outside its markers stays."""
    results.keep(docs, benchmark.name, _content(outcomes, facts))
    report.update(docs / "performance.md", f"{report.facts(facts)}\n\n{benchmark.markdown(outcomes)}", benchmark.name)


def _content(outcomes: Sequence[ContestOutcome], facts: dict[str, str]) -> dict[str, object]:
    """Everything measured, with machine and versions."""
    return {"machine": facts, "results": [outcome.as_json() for outcome in outcomes]}


def _contest(benchmark: Benchmark, options: argparse.Namespace, folder: Path) -> Contest:
    contenders: dict[str, Launcher] = {
        name: unconnected(headwater_command(options.command, name)) for name in options.dispatchers
    }
    if not options.no_mosquitto:
        find_mosquitto()
        contenders[MOSQUITTO] = unconnected(mosquitto_command)
    rounds, seconds = _length(benchmark, options)
    return Contest(contenders, build(folder), folder, rounds, seconds, warmup=min(0.5, seconds / 2))


def _length(benchmark: Benchmark, options: argparse.Namespace) -> tuple[int, float]:
    """Rounds, and seconds of each."""
    seconds = options.seconds or (benchmark.quick_seconds if options.quick else benchmark.seconds)
    return options.rounds or (1 if options.quick else benchmark.rounds), seconds


def _said(benchmark: Benchmark, outcome: ContestOutcome) -> str:
    if outcome.error:
        return f"FAILED: {outcome.error}"
    return benchmark.line(outcome) + "".join(f"  {remark.upper()}" for remark in remarks(outcome))


def _is_complete(benchmark: Benchmark, options: argparse.Namespace) -> bool:
    """Whether the run has all that the documentation shows."""
    partial = options.no_docs or options.quick or options.only or options.no_mosquitto or options.mqtt
    return not partial and tuple(options.dispatchers) == benchmark.dispatchers


def _is_chosen(case: Case, beginnings: Sequence[str]) -> bool:
    return not beginnings or any(case.key.startswith(beginning) for beginning in beginnings)
