"""A part of a table in place of another: the rows of a range of time, or some rows less. One commit each.

Theory. Files that have rows which are to go are replaced by files with their other rows; what is to come instead is
written beside them. A commit names all of it at once, so a reader sees the rows as they were, or as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from headwater.pipeline.decoding import Rules
from headwater.pipeline.derive.belonging import arrivals
from headwater.pipeline.derive.completeness import completeness
from headwater.pipeline.derive.gold import gold
from headwater.pipeline.derive.late import late
from headwater.pipeline.derive.latest import latest
from headwater.pipeline.derive.moments import final_until, moment
from headwater.pipeline.derive.traffic import traffic
from headwater.pipeline.jobs import operations
from headwater.pipeline.jobs.accounts import LARGEST
from headwater.pipeline.jobs.facts import before_first, erased_ranges
from headwater.pipeline.jobs.latest import JOB as LATEST_JOB
from headwater.pipeline.jobs.positions import flat
from headwater.pipeline.jobs.remaking import Plan
from headwater.pipeline.jobs.settings import Settings
from headwater.pipeline.jobs.silver import JOB as SILVER_JOB
from headwater.pipeline.jobs.silver import decoded
from headwater.pipeline.jobs.windows import MINUTE, UNTIL
from headwater.pipeline.lake.commits import REMOVED
from headwater.pipeline.lake.files import WrittenFile
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.made import REMADE
from headwater.pipeline.lake.reading import FILE
from headwater.pipeline.lake.snapshot import Snapshot
from headwater.pipeline.lake.writing import write_rows
from headwater.pipeline.operations.members import members
from headwater.pipeline.tables import (
    BRONZE,
    GOLD,
    LATE,
    LATEST,
    LIVE,
    MEMBERS,
    QUARANTINE,
    SILVER,
    TRAFFIC,
    Table,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TIMES: Final = {SILVER.name: "arrival", QUARANTINE.name: "arrival", GOLD.name: "window_start"}
"""Columns by which rows belong to a range; else it is `minute`."""
FIRST: Final = datetime(1970, 1, 2, tzinfo=UTC)
LAST: Final = datetime(9999, 12, 30, tzinfo=UTC)
"""Before all arrivals, and behind them."""


def replace_rows(
    spark: SparkSession,
    snapshot: Snapshot,
    candidates: Sequence[str],
    gone: Column,
    instead: Sequence[WrittenFile] = (),
    notes: Mapping[str, int] | None = None,
) -> int:
    """One commit: of these files the rows that are `gone` are, and the files `instead` are there. How many are gone."""
    from pyspark.sql import functions as F

    gone = F.coalesce(gone, F.lit(False))
    log = snapshot.log
    hit = snapshot.read(spark, list(candidates), names=True).where(gone)
    counts = {row[0]: row[1] for row in hit.groupBy(FILE).count().collect()} if candidates else {}
    files = [path for path in candidates if PurePosixPath(path).name in counts]
    kept = write_rows(snapshot.read(spark, files).where(~gone), log) if files else []
    removed: int = sum(counts.values())
    noted = {} if instead or not removed else {REMOVED: removed}  # nothing came, as who reads changes has to know
    log.commit([*kept, *instead], {**(notes or {}), **noted}, replaced=files, seen=snapshot.view)
    return removed


def remake_range(
    spark: SparkSession, lake: Lake, settings: Settings, rules: Rules, plan: Plan, table: Table
) -> int | None:
    """A table's part of a plan; how many rows it has then. The tables behind it have to be made after it."""
    notes = {REMADE: plan.number}
    if table == LATEST:
        return _latest(spark, lake, notes)
    snapshot = lake.snapshot(table)
    start, end = _bounds(plan, table, snapshot, settings)
    if start >= end:
        snapshot.log.commit([], notes)
        return 0
    files = _derived(spark, lake, settings, rules, table, start, end)
    column = TIMES.get(table.name, "minute")
    candidates = snapshot.files_between(column, start, end)
    replace_rows(spark, snapshot, candidates, _within(column, start, end), files, notes)
    return sum(file.rows for file in files)


