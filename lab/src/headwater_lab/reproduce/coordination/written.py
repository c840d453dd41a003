"""The report of the experiment: every trial with its samples, and every probe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from headwater_lab.reproduce.coordination.generator import Trial
from headwater_lab.reproduce.coordination.pictures import draw_all
from headwater_lab.reproduce.coordination.results import Results, Summary
from headwater_lab.reproduce.coordination.tables import all_tables
from headwater_lab.reproduce.reporter import Report, Sheet

PROBES: Final = ("pair", "number", "sent", "completed", "received")
LABEL: Final = ("setup", "placement", "purpose", "interval_ms")
SAMPLES: Final = (
    *("attempted", "completed", "received", "overdue", "held"),
    *("retransmitted", "window", "unsent", "unread"),
)


def report(results: Results, facts: Mapping[str, str]) -> Report:
    trials = [each.trial for each in results.all]
    return Report(
        "coordination",
        facts,
        all_tables(results),
        results.records(),
        data={"trials": [_described(each) for each in results.all]},
        draw=lambda folder: draw_all(results, folder),
        sheets=[
            Sheet("coordination-samples.csv", (*LABEL, "seconds", *SAMPLES, "process", "cpu_s"), _sample_rows(trials)),
            Sheet("coordination-probes.csv", (*LABEL, *PROBES), _probe_rows(trials)),
        ],
    )


def _described(each: Summary) -> dict[str, object]:
    trial = each.trial
    return {
        **dict(zip(LABEL, _label(trial), strict=True)),
        "opened_s": trial.opened_s,
        "sent": trial.counted.sent,
        "expected": trial.counted.expected,
        "received": trial.counted.received,
        "repeated": trial.counted.repeated,
        "ingress_per_s": each.ingress._asdict(),
        "completed_per_s": each.completed._asdict(),
        "egress_per_s": each.egress._asdict(),
        "near_ms": each.near._asdict(),
        "far_ms": each.far._asdict() if trial.is_far else None,
        "probes_lost": each.probes_lost,
        "cpu_us_per_ingress": each.cpu,
        "cpu_us_per_delivered": each.cpu_per_delivered,
        "signs": each.signs._asdict(),
        "flagged": each.signs.causes,
    }


def _label(trial: Trial) -> tuple[str, str, str, float]:
    return trial.setup, trial.placement, trial.purpose, trial.course.interval_ms


def _sample_rows(trials: Sequence[Trial]) -> Iterator[Sequence[object]]:
    """A row for each process; counters are the generator's, since the start."""
    for trial in trials:
        begin = trial.samples[0].at
        for sample in trial.samples:
            counters = [getattr(sample, name) for name in SAMPLES]
            for process, seconds in sample.cpu.items():
                yield *_label(trial), f"{sample.at - begin:.3f}", *counters, process, f"{seconds:.6f}"


def _probe_rows(trials: Sequence[Trial]) -> Iterator[Sequence[object]]:
    """Three points of time, seconds since the first sample."""
    for trial in trials:
        begin = trial.samples[0].at
        for probe in trial.probes:
            times = (probe.sent, probe.completed, probe.received)
            shown = ("" if time is None else f"{time - begin:.6f}" for time in times)
            yield *_label(trial), "far" if probe.pair else "near", probe.number, *shown
