"""A part of a table in place of another: the rows of a range of time, or some rows less. One commit each.

Theory. Files that have rows which are to go are replaced by files with their other rows; what is to come instead is
written beside them. A commit names all of it at once, so a reader sees the rows as they were, or as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headwater.pipeline.decoding import COLUMNS, Rules
from headwater.pipeline.derive.belonging import arrivals
from headwater.pipeline.derive.completeness import completeness
from headwater.pipeline.derive.gold import gold
from headwater.pipeline.derive.late import late
from headwater.pipeline.derive.latest import latest
from headwater.pipeline.derive.moments import SECOND, final_until, moment
from headwater.pipeline.derive.traffic import traffic
from headwater.pipeline.jobs import operations
from headwater.pipeline.jobs.accounts import LARGEST
from headwater.pipeline.jobs.expectations import added, checked_files, counted, counts_between, difference
from headwater.pipeline.jobs.facts import before_first, erased_ranges
from headwater.pipeline.jobs.latest import JOB as LATEST_JOB
from headwater.pipeline.jobs.positions import flat
from headwater.pipeline.jobs.remaking import Plan, left
from headwater.pipeline.jobs.settings import Settings
from headwater.pipeline.jobs.silver import JOB as SILVER_JOB
from headwater.pipeline.jobs.silver import decoded
from headwater.pipeline.jobs.windows import MINUTE, narrowed, outcomes_of
from headwater.pipeline.lake.commits import REMOVED
from headwater.pipeline.lake.files import WrittenFile
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.made import REMADE, UNTIL
from headwater.pipeline.lake.reading import FILE
from headwater.pipeline.lake.scan import between, scan
from headwater.pipeline.lake.snapshot import Snapshot
from headwater.pipeline.lake.writing import Written, write_rows
from headwater.pipeline.operations.members import members
from headwater.pipeline.tables import (
    BRONZE,
    COMPLETENESS,
    DROPPED,
    GOLD,
    GOLD_QUARANTINE,
    GOLD_RULES,
    LATEST,
    LIVE,
    MEMBERS,
    OUTCOMES,
    QUARANTINE,
    SILVER,
    SILVER_RULES,
    TRAFFIC,
    Table,
    windows_of,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TIMES: Final = {
    **{table.name: "arrival" for table in (SILVER, QUARANTINE, DROPPED)},
    **{table.name: "window_start" for table in (GOLD, GOLD_QUARANTINE)},
}
"""Columns by which rows belong to a range; else it is `minute`."""
OF_SILVER: Final = (SILVER, QUARANTINE, DROPPED, SILVER_RULES)
COUNTS: Final = (SILVER_RULES, GOLD_RULES)
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
    spark: SparkSession, lake: Lake, settings: Settings, rules: Rules, plan: Plan, most: int
) -> Iterator[int]:
    """A plan's tables in their order. Slices of about `most` rows are computed, and said how many rows have come of
    each, so that others have their turn in between; a table's are committed at once, when it has all. Who is stopped
    begins the table anew. The tables go on meanwhile: what they got since it began stays."""
    for table in left(lake, plan):
        yield from _remake(spark, lake, settings, rules, plan, table, most)


def _remake(
    spark: SparkSession, lake: Lake, settings: Settings, rules: Rules, plan: Plan, table: Table, most: int
) -> Iterator[int]:
    notes = {REMADE: plan.number}
    if table == LATEST:
        yield _latest(spark, lake, notes)
        return
    before = lake.snapshot(table)
    start, end = _bounds(plan, table, before, settings)
    there = before.positions(SILVER_JOB) if table in OF_SILVER else {}
    old = counts_between(before, table, start, end) if table in COUNTS else None
    files: list[WrittenFile] = []
    told: list[pa.RecordBatch] = []
    for low, high in _slices(lake, table, settings, start, end, most):
        made = _derived(spark, lake, settings, rules, table, low, high, there)
        files += made.files.get(table.name, [])
        told += made.told.get(table.name, [])
        yield sum(file.rows for file in files)
    now = lake.snapshot(table)
    if old is not None:
        files, replaced = added(now, table, difference(counted(told, table), old, table))
        now.log.commit(files, notes, replaced=replaced, seen=now.view)
    elif start >= end:
        now.log.commit([], notes)
    else:
        column = TIMES.get(table.name, "window_start" if _is_gold(table) else "minute")
        gone = _within(column, start, end)
        if there:
            gone = gone & _up_to(there)
        replace_rows(spark, now, now.files_between(column, start, end), gone, files, notes)


def _slices(
    lake: Lake, table: Table, settings: Settings, start: datetime, end: datetime, most: int
) -> Iterator[tuple[datetime, datetime]]:
    """The range in parts of whole windows, of each of which about so many rows are read."""
    of_windows = _is_gold(table) or table in (GOLD_QUARANTINE, GOLD_RULES)
    input = lake.snapshot(SILVER if of_windows or windows_of(table) is not None else BRONZE)
    definition = settings.definitions()[(windows_of(table) or "") if of_windows else ""]
    length = definition.window if of_windows else MINUTE
    lows = [each for each in input.lows("arrival") if each is not None]
    highs = [each for each in input.highs("arrival") if each is not None]
    if not of_windows and lows and highs:  # there is nothing before and behind
        start = max(start, final_until(min(lows), MINUTE))
        end = end if table == COMPLETENESS else min(end, max(highs) + timedelta(seconds=MINUTE))

    def bounds(low: datetime, high: datetime) -> tuple[datetime, datetime]:
        if not of_windows:
            return low, high
        first, last = arrivals(low, high, definition)
        return moment(first), moment(last)

    while start < end:
        _, stop = narrowed(input, (start, end), length, bounds, most)
        yield start, stop
        start = stop


def _bounds(plan: Plan, table: Table, snapshot: Snapshot, settings: Settings) -> tuple[datetime, datetime]:
    """From where to where the table's rows are computed: whole windows, those that readings of the range can belong
    to, and not beyond what is final."""
    start, end = plan.start or FIRST, plan.end or LAST
    if table in (SILVER, QUARANTINE, DROPPED):
        return start, end
    if table == SILVER_RULES:  # whole minutes, to which rows are added
        return final_until(start, MINUTE), final_until(end + timedelta(microseconds=MINUTE * SECOND - 1), MINUTE)
    of_windows = table in (GOLD_QUARANTINE, GOLD_RULES) or _is_gold(table)
    deriving = settings.definitions()[(windows_of(table) or "") if of_windows else ""]
    length = deriving.window if of_windows else MINUTE
    if of_windows and SILVER.name in plan.tables and plan.start is not None:
        start -= timedelta(seconds=deriving.window + deriving.lateness)
    if of_windows and SILVER.name in plan.tables and plan.end is not None:
        end += timedelta(seconds=deriving.clock_ahead)
    until = snapshot.note(UNTIL)
    last = final_until(end - timedelta(microseconds=1), length) + timedelta(seconds=length)
    return final_until(start, length), min(last, FIRST if until is None else moment(until))


def _derived(
    spark: SparkSession,
    lake: Lake,
    settings: Settings,
    rules: Rules,
    table: Table,
    start: datetime,
    end: datetime,
    there: Mapping[str, int],
) -> Written:
    """Files with the table's rows of the range, made anew; no commit names them yet."""
    checks = settings.checks()
    logs = {table.name: lake.log(table)}
    if table in OF_SILVER:
        ranges = {store: (0, last) for store, last in there.items()}
        messages = scan(spark, lake.snapshot(BRONZE), ranges, COLUMNS, between("arrival", start, end))
        return decoded(lake, messages, rules, logs, {}, checks[SILVER.name])
    if table in (GOLD, GOLD_QUARANTINE, GOLD_RULES) and checks[GOLD.name]:
        rows = _rows(spark, lake, settings, GOLD, start, end)
        return checked_files(lake, GOLD, checks[GOLD.name], rows, (table,))
    if table in (GOLD_QUARANTINE, GOLD_RULES):
        return Written()
    rows = _rows(spark, lake, settings, table, start, end)
    return Written({table.name: write_rows(rows.select(*table.names), logs[table.name])})


def _up_to(there: Mapping[str, int]) -> Column:
    """What was there when the range was begun."""
    from pyspark.sql import functions as F

    found = F.lit(False)
    for store, last in there.items():
        found = found | ((F.col("store") == store) & (F.col("position") <= last))
    return found


def _is_gold(table: Table) -> bool:
    """Of one definition or another."""
    return windows_of(table) is not None and table.name.startswith(GOLD.name)


def _rows(
    spark: SparkSession, lake: Lake, settings: Settings, table: Table, start: datetime, end: datetime
) -> DataFrame:
    silver, bronze = lake.snapshot(SILVER), lake.snapshot(BRONZE)
    name = windows_of(table)
    if name is not None:
        definition = settings.definitions()[name]
        if not _is_gold(table):
            return late(silver.read_between(spark, "arrival", start, end), start, end, definition)
        low, high = map(moment, arrivals(start, end, definition))
        return gold(silver.read_between(spark, "arrival", low, high), start, end, definition)
    if table == OUTCOMES:
        return outcomes_of(spark, lake, start, end)
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
