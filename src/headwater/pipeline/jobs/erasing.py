"""Messages erased from the lake, for good: what somebody has the right to have forgotten.

Theory. Positions have no gaps, so a message that is not in bronze counts as lost, and is fetched again. That it was
erased is a fact of its own, in the table `erased`: completeness counts it as such, and `backfill` leaves it alone. The
fact is committed first, then the rows go. Who is killed in between does it again: rows that are still there are found
again, and a position that is noted twice is one.

Tables that have messages lose the rows of these positions. Tables that were made of them have their rows of the topics
concerned made again from what is left. Bronze is the last to lose them, since it is where they are found. Counts by
minute (`completeness`) stay: they have no content.

Old versions of tables still name the files with the rows; `vacuum` removes these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headwater.pipeline.derive.gold import gold
from headwater.pipeline.derive.late import late
from headwater.pipeline.derive.latest import latest
from headwater.pipeline.derive.moments import moment
from headwater.pipeline.derive.traffic import traffic
from headwater.pipeline.jobs.expectations import checked_files
from headwater.pipeline.jobs.facts import CONSIDERED, erased_ranges, holes_of
from headwater.pipeline.jobs.positions import Members, Ranges, count, flat, union
from headwater.pipeline.jobs.ranges import FIRST, replace_rows
from headwater.pipeline.jobs.remaking import forget_building
from headwater.pipeline.jobs.settings import Settings
from headwater.pipeline.jobs.windows import first_arrival
from headwater.pipeline.lake.commits import REMOVED
from headwater.pipeline.lake.files import write_files
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.made import UNTIL
from headwater.pipeline.lake.snapshot import Snapshot
from headwater.pipeline.lake.types import arrow_schema
from headwater.pipeline.lake.writing import write_rows
from headwater.pipeline.operations.members import members
from headwater.pipeline.tables import (
    BRONZE,
    DROPPED,
    ERASED,
    GOLD,
    GOLD_QUARANTINE,
    LATE,
    LATEST,
    LIVE,
    MEMBERS,
    OPEN,
    QUARANTINE,
    SILVER,
    TRAFFIC,
    Table,
    windows_of,
)
from headwater.routing.topics import matches

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

RECORDED: Final = "deleted before"
"""What is said of positions that were deleted by other tools."""


@dataclass(frozen=True)
class Wanted:
    """What is to be erased: messages of topics that match, or those for which a condition of bronze's columns holds."""

    filters: tuple[str, ...] = ()
    where: str | None = None

    def __str__(self) -> str:
        return f"where {self.where}" if self.where is not None else f"topics {', '.join(self.filters)}"


@dataclass
class Found:
    """Of bronze: how many messages, which topics and positions."""

    topics: list[str]
    positions: Ranges
    rows: int = 0
    erased: dict[str, int] = field(default_factory=dict)
    """Rows that went, by table."""


