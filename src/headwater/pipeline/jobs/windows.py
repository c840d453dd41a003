"""Gold and late: windows of time, each written once, when it is final.

Theory (ADR 16). The table's note says up to which window it is complete. When the slowest store's clock has passed the
end of the next windows and the lateness allowed, everything that ever belongs to them is in silver: they are computed,
and committed with the new note, in one transaction. Nothing that comes later changes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from headwater.pipeline.derive.belonging import arrivals
from headwater.pipeline.derive.gold import gold
from headwater.pipeline.derive.late import late
from headwater.pipeline.derive.moments import exact, final_until, moment
from headwater.pipeline.derive.outcomes import outcomes
from headwater.pipeline.derive.settings import Settings
from headwater.pipeline.expectations.checking import NO_CHECKS, Checks
from headwater.pipeline.jobs.expectations import checked_span, commit_windows
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.log import LakeError, Positions
from headwater.pipeline.lake.made import UNTIL
from headwater.pipeline.lake.snapshot import Snapshot
from headwater.pipeline.lake.writing import write_rows
from headwater.pipeline.tables import BRONZE, DROPPED, GOLD, LATE, OUTCOMES, QUARANTINE, SILVER, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MINUTE: Final = 60


@dataclass(frozen=True)
class Spans:
    """Of a table: spans of `length` seconds are final `lateness` seconds after their end."""

    table: Table
    length: int
    lateness: float = 0.0

    def next(self, lake: Lake, clock: datetime, first: datetime | None) -> tuple[datetime, datetime] | None:
        """From where the table ends to where things are final; None if that is nothing. An empty table begins with
        the span of `first`."""
        known = lake.snapshot(self.table).note(UNTIL)
        end = final_until(clock, self.length, self.lateness)
        begin = moment(known) if known is not None else None if first is None else final_until(first, self.length)
        return None if begin is None or begin >= end else (begin, end)


def gold_step(
    spark: SparkSession,
    lake: Lake,
    settings: Settings,
    clock: datetime,
    most: int,
    checks: Checks = NO_CHECKS,
    table: Table = GOLD,
) -> int | None:
    """Windows that have become final; how many rows, or None if there are none. The range is halved until about `most`
    readings are read. Raises RuleFailed."""
    silver = lake.snapshot(SILVER)
    span = gold_span(lake, settings, clock, table)

    def bounds(start: datetime, end: datetime) -> tuple[datetime, datetime]:
        low, high = arrivals(start, end, settings)
        return moment(low), moment(high)

    def derive(start: datetime, end: datetime) -> DataFrame:
        return gold(silver.read_between(spark, "arrival", *bounds(start, end)), start, end, settings)

    if span is None:
        return None
    return commit_span(lake, table, narrowed(silver, span, settings.window, bounds, most), derive, checks=checks)


def gold_span(lake: Lake, settings: Settings, clock: datetime, table: Table = GOLD) -> tuple[datetime, datetime] | None:
    """What is next: from where gold ends to where windows are final; None if that is nothing."""
    first = first_arrival(lake.snapshot(SILVER))
    early = timedelta(seconds=settings.window + settings.lateness)
    spans = Spans(table, settings.window, settings.lateness)
    return spans.next(lake, clock, None if first is None else first - early)


def late_step(
    spark: SparkSession, lake: Lake, settings: Settings, clock: datetime, most: int, table: Table = LATE
) -> int | None:
    """The same for what came too late, by minutes of arrival."""
    silver = lake.snapshot(SILVER)
    span = Spans(table, MINUTE).next(lake, clock, first_arrival(silver))
    if span is None:
        return None

    def derive(start: datetime, end: datetime) -> DataFrame:
        return late(silver.read_between(spark, "arrival", start, end), start, end, settings)

    return commit_span(lake, table, narrowed(silver, span, MINUTE, lambda *both: both, most), derive)


def outcomes_step(spark: SparkSession, lake: Lake, clock: datetime, most: int) -> int | None:
    """Where the messages of the minutes went that are over in every store, and that silver has."""
    bronze = lake.snapshot(BRONZE)
    span = Spans(OUTCOMES, MINUTE).next(lake, clock, first_arrival(bronze))
    if span is None:
        return None
    return commit_span(
        lake, OUTCOMES, narrowed(bronze, span, MINUTE, lambda *both: both, most), partial(outcomes_of, spark, lake)
    )


def outcomes_of(spark: SparkSession, lake: Lake, start: datetime, end: datetime) -> DataFrame:
    tables = (BRONZE, SILVER, QUARANTINE, DROPPED)
    bronze, silver, quarantine, dropped = (
        lake.snapshot(table).read_between(spark, "arrival", start, end) for table in tables
    )
    return outcomes(bronze, silver, quarantine, dropped, start, end)


def first_arrival(table: Snapshot) -> datetime | None:
    """Of all rows; None if there are none."""
    return min((low for low in table.lows("arrival") if low is not None), default=None)


def narrowed(
    input: Snapshot,
    span: tuple[datetime, datetime],
    length: int,
    bounds: Callable[[datetime, datetime], tuple[datetime, datetime]],
    most: int,
) -> tuple[datetime, datetime]:
    """The beginning of a span of which about `most` rows have to be read; one window at least."""
    start, end = span
    while (windows := int((end - start).total_seconds()) // length) > 1:
        if input.rows_of(input.files_between("arrival", *bounds(start, end))) <= most:
            break
        end = start + timedelta(seconds=windows // 2 * length)
    return start, end


def commit_span(
    lake: Lake,
    table: Table,
    span: tuple[datetime, datetime],
    derive: Callable[[datetime, datetime], DataFrame],
    positions: Positions | None = None,
    checks: Checks = NO_CHECKS,
) -> int:
    """Compute a span and commit it with the note that says so, and with positions up to which it goes. Raises LakeError
    if the table does not end where the span begins, and RuleFailed."""
    log = lake.log(table)
    seen = log.look()
    if seen.note(UNTIL) not in (None, exact(span[0])):
        raise LakeError(f"{log.where}: somebody else has written to the table; is the same pipeline running twice?")
    if checks:
        span = checked_span(lake, checks, span)
        return commit_windows(lake, table, checks, span, derive(*span), seen)
    files = write_rows(derive(*span).select(*table.names), log)
    log.commit(files, {UNTIL: exact(span[1])}, job=table.name, positions=positions, seen=seen)
    return sum(file.rows for file in files)
