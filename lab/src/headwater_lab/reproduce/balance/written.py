"""The report of the experiment: every trial, every message, every report of a member."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from headwater_lab.reproduce.balance.campaign import Result
from headwater_lab.reproduce.balance.findings import Findings
from headwater_lab.reproduce.balance.pictures import draw_all
from headwater_lab.reproduce.balance.results import member_means, summaries
from headwater_lab.reproduce.reporter import Report, Sheet


def report(findings: Findings) -> Report:
    results = findings.results
    return Report(
        "balance",
        findings.facts,
        findings.tables(),
        findings.records(),
        data={"trials": [_described(result) for result in results]},
        draw=lambda folder: draw_all(results, folder),
        sheets=[
            Sheet("balance-messages.csv", _MESSAGE_COLUMNS, _message_rows(results)),
            Sheet("balance-reports.csv", _REPORT_COLUMNS, _report_rows(results)),
        ],
    )


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
