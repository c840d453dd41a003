"""Can the conformance tests fail? `scripts/bench mutants`, or `python -m headwater_lab.mutants` in the project.

For one clause of the standard after the other, a copy of the source is edited so that the clause no longer holds
(mutants.toml), and the tests that docs/conformance.md names for it run against the copy, as plain Python. A test has to
fail. A mutant whose tests all pass has survived: the tests claim to show the clause, and do not. A mutant that makes
the broker itself fail (it does not start, or logs an exception) is broken: that a test fails then proves nothing.

A whole run writes docs/results/mutants-DATE.json and .md. The exit status is 0 when all mutants are caught, 1 when some
survived or are broken, 2 when one no longer fits the source or the tests.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple

from headwater_lab import machine
from headwater_lab.clauses import SCENARIOS, shown_by
from headwater_lab.results import dated, write_json

SOURCES: Final = Path("src/headwater")
DATA: Final = Path("lab/src/headwater_lab/mutants.toml")
COPIED: Final = ("pyproject.toml", "src", "tests/__init__.py", "tests/conftest.py", "tests/tiers.py", "tests/broker")
LIMIT: Final = 180.0
"""Seconds that the tests of one mutant may take."""

CAUGHT: Final = "caught"
SURVIVED: Final = "survived"
BROKEN: Final = "broken"


class Edit(NamedTuple):
    """`old`, which stands in the file exactly once, becomes `new`. The file is named below src/headwater."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """A clause that no longer holds: `what` tells how. `tests` are some of those that are marked with the clause."""

    clause: str
    what: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    verdict: str
    seconds: float
    said: str
    """The test that failed, or what went wrong."""


class StaleError(Exception):
    """A mutant no longer fits the source or the tests."""


def load(project: Path) -> list[Mutant]:
    """The mutants of a project's mutants.toml; without tests of its own, a mutant has all of its clause's."""
    shown = shown_by(project)
    found = []
    for entry in tomllib.loads((project / DATA).read_text(encoding="utf-8"))["mutant"]:
        clause = entry["clause"]
        tests = tuple(f"{SCENARIOS}/{test}" for test in entry.get("tests", ())) or tuple(shown.get(clause, ()))
        found.append(Mutant(clause, entry["what"], tuple(Edit(*edit) for edit in entry["edits"]), tests))
    return found


def stale(mutants: Iterable[Mutant], project: Path) -> list[str]:
    """Why mutants cannot be made any more: an edit that fits nowhere or twice, a test that does not show the clause."""
    shown = shown_by(project)
    problems = []
    for mutant in mutants:
        for edit in mutant.edits:
            file = project / SOURCES / edit.file
            count = file.read_text(encoding="utf-8").count(edit.old) if file.is_file() else 0
            if count != 1:
                problems.append(f"{mutant.clause}: mutant is stale: {count} times in {edit.file}: {edit.old!r}")
        marked = shown.get(mutant.clause, [])
        problems += [
            f"{mutant.clause}: mutant is stale: {test} is not marked with this clause"
            for test in mutant.tests
            if test.partition("[")[0] not in marked
        ]
        if not mutant.tests:
            problems.append(f"{mutant.clause}: mutant is stale: no test shows this clause")
    return problems


def judge(mutant: Mutant, project: Path) -> Verdict:
    """Make the mutant in a folder of its own and run its tests there."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headwater-mutant-") as name:
        copy = Path(name)
        copy_project(project, copy)
        for edit in mutant.edits:
            _apply(edit, copy)
        verdict, said = _run(copy, mutant.tests)
    return Verdict(mutant, verdict, time.monotonic() - started, said)


def copy_project(project: Path, copy: Path) -> None:
    """What the scenarios need. Bytecode comes along: only edited files are compiled anew; machine code must not."""
    for part in COPIED:
        target = copy / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if (project / part).is_dir():
            shutil.copytree(project / part, target, ignore=shutil.ignore_patterns("*.so"))
        else:
            shutil.copy2(project / part, target)


def _apply(edit: Edit, copy: Path) -> None:
    file = copy / SOURCES / edit.file
    text = file.read_text(encoding="utf-8")
    if text.count(edit.old) != 1:
        raise StaleError(f"mutant is stale: {text.count(edit.old)} times in {edit.file}: {edit.old!r}")
    file.write_text(text.replace(edit.old, edit.new), encoding="utf-8")


