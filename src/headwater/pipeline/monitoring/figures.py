"""The figures of a pipeline process, declared once (headwater/metric.py) and gathered after each round.

Theory. The pipeline's thread looks at its tables and counts; whoever scrapes reads what was gathered last, a value that
nobody changes any more. So a scrape neither waits for a step nor opens a table, and costs the same at any rate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from headwater.metric import Labels, counter, gauge
from headwater.pipeline.jobs.expectations import RuleCount, rule_counts
from headwater.pipeline.jobs.pipeline import Round
from headwater.pipeline.jobs.status import totals
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.monitoring.lineage import LineageSeen
from headwater.pipeline.tables import COMPLETENESS

PREFIX: Final = "headwater_pipeline"
BETWEEN_COUNTS: Final = 15.0
"""Seconds between two looks at the rows of completeness, and of counts of expectations."""


def _if_known(name: str) -> Callable[[Any], Mapping[Labels, float]]:
    """No sample while the value is None: Prometheus has no word for unknown."""
    return lambda view: {} if getattr(view, name) is None else {(): getattr(view, name)}


@dataclass(frozen=True)
class TableFigures:
    name: str
    rows: int = gauge("Rows of the table.", name="table_rows")
    files: int = gauge("Files of the table.", name="table_files")
    size: int = gauge("Bytes of the files of the table.", name="table_bytes")
    version: int = gauge("Version of the table: commits since it was made.", name="table_version")


@dataclass(frozen=True)
class StoreFigures:
    name: str
    lag: int | None = gauge(
        "Messages that the store has and bronze has not; no sample while the store does not answer.",
        name="lag_messages",
        samples=_if_known("lag"),
        default=None,
    )


@dataclass(frozen=True)
class PipelineFigures:
    rounds: int = counter("Rounds that were done.")
    round_time: float = gauge("When the last round ended, in seconds since 1970.", name="last_round_timestamp_seconds")
    lag_seconds: float | None = gauge(
        "Seconds since the moment up to which bronze has everything of every store.",
        samples=_if_known("lag_seconds"),
        default=None,
    )
    silent_stores: int = gauge("Stores that do not answer.")
    behind: int = gauge("Messages that are in bronze and not decoded yet.", name="undecoded_messages")
    final_until: float | None = gauge(
        "Windows that end before this are final, in seconds since 1970.",
        name="final_until_timestamp_seconds",
        samples=_if_known("final_until"),
        default=None,
    )
    step_rows: dict[str, int] = counter("Rows that a step has dealt with.", labels=("step",), default=dict)
    step_failures: dict[str, int] = counter(
        "Failures of a step, which was tried again.", labels=("step",), default=dict
    )
    completeness: dict[str, int] = gauge(
        "Messages by what has become of them: made, live, recovered, duplicate, erased, lost. Lost must be 0.",
        name="messages",
        labels=("what",),
        default=dict,
    )
    expectations: tuple[RuleCount, ...] = gauge(
        "Rows that an expectation was asked of, by whether it held.",
        name="expectation_rows",
        labels=("table", "rule", "action", "held"),
        samples=lambda view: _rule_samples(view.expectations),
        default=tuple,
    )


@dataclass(frozen=True)
class Seen:
    """All figures at one moment."""

    pipeline: PipelineFigures = field(default_factory=PipelineFigures)
    tables: tuple[TableFigures, ...] = ()
    stores: tuple[StoreFigures, ...] = ()
    lineage: LineageSeen | None = None


class Gathering:
    """Told of each round, by the pipeline's thread. `seen` may be read by any thread. `clock` gives seconds since
    1970."""

    def __init__(self, lake: Lake, clock: Callable[[], float] = time.time) -> None:
        self.lake = lake
        self.seen = Seen()
        self._clock = clock
        self._counted: tuple[int, float] = (-1, 0.0)
        """The version of completeness that was counted, and when."""
        self._rules_counted = 0.0

    def saw(self, found: Round, lineage: LineageSeen | None = None) -> None:
        now = self._clock()
        before = self.seen.pipeline
        pipeline = replace(
            before,
            rounds=before.rounds + 1,
            round_time=now,
            lag_seconds=found.lag_seconds,
            silent_stores=sum(lag is None for lag in found.lag.values()),
            behind=found.behind,
            final_until=_seconds(found.final_until),
            step_rows=_added(before.step_rows, found.did),
            step_failures=_added(before.step_failures, dict.fromkeys(found.failed, 1)),
            completeness=self._completeness(now, before.completeness),
            expectations=self._expectations(now, before.expectations),
        )
        stores = tuple(StoreFigures(store, lag) for store, lag in sorted(found.lag.items()))
        self.seen = Seen(pipeline, tuple(self._tables()), stores, lineage)

    def _tables(self) -> Iterator[TableFigures]:
        for name, snapshot in self.lake.existing().items():
            yield TableFigures(name, snapshot.rows, len(snapshot.files), snapshot.size, snapshot.version)

    def _completeness(self, now: float, before: dict[str, int]) -> dict[str, int]:
        snapshot = self.lake.existing().get(COMPLETENESS.name)
        version, moment = self._counted
        if snapshot is None or snapshot.version == version or now - moment < BETWEEN_COUNTS:
            return before
        self._counted = (snapshot.version, now)
        return totals(self.lake)

    def _expectations(self, now: float, before: tuple[RuleCount, ...]) -> tuple[RuleCount, ...]:
        if now - self._rules_counted < BETWEEN_COUNTS:
            return before
        self._rules_counted = now
        return tuple(rule_counts(self.lake))


def _rule_samples(rules: Iterable[RuleCount]) -> dict[Labels, float]:
    found: dict[Labels, float] = {}
    for each in rules:
        for held, rows in (("yes", each.checked - each.failed), ("no", each.failed)):
            found[(each.table, each.rule, each.action, held)] = rows
    return found


def _added(before: dict[str, int], found: Mapping[str, int]) -> dict[str, int]:
    return {**before, **{name: before.get(name, 0) + number for name, number in found.items()}}


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
