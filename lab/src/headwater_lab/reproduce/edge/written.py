"""The report of the experiment: every run, its samples of the processor, and the three logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from headwater_lab.reproduce.edge.findings import Findings
from headwater_lab.reproduce.edge.pictures import draw_all
from headwater_lab.reproduce.edge.results import Measured, latencies, number_of, numbers
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
            Sheet("edge-cpu.csv", ("scenario", "run", "tier", "seconds", "cpu_percent"), _cpu_rows(runs)),
            Sheet("edge-logs.csv", _LOG, _log_rows(runs)),
        ],
    )


def _described(run: Measured) -> dict[str, object]:
    times = run.latencies
    return {
        "scenario": run.label,
        "seed": run.seed,
        "readings": run.made,
        "by_mqtt": run.by_mqtt,
        "by_rest": run.by_rest,
        "missing": run.missing,
        "unequal": run.unequal,
        "latency_messages": len(times),
        "latency_mean_ms": round(sum(times) / len(times), 4) if times else None,
        "latency_max_ms": round(max(times), 4) if times else None,
        "latency_last_ms": None if run.last is None else round(run.last, 4),
        "sent_late_ms": round(1000.0 * run.sent.latest, 4),
        "cpu_seconds": {name: round(seconds, 4) for name, seconds in run.used.items()},
    }


def _numbered(runs: Sequence[Measured]) -> Iterator[tuple[int, Measured]]:
    """With the number of the run among those of its scenario and load."""
    seen: dict[str, int] = {}
    for run in runs:
        seen[run.label] = seen.get(run.label, 0) + 1
        yield seen[run.label], run


def _cpu_rows(runs: Sequence[Measured]) -> Iterator[Sequence[object]]:
    for number, run in _numbered(runs):
        for tier, samples in run.cpu.items():
            for seconds, percent in samples:
                yield run.label, number, tier, f"{seconds:.3f}", f"{percent:.3f}"


_LOG: Final = ("scenario", "run", "log", "tier", "number", "position", "topic", "payload", "latency_ms")


def _log_rows(runs: Sequence[Measured]) -> Iterator[Sequence[object]]:
    """The three logs, one behind the other."""
    for number, run in _numbered(runs):
        if run.logs is None:
            continue
        names = [tier.name for tier in run.scenario.delivery]
        label = (run.label, number)
        for reading, (topic, payload) in enumerate(run.logs.made):
            yield *label, "made", "", reading, "", topic, payload.decode(), ""
        for each, reading, time in zip(run.logs.mqtt, numbers(run.logs), latencies(run.logs), strict=True):
            place = (names[each.tier], reading, each.position)
            yield *label, "mqtt", *place, each.topic, each.payload.decode(), f"{time:.3f}"
        for tier, copy in run.logs.rest:
            place = (names[tier], number_of(copy.payload), copy.position)
            yield *label, "rest", *place, copy.topic, copy.payload.decode(), ""