def _run(copy: Path, tests: Sequence[str]) -> tuple[str, str]:
    environment = {key: value for key, value in os.environ.items() if key != "HEADWATER_EXPECT"}
    environment["PYTHONPATH"] = str(copy / "src")
    words = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", "-p", "no:cacheprovider"]
    words += ["--basetemp", str(copy / "tmp"), *tests]
    try:
        done = subprocess.run(
            words, cwd=copy, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return BROKEN, f"the tests did not end within {LIMIT:.0f} s"
    return _verdict(done.returncode, done.stdout)


def _verdict(status: int, output: str) -> tuple[str, str]:
    """Of pytest's status and output. An error, unlike a failure, is the broker's own: see tests/broker/conftest.py."""
    if status == 0:
        return SURVIVED, ""
    failed = re.search(r"^FAILED (.+?)(?: - |$)", output, re.MULTILINE)
    error = re.search(r"^ERROR .*", output, re.MULTILINE)
    if status == 1 and failed and not error:
        return CAUGHT, failed.group(1).removeprefix(f"{SCENARIOS}/")
    raised = re.findall(r"^\w[\w.]*(?:Error|Exception)\b.*", output, re.MULTILINE)
    return BROKEN, raised[-1] if raised else error.group() if error else f"pytest ended with {status}"


def run(mutants: Sequence[Mutant], project: Path, jobs: int) -> Iterator[Verdict]:
    """Judge them, several at a time, in the order in which they are done."""
    with ThreadPoolExecutor(jobs) as pool:
        for future in as_completed([pool.submit(judge, mutant, project) for mutant in mutants]):
            yield future.result()


def check_unchanged(mutants: Sequence[Mutant], project: Path) -> str:
    """Run the tests of these mutants on the source as it is; says what is wrong, or nothing."""
    tests = tuple(sorted({test for mutant in mutants for test in mutant.tests}))
    verdict = judge(Mutant("", "", (), tests), project)
    return "" if verdict.verdict == SURVIVED else f"without any change: {verdict.said}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and return the exit status."""
    options = _parse(arguments)
    project = options.project.resolve()
    mutants = load(project)
    problems = stale(mutants, project)
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return 2
    chosen = [mutant for mutant in mutants if not options.only or mutant.clause in options.only]
    if options.list:
        print("\n".join(f"{mutant.clause:15} {mutant.what}" for mutant in chosen))
        return 0
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headwater-mutants-") as name:
        snapshot = Path(name)  # people go on with their work meanwhile
        copy_project(project, snapshot)
        if wrong := check_unchanged(chosen, snapshot):
            print(f"the tests fail {wrong}", file=sys.stderr)
            return 2
        verdicts = []
        for verdict in run(chosen, snapshot, options.jobs):
            verdicts.append(verdict)
            print(f"{len(verdicts):4}/{len(chosen)} {_line(verdict)}", flush=True)
    verdicts.sort(key=lambda verdict: chosen.index(verdict.mutant))
    facts = _facts(verdicts, time.monotonic() - started)
    print("\n".join(f"{name}: {value}" for name, value in facts.items()))
    if not options.only:
        write(project / "docs/results", verdicts, facts)
    uncaught = [verdict for verdict in verdicts if verdict.verdict != CAUGHT]
    for verdict in uncaught:
        print(f"NOT CAUGHT {_line(verdict)}", file=sys.stderr)
    return 1 if uncaught else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "only", nargs="*", metavar="ID", help="clauses such as MQTT-3.1.2-4 (default: all, with report)"
    )
    parser.add_argument("--list", action="store_true", help="list the mutants")
    # Most of the time is spent waiting for packets that a mutant does not send.
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)) + 1, help="mutants at a time")
    parser.add_argument("--project", type=Path, default=Path(), help="the project's folder (default: the current one)")
    return parser.parse_args(arguments)


def _line(verdict: Verdict) -> str:
    mutant = verdict.mutant
    return f"{verdict.verdict:8} {mutant.clause:15} {mutant.what} ({verdict.seconds:.1f} s) {verdict.said}"


def _facts(verdicts: Sequence[Verdict], seconds: float) -> dict[str, str]:
    facts = machine.describe("")
    counts = {name: sum(each.verdict == name for each in verdicts) for name in (CAUGHT, SURVIVED, BROKEN)}
    return {name: facts[name] for name in ("date", "cpu", "cores", "python", "commit")} | {
        "clauses": str(len({verdict.mutant.clause for verdict in verdicts})),
        "mutants": f"{len(verdicts)}: {', '.join(f'{count} {name}' for name, count in counts.items())}",
        "took": f"{seconds:.0f} s",
    }


def write(folder: Path, verdicts: Sequence[Verdict], facts: dict[str, str]) -> None:
    """The report of a whole run, for programs and for people."""
    file = dated(folder, "mutants")
    write_json(file, {"machine": facts, "mutants": [asdict(verdict) for verdict in verdicts]})
    file.with_suffix(".md").write_text(_markdown(verdicts, facts), encoding="utf-8")


def _markdown(verdicts: Sequence[Verdict], facts: dict[str, str]) -> str:
    lines = ["# Mutants", "One clause after the other disabled in the source; the tests named for it have to fail.", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += ["", "| clause | what was done | edits | verdict | by | seconds |", "|---|---|---|---|---|---|"]
    for verdict in verdicts:
        edits = "<br>".join(
            f"{edit.file}: {_code(edit.old)} → {_code(edit.new) or 'nothing'}" for edit in verdict.mutant.edits
        )
        said = f"`{verdict.said}`" if verdict.said else ", ".join(verdict.mutant.tests)
        said = said.replace("|", "\\|")
        lines.append(
            f"| {verdict.mutant.clause} | {verdict.mutant.what} | {edits} | {verdict.verdict} | {said} "
            f"| {verdict.seconds:.1f} |"
        )
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    """One line of code in a cell of a table."""
    short = " ⏎ ".join(line.strip() for line in text.strip().splitlines()).replace("|", "\\|")
    return f"`{short}`" if short else ""


if __name__ == "__main__":
    sys.exit(main())
