"""The report of the experiment: every run, its samples of the processor, and the three logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from headwater_lab.reproduce.edge.findings import Findings
from headwater_lab.reproduce.edge.pictures import draw_all
from headwater_lab.reproduce.edge.results import Measured, number_of
from headwater_lab.reproduce.reporter import Report, Sheet


def report(findings: Findings) -> Report:
    runs = findings.runs
    return Report(
        "edge",
        findings.facts,
        findings.tables(),
        findings.records(),
        data={"runs": [_described(run) for run in runs]},
        draw=lambda folder: draw_all(runs, folder),
        sheets=[
            Sheet("edge-cpu.csv", ("scenario", "run", "seconds", "cpu_percent"), _cpu_rows(runs)),
            Sheet("edge-logs.csv", _LOG, _log_rows(runs)),
        ],
    )


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
