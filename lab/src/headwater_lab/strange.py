"""Our wire scenarios against Mosquitto: `scripts/bench strange`, or `python -m headwater_lab.strange` in the project.

Mosquitto finds wrong expectations: a scenario that it fails either asks more than the standard does, or Mosquitto
deviates from the standard, and then the scenario is marked with how (`@deviates`). A whole run writes
docs/results/mosquitto-scenarios-DATE.md with what passed and with the deviations. The exit status is pytest's.

With --proxy a proxy stands in front of Mosquitto: the same must pass. The report is mosquitto-proxy-scenarios-DATE.md.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headwater.fleet.process import BrokerError
from headwater_lab import machine
from headwater_lab.contenders import mosquitto_command, running
from headwater_lab.proxy import COMMAND, proxy
from headwater_lab.results import dated

LEFT_OUT: Final = re.compile(r"^(test_\S+?)(\[.*\])?: (mosquitto .*)$", re.MULTILINE)
SUMMARY: Final = re.compile(r"^=*\s*((?:\d+ \w+(?:, )?)+) in [\d.]+s", re.MULTILINE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="bench strange", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tests", nargs="*", help="scenarios to run (default: all, with a report)")
    parser.add_argument("--project", type=Path, default=Path(), help="the project's folder (default: the current one)")
    parser.add_argument("--proxy", action="store_true", help="through a proxy in front of Mosquitto")
    options = parser.parse_args(arguments)
    try:
        status, output = run(options.project, options.tests or ["tests/broker"], options.proxy)
    except BrokerError as problem:
        print(problem, file=sys.stderr)
        return 2
    print(output)
    if status == 0 and not options.tests:
        name = "mosquitto-proxy-scenarios" if options.proxy else "mosquitto-scenarios"
        file = dated(options.project / "docs/results", name, "md")
        file.write_text(markdown(output, machine.describe(""), options.proxy), encoding="utf-8")
    return status


def run(project: Path, tests: Sequence[str], is_proxied: bool = False) -> tuple[int, str]:
    """Run scenarios against a Mosquitto of their own, perhaps through a proxy: pytest's exit status and output."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--skip-deviating", "mosquitto"]
    with (
        tempfile.TemporaryDirectory(prefix="headwater-strange-") as folder,
        running(mosquitto_command, Path(folder)) as broker,
        proxy(COMMAND, Path(folder), broker) if is_proxied else contextlib.nullcontext(broker) as target,
    ):
        words += ["--target", f"127.0.0.1:{target.port}", *tests]
        done = subprocess.run(words, cwd=project, capture_output=True, text=True, check=False)
        target.check_alive()
    return done.returncode, done.stdout + done.stderr


def markdown(output: str, facts: dict[str, str], is_proxied: bool = False) -> str:
    """The report of a whole run, from pytest's output."""
    summary = SUMMARY.search(output)
    deviations: dict[str, list[str]] = {}
    for test, _, text in LEFT_OUT.findall(output):
        tests = deviations.setdefault(text.partition(": ")[2], [])
        if test not in tests:
            tests.append(test)
    lines = [
        f"# Our scenarios against Mosquitto{' behind a proxy' if is_proxied else ''}",
        "The scenarios of `tests/broker` that need no settings of ours, by "
        f"`scripts/bench strange{' --proxy' if is_proxied else ''}`.",
        "",
        *(f"- {name}: {facts[name]}" for name in ("date", "mosquitto", "commit")),
        f"- outcome: {summary.group(1) if summary else 'unknown'}",
        "",
        "Where Mosquitto deviates from the standard its scenarios are left out:",
        "",
        "| what it does | scenarios |",
        "|---|---|",
        *(f"| {text} | {', '.join(f'`{test}`' for test in tests)} |" for text, tests in sorted(deviations.items())),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
