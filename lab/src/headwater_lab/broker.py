"""Compare a broker with Mosquitto: `scripts/bench broker`, or `python -m headwater_lab.broker`.

Prints a line per case. A full run also writes docs/results/broker-DATE.json, the tables between the markers of
docs/performance.md and docs/performance.svg. On a noisy machine, --self compares Mosquitto with itself: the ratios
that it prints are the noise. The exit status tells whether messages were lost or reordered or a case could not run,
never whether the broker was fast.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from headwater.fleet.process import BrokerError
from headwater_lab import figure, machine, report, results, scenarios
from headwater_lab.compare import Comparison, Row
from headwater_lab.contenders import command_from, find_mosquitto, mosquitto_command, raise_file_limit
from headwater_lab.load import LoadError, build
from headwater_lab.options import comparison_options


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = comparison_options("broker", __doc__, placeholder="port", quick="a slice of about a minute")
    parser.add_argument("--list", action="store_true", help="list the cases")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and return the exit status."""
    options = parse(arguments)
    try:
        cases = _chosen_cases(options)
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(f"{case.key:28} {case.what}" for case in cases))
        return 0
    command = "mosquitto" if options.itself else options.command
    facts = machine.describe(command.replace(shlex.quote(sys.executable), "python"))
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), flush=True)
    raise_file_limit()
    rows: list[Row] = []
    try:
        find_mosquitto()
        with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
            for row in _comparison(options, Path(folder)).run(cases):
                rows.append(row)
                print(report.progress_line(row), flush=True)
    except (LoadError, BrokerError) as problem:
        print(problem, file=sys.stderr)
        return 2
    if options.json:
        results.write_json(options.json, content(rows, facts))
    if not (options.no_docs or options.quick or options.only or options.itself):
        write_docs(options.docs, rows, facts)
    failed = [row.key for row in rows if row.failed]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def content(rows: Sequence[Row], facts: dict[str, str]) -> dict[str, object]:
    """Everything measured, with machine and versions."""
    return {"machine": facts, "results": [row.as_json() for row in rows]}


def write_docs(docs: Path, rows: Sequence[Row], facts: dict[str, str]) -> None:
    """The result file, the figure, and the generated part of performance.md; text outside its markers stays."""
    results.keep(docs, "broker", content(rows, facts))
    picture: Path | None = docs / "performance.svg"
    try:
        figure.draw(rows, docs / "performance.svg")
    except figure.FigureError as problem:
        print(problem, file=sys.stderr)
        picture = None
    report.update(docs / "performance.md", report.markdown(rows, facts, picture.name if picture else None))


def _chosen_cases(options: argparse.Namespace) -> list[scenarios.Case]:
    if options.only:
        return scenarios.select(scenarios.all_cases(options.mqtt), options.only)
    return scenarios.quick() if options.quick else scenarios.full(options.mqtt)


def _comparison(options: argparse.Namespace, folder: Path) -> Comparison:
    seconds = options.seconds or (0.5 if options.quick else 2.0)
    return Comparison(
        ours=mosquitto_command if options.itself else command_from(options.command),
        load=build(folder),
        folder=folder,
        rounds=options.rounds,
        seconds=seconds,
        warmup=min(0.5, seconds / 2),
    )


if __name__ == "__main__":
    sys.exit(main())
