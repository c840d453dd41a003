"""What an experiment leaves in a folder: a page with tables and figures, and the data behind them.

A page that is there already keeps its text; only the part between two marks is replaced.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from headwater_lab.figure import FigureError
from headwater_lab.reproduce.edge.findings import Findings
from headwater_lab.reproduce.edge.pictures import draw_all
from headwater_lab.reproduce.edge.results import Measured, number_of
from headwater_lab.reproduce.page import insert, markdown

NAME: Final = "edge"


def write(findings: Findings, folder: Path) -> list[Path]:
    """Tables, figures and data; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{NAME}.md", folder / f"{NAME}.json", folder / f"{NAME}-cpu.csv", folder / f"{NAME}-logs.csv"]
    try:
        pictures = draw_all(findings.runs, folder)
    except FigureError as problem:
        print(problem, file=sys.stderr)
        pictures = []
    page = files[0].read_text() if files[0].exists() else ""
    files[0].write_text(insert(page, _page(findings, pictures), NAME))
    content = {
        "machine": findings.facts,
        "runs": [_described(run) for run in findings.runs],
        "results": findings.records(),
    }
    files[1].write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    _write_csv(files[2], ("scenario", "run", "seconds", "cpu_percent"), _cpu_rows(findings.runs))
    _write_csv(files[3], _LOG, _log_rows(findings.runs))
    return [*files, *pictures]


def _page(findings: Findings, pictures: Sequence[Path]) -> str:
    parts = ["\n".join(f"- {name}: {value}" for name, value in findings.facts.items())]
    parts += [markdown(table) for table in findings.tables()]
    parts += [f"![{file.stem}]({file.name})" for file in pictures]
    return "\n\n".join(parts)


def _described(run: Measured) -> dict[str, object]:
    times = run.latencies
    return {
        "scenario": run.scenario.name,
        "seed": run.seed,
        "readings": run.made,
        "by_mqtt": len(times),
        "by_rest": run.by_rest,
        "missing": run.missing,
        "unequal": run.unequal,
        "latency_mean_ms": round(sum(times) / len(times), 4) if times else None,
        "latency_max_ms": round(max(times), 4) if times else None,
        "sent_late_ms": round(1000.0 * run.sent.latest, 4),
    }


def _write_csv(file: Path, head: Sequence[str], rows: Iterator[Sequence[object]]) -> None:
    with file.open("w", newline="") as sink:
        writer = csv.writer(sink)
        writer.writerow(head)
        writer.writerows(rows)


def _numbered(runs: Sequence[Measured]) -> Iterator[tuple[int, Measured]]:
    """With the number of the run in its scenario."""
    seen: dict[str, int] = {}
    for run in runs:
        name = run.scenario.name
        seen[name] = seen.get(name, 0) + 1
        yield seen[name], run


def _cpu_rows(runs: Sequence[Measured]) -> Iterator[Sequence[object]]:
    for number, run in _numbered(runs):
        for seconds, percent in run.cpu:
            yield run.scenario.name, number, f"{seconds:.3f}", f"{percent:.3f}"


_LOG: Final = ("scenario", "run", "log", "number", "position", "topic", "payload", "latency_ms")


def _log_rows(runs: Sequence[Measured]) -> Iterator[Sequence[object]]:
    """The three logs, one behind the other."""
    for number, run in _numbered(runs):
        if run.logs is None:
            continue
        label = (run.scenario.name, number)
        for reading, (topic, payload) in enumerate(run.logs.made):
            yield *label, "made", reading, "", topic, payload.decode(), ""
        for each, reading, time in zip(run.logs.mqtt, run.numbers, run.latencies, strict=True):
            yield *label, "mqtt", reading, each.position, each.topic, each.payload.decode(), f"{time:.3f}"
        for copy in run.logs.rest:
            yield *label, "rest", number_of(copy.payload), copy.position, copy.topic, copy.payload.decode(), ""