def find(spark: SparkSession, lake: Lake, wanted: Wanted) -> Found:
    """What would be erased. PySparkException: the condition cannot be read."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    hit = _hit(lake.snapshot(BRONZE).read(spark), wanted)
    topics = [row[0] for row in hit.select("topic").distinct().collect()]
    if not topics:
        return Found([], {})
    number = F.row_number().over(Window.partitionBy("store").orderBy("position"))
    islands = hit.select("store", "position", (F.col("position") - number).alias("island"))
    ends = islands.groupBy("store", "island").agg(F.min("position").alias("first"), F.max("position").alias("last"))
    positions = union((row["store"], row["first"], row["last"]) for row in ends.collect())
    return Found(sorted(topics), positions, count(positions))


def erase(spark: SparkSession, lake: Lake, settings: Settings, wanted: Wanted, found: Found, why: str) -> Found:
    """Erase what was found. To be called by who holds the lake. Bronze is last: it says what is to go."""
    record(lake, found.positions, str(wanted), why)
    forget_building(lake)
    there = {table.name for table in lake.tables()}
    for table in (SILVER, QUARANTINE, LIVE, *((DROPPED,) if DROPPED.name in there else ())):
        found.erased[table.name] = _without_positions(spark, lake.snapshot(table), found.positions)
    beside = (GOLD_QUARANTINE,) if GOLD_QUARANTINE.name in there else ()
    named = settings.definitions()
    further = [table for table in lake.tables() if windows_of(table) in named and table not in (GOLD, LATE)]
    _without_open(lake)
    for table in (*beside, GOLD, LATE, *further, LATEST, TRAFFIC, MEMBERS):
        found.erased[table.name] = _made_again(spark, lake, settings, table, found)
    found.erased[BRONZE.name] = _without_positions(spark, lake.snapshot(BRONZE), found.positions)
    return found


def record(lake: Lake, positions: Ranges, what: str, why: str, *, considered: bool = True) -> None:
    """The fact, on disk when this returns. `considered`: what other tools have deleted until now is known, too."""
    log = lake.log(ERASED)
    now = datetime.now(UTC)
    rows = [
        {"store": store, "first": first, "last": last, "what": what, "why": why, "erased": now}
        for store, first, last in flat(positions)
    ]
    batch = pa.RecordBatch.from_pylist(rows, arrow_schema(ERASED))
    notes = {CONSIDERED: lake.snapshot(BRONZE).version} if considered else {}
    log.commit(write_files([batch], log.place, log.partition), notes)


def record_deleted(spark: SparkSession, lake: Lake, why: str) -> Ranges:
    """Note that all that bronze lacks was meant to be deleted; what that is."""
    lacking = holes_of(spark, lake.snapshot(BRONZE), erased_ranges(lake))
    record(lake, lacking, RECORDED, why)
    return lacking


def vacuum(lake: Lake) -> int:
    """Remove all files that the tables of now do not need; how many. Readers of older versions find them gone."""
    tables = lake.tables()
    opened = [lake.log(table).open() for table in tables]
    return sum(len(each.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)) for each in opened)


# ---- rows --------------------------------------------------------------------------------------------------------


def _hit(bronze: DataFrame, wanted: Wanted) -> DataFrame:
    from pyspark.sql import functions as F

    if wanted.where is not None:
        return bronze.where(F.expr(wanted.where))
    names = [row[0] for row in bronze.select("topic").distinct().collect()]
    return bronze.where(F.col("topic").isin([each for each in names if any(matches(f, each) for f in wanted.filters)]))


def _without_positions(spark: SparkSession, snapshot: Snapshot, positions: Ranges) -> int:
    bounds = {store: (theirs[0][0] - 1, theirs[-1][1]) for store, theirs in positions.items()}
    return replace_rows(spark, snapshot, snapshot.files_with(bounds), _are(positions))


def _are(positions: Ranges) -> Column:
    """Whether a row is at one of these."""
    from pyspark.sql import functions as F

    return F.udf(partial(_among, Members(positions)), "boolean", useArrow=False)("store", "position")


def _among(members: Members, store: str, position: int) -> bool:
    return members.has(store, position)


def _without_open(lake: Lake) -> None:
    """What windows that are not final say; a pipeline that runs says it again, of what is left."""
    snapshot = lake.existing().get(OPEN.name)
    if snapshot is not None and snapshot.files:
        snapshot.log.commit([], {REMOVED: snapshot.rows}, replaced=snapshot.files, seen=snapshot.view)


def _made_again(spark: SparkSession, lake: Lake, settings: Settings, table: Table, found: Found) -> int:
    """The rows of these topics, from what is left; how many are not there any more."""
    from pyspark.sql import functions as F

    snapshot = lake.snapshot(table)
    topics = found.topics
    of_topics = F.col("topic").isin(list(topics))
    until = snapshot.note(UNTIL)
    end = None if until is None else moment(until)
    before = snapshot.rows
    gone: Column = of_topics
    if table == MEMBERS:
        if end is None or not any(each.startswith("$") for each in topics):
            return 0
        gone = F.lit(True)
    rows = _derived(spark, lake, settings, table, of_topics, ~_are(found.positions), end)
    checks = settings.checks()[GOLD.name]
    if rows is not None and table in (GOLD, GOLD_QUARANTINE) and checks:
        instead = checked_files(lake, GOLD, checks, rows, (table,)).files.get(table.name, [])
    elif rows is not None and table != GOLD_QUARANTINE:
        instead = write_rows(rows.select(*table.names), snapshot.log)
    else:
        instead = []
    replace_rows(spark, snapshot, snapshot.files, gone, instead)
    return before - lake.snapshot(table).rows


def _derived(
    spark: SparkSession,
    lake: Lake,
    settings: Settings,
    table: Table,
    of_topics: Column,
    left: Column,
    end: datetime | None,
) -> DataFrame | None:
    """What the table has of these topics, from what is `left` of bronze; None: nothing is final."""
    silver, bronze = lake.snapshot(SILVER), lake.snapshot(BRONZE)
    if table == LATEST:
        return latest(silver.read(spark).where(of_topics).select(*LATEST.names))
    if end is None:
        return None
    name = "" if table == GOLD_QUARANTINE else windows_of(table)
    if name is not None:
        derive = late if table.name.startswith(LATE.name) else gold
        return derive(silver.read(spark).where(of_topics), FIRST, end, settings.definitions()[name])
    if table == TRAFFIC:
        return traffic(bronze.read(spark).where(of_topics & left), FIRST, end)
    return members(bronze.read(spark).where(left), first_arrival(bronze) or FIRST, end)
