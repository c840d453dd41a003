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
from headwater_lab.reproduce.balance.campaign import Result
from headwater_lab.reproduce.balance.findings import Findings
from headwater_lab.reproduce.balance.pictures import draw_all
from headwater_lab.reproduce.balance.results import member_means, summaries
from headwater_lab.reproduce.page import insert, markdown

NAME: Final = "balance"


def write(findings: Findings, folder: Path) -> list[Path]:
    """Table, figures and data; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "balance.md", folder / "balance.json", folder / "balance-messages.csv"]
    files.append(folder / "balance-reports.csv")
    try:
        pictures = draw_all(findings.results, folder)
    except FigureError as problem:
        print(problem, file=sys.stderr)
        pictures = []
    page = files[0].read_text() if files[0].exists() else ""
    files[0].write_text(insert(page, _page(findings, pictures), NAME))
    content = {
        "machine": findings.facts,
        "trials": [_described(result) for result in findings.results],
        "results": findings.records(),
    }
    files[1].write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    _write_csv(files[2], _MESSAGE_COLUMNS, _message_rows(findings.results))
    _write_csv(files[3], _REPORT_COLUMNS, _report_rows(findings.results))
    return [*files, *pictures]


def _page(findings: Findings, pictures: Sequence[Path]) -> str:
    parts = ["\n".join(f"- {name}: {value}" for name, value in findings.facts.items())]
    parts += [markdown(table) for table in findings.tables()]
    parts += [f"![{file.stem}]({file.name})" for file in pictures]
    return "\n\n".join(parts)


def _described(result: Result) -> dict[str, object]:
    trial = result.trial
    counts = [sum(each.member == member for each in result.outcome.taken) for member in range(len(trial.phases))]
    return {
        "setting": trial.setting.name,
        "contender": trial.contender.name,
        "phases": [round(phase, 4) for phase in trial.phases],
        "seed": trial.seed,
        "offset_ms": round(1000.0 * trial.offset, 3),
        "messages": trial.messages,
        "lost": result.outcome.lost,
        "reports": len(result.told),
        "mean_ms": round(summaries([result])[0].mean, 3),
        "member_mean_ms": [round(mean, 3) for mean in member_means([result])],
        "member_messages": counts,
    }


def _write_csv(file: Path, head: Sequence[str], rows: Iterator[Sequence[object]]) -> None:
    with file.open("w", newline="") as sink:
        writer = csv.writer(sink)
        writer.writerow(head)
        writer.writerows(rows)


_LABEL: Final = ("setting", "contender", "trial")
_MESSAGE_COLUMNS: Final = (*_LABEL, "message", "member", "created_ms", "sent_ms", "seen_ms", "start_ms", "waited")
_REPORT_COLUMNS: Final = (*_LABEL, "member", "at_ms", "waiting", "reported_ms", "believed_ms")


def _message_rows(results: Sequence[Result]) -> Iterator[Sequence[object]]:
    for number, (trial, outcome, _) in enumerate(results):
        for each in outcome.taken:
            times = (each.created, each.sent, each.seen, each.start)
            shown = [f"{1000.0 * (time - outcome.begin):.3f}" for time in times]
            label = (trial.setting.name, trial.contender.name, number)
            yield (*label, each.number, each.member, *shown, int(each.waited))


def _report_rows(results: Sequence[Result]) -> Iterator[Sequence[object]]:
    for number, (trial, outcome, record) in enumerate(results):
        for told in record:
            shown = [f"{1000.0 * value:.3f}" for value in (told.seconds, told.believed)]
            label = (trial.setting.name, trial.contender.name, number)
            yield (*label, told.member, f"{1000.0 * (told.at - outcome.begin):.3f}", told.waiting, *shown)
