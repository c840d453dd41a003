"""Completeness and traffic: what was made and delivered, by minute of arrival; and what can be fetched again, is."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import datetime
from functools import partial, reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headwater.pipeline.derive.completeness import completeness
from headwater.pipeline.derive.traffic import traffic
from headwater.pipeline.jobs.bronze import APP, with_day
from headwater.pipeline.jobs.facts import before_first, deletions, erased_ranges, holes_of
from headwater.pipeline.jobs.positions import Members, Ranges, count, flat, union
from headwater.pipeline.jobs.remaking import forget_building
from headwater.pipeline.jobs.settings import Settings
from headwater.pipeline.jobs.windows import MINUTE, Spans, commit_span, first_arrival, narrowed
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.log import LakeError
from headwater.pipeline.lake.writing import write_rows
from headwater.pipeline.source.settings import FORMAT as SOURCE
from headwater.pipeline.tables import BRONZE, COMPLETENESS, LIVE, TRAFFIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECOVERY: Final = "recovery"
"""The note of bronze that counts fetches. Two who fetch the same holes would write the same number: one is refused."""
NEAR: Final = 10_000
"""Holes with so many positions between them are read as one range."""
MOST_SPANS: Final = 16
"""Ranges that one job reads."""
LARGEST: Final = 1 << 62
"""A position behind all others."""
log = logging.getLogger(__name__)


def completeness_step(spark: SparkSession, lake: Lake, clock: datetime, most: int) -> int | None:
    """Minutes that are over in every store; how many rows, or None if there are none. The commit notes the last
    position of each store that is accounted for: the next minutes begin behind it."""
    bronze = lake.snapshot(BRONZE)
    span = Spans(COMPLETENESS, MINUTE).next(lake, clock, first_arrival(bronze))
    if span is None:
        return None
    start, end = narrowed(bronze, span, MINUTE, lambda *both: both, most)
    before = {**before_first(bronze), **lake.snapshot(COMPLETENESS).positions(COMPLETENESS.name)}
    live = lake.snapshot(LIVE).read_positions(spark, {store: (last, LARGEST) for store, last in before.items()})
    here = bronze.read_between(spark, "arrival", start, end)
    rows = completeness(here, live, before, start, end, flat(erased_ranges(lake))).collect()
    made = {store: last + sum(row.made for row in rows if row.store == store) for store, last in before.items()}

    def derived(*_: datetime) -> DataFrame:
        return spark.createDataFrame(rows, COMPLETENESS.ddl)

    return commit_span(lake, COMPLETENESS, (start, end), derived, made)


def traffic_step(spark: SparkSession, lake: Lake, clock: datetime, most: int) -> int | None:
    """The same for what each topic carried."""
    bronze = lake.snapshot(BRONZE)
    span = Spans(TRAFFIC, MINUTE).next(lake, clock, first_arrival(bronze))
    if span is None:
        return None

    def derive(start: datetime, end: datetime) -> DataFrame:
        return traffic(bronze.read_between(spark, "arrival", start, end), start, end)

    return commit_span(lake, TRAFFIC, narrowed(bronze, span, MINUTE, lambda *both: both, most), derive)


def missing(lake: Lake) -> int:
    """How many positions bronze lacks of those that it should have, by the counts in its log; not those erased."""
    bronze = lake.snapshot(BRONZE)
    firsts = before_first(bronze)
    there = bronze.positions(APP)
    expected = sum(there[store] - first for store, first in firsts.items())
    return max(0, expected - bronze.rows - count(erased_ranges(lake)))


def recover(spark: SparkSession, lake: Lake, settings: Settings, *, deleted: bool = False) -> tuple[int, int]:
    """Positions that bronze lacks, though it goes further, are fetched from their stores: how many could be, and how
    many are lost. Files that its log names and that are not there are taken out of the log first. What was erased stays
    so; what somebody deleted and did not note is fetched only if it is to be (`deleted`), else LakeError. What was
    derived from bronze before does not have what it lacked: it has to be made anew."""
    gone = lake.log(BRONZE).open().repair()["files_removed"]
    if gone:
        log.warning("%d files of bronze are not there any more", len(gone))
    if not missing(lake):
        return 0, 0
    lacking = holes_of(spark, lake.snapshot(BRONZE), erased_ranges(lake))
    if lacking and not deleted and not gone and (found := deletions(lake)):
        raise LakeError(
            f"rows of bronze were deleted by another tool ({', '.join(found)} of its log). If that was meant, note it: "
            "`headwater pipeline erase --record`; if not, fetch them: `headwater pipeline backfill --deleted`"
        )
    fetched = 0
    for wanted in _jobs(lacking):
        got = _fetch(spark, lake, settings, wanted)
        log.warning("%d messages were missing; %d of them could be fetched", count(wanted), got)
        fetched += got
    if fetched:
        forget_building(lake)
    return fetched, count(lacking) - fetched


def _jobs(lacking: Ranges) -> Iterator[Ranges]:
    """The positions in few parts: holes that are near each other are read as one range, and the rest of it is left
    away, which costs less than a job for each hole."""
    part: list[tuple[str, int, int]] = []
    spans = 0
    for store, theirs in union(flat(lacking), NEAR).items():
        for first, last in theirs:
            inside = [each for each in lacking[store] if first <= each[0] <= last]
            part += [(store, *each) for each in inside]
            spans += 1
            if spans >= MOST_SPANS:
                yield union(part)
                part, spans = [], 0
    if part:
        yield union(part)


def _fetch(spark: SparkSession, lake: Lake, settings: Settings, wanted: Ranges) -> int:
    """What the stores still have of these positions, into bronze, by one job and one commit. A second try finds the
    holes filled, or as they were."""
    table = lake.log(BRONZE)
    seen = table.look()
    spans = flat(union(flat(wanted), NEAR))
    rows = reduce(lambda one, other: one.unionByName(other), [_span(spark, settings, *each) for each in spans])
    only = rows.mapInArrow(partial(_only, Members(wanted)), rows.schema)
    files = write_rows(with_day(only), table)
    table.commit(files, {RECOVERY: (seen.note(RECOVERY) or 0) + 1}, seen=seen)
    return sum(file.rows for file in files)


def _span(spark: SparkSession, settings: Settings, store: str, first: int, last: int) -> DataFrame:
    """What a store has of a range."""
    reading = spark.read.format(SOURCE)
    wanted = {
        "startingOffsets": json.dumps({store: first - 1}),
        "endingOffsets": json.dumps({store: last}),
        "failOnDataLoss": "false",
        "store": store,
    }
    for name, value in {**settings.source_options(), **wanted}.items():
        reading = reading.option(name, value)
    return reading.load()


def _only(members: Members, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        names = zip(batch.column("store").to_pylist(), batch.column("position").to_pylist(), strict=True)
        yield batch.filter(pa.array([members.has(*each) for each in names], pa.bool_()))