def _bounds(plan: Plan, table: Table, snapshot: Snapshot, settings: Settings) -> tuple[datetime, datetime]:
    """From where to where the table's rows are computed: whole windows, those that readings of the range can belong
    to, and not beyond what is final."""
    start, end = plan.start or FIRST, plan.end or LAST
    if table in (SILVER, QUARANTINE):
        return start, end
    deriving = settings.deriving
    length = deriving.window if table == GOLD else MINUTE
    if table == GOLD and SILVER.name in plan.tables and plan.start is not None:
        start -= timedelta(seconds=deriving.window + deriving.lateness)
    if table == GOLD and SILVER.name in plan.tables and plan.end is not None:
        end += timedelta(seconds=deriving.clock_ahead)
    until = snapshot.note(UNTIL)
    last = final_until(end - timedelta(microseconds=1), length) + timedelta(seconds=length)
    return final_until(start, length), min(last, FIRST if until is None else moment(until))


def _derived(
    spark: SparkSession, lake: Lake, settings: Settings, rules: Rules, table: Table, start: datetime, end: datetime
) -> list[WrittenFile]:
    """Files with the table's rows of the range, made anew; no commit names them yet."""
    log = lake.log(table)
    if table in (SILVER, QUARANTINE):
        there = lake.snapshot(table).positions(SILVER_JOB)
        ranges = {store: (0, last) for store, last in there.items()}
        rows = lake.snapshot(BRONZE).read_positions(spark, ranges).where(_within("arrival", start, end))
        return decoded(lake, rows, rules, {table.name: log}, {}).get(table.name, [])
    rows = _rows(spark, lake, settings, table, start, end)
    return write_rows(rows.select(*table.names), log)


def _rows(
    spark: SparkSession, lake: Lake, settings: Settings, table: Table, start: datetime, end: datetime
) -> DataFrame:
    silver, bronze = lake.snapshot(SILVER), lake.snapshot(BRONZE)
    if table == GOLD:
        low, high = map(moment, arrivals(start, end, settings.deriving))
        return gold(silver.read_between(spark, "arrival", low, high), start, end, settings.deriving)
    if table == LATE:
        return late(silver.read_between(spark, "arrival", start, end), start, end, settings.deriving)
    if table == TRAFFIC:
        return traffic(bronze.read_between(spark, "arrival", start, end), start, end)
    if table == MEMBERS:
        low = max(start, FIRST + operations.SILENT) - operations.SILENT
        return members(bronze.read_between(spark, "arrival", low, end), start, end)
    before = {**before_first(bronze), **_last_before(spark, bronze, start)}
    live = lake.snapshot(LIVE).read_positions(spark, {store: (last, LARGEST) for store, last in before.items()})
    here = bronze.read_between(spark, "arrival", start, end)
    return completeness(here, live, before, start, end, flat(erased_ranges(lake)))


def _last_before(spark: SparkSession, bronze: Snapshot, start: datetime) -> dict[str, int]:
    """Of each store the last position that arrived before."""
    rows = bronze.read_between(spark, "arrival", FIRST, start).groupBy("store").agg({"position": "max"})
    return {row[0]: row[1] for row in rows.collect()}


def _latest(spark: SparkSession, lake: Lake, notes: Mapping[str, int]) -> int:
    """Whole: the last reading of a topic may be from any time."""
    silver, old = lake.snapshot(SILVER), lake.snapshot(LATEST)
    found = latest(silver.read(spark).select(*LATEST.names)).coalesce(1)
    files = write_rows(found, old.log)
    ends = silver.positions(SILVER_JOB)
    old.log.commit(files, notes, job=LATEST_JOB, positions=ends, replaced=old.files, seen=old.view)
    return sum(file.rows for file in files)


def _within(column: str, start: datetime, end: datetime) -> Column:
    from pyspark.sql import functions as F

    return (F.col(column) >= F.lit(start)) & (F.col(column) < F.lit(end))
