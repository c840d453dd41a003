"""Completeness and traffic: what was made and delivered, by minute of arrival; and what can be fetched again, is."""

from __future__ import annotations

import json
import logging
from datetime import datetime
from typing import TYPE_CHECKING, Final

from headwater.pipeline.derive.completeness import completeness, holes
from headwater.pipeline.derive.traffic import traffic
from headwater.pipeline.jobs.bronze import APP, with_day
from headwater.pipeline.jobs.settings import Settings
from headwater.pipeline.jobs.windows import MINUTE, Spans, commit_span, first_arrival, narrowed
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.sink import FIRST
from headwater.pipeline.lake.snapshot import Snapshot
from headwater.pipeline.lake.writing import write_rows
from headwater.pipeline.source.settings import FORMAT as SOURCE
from headwater.pipeline.tables import BRONZE, COMPLETENESS, LIVE, TRAFFIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECOVERY: Final = "recovery"
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
    rows = completeness(here, live, before, start, end).collect()
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


def missing(bronze: Snapshot) -> int:
    """How many positions bronze lacks of those that it should have, by the counts in its log."""
    firsts = before_first(bronze)
    there = bronze.positions(APP)
    return sum(there[store] - first for store, first in firsts.items()) - bronze.rows


def recover(spark: SparkSession, lake: Lake, settings: Settings) -> tuple[int, int]:
    """Positions that bronze lacks, though it goes further, are fetched from their stores: how many could be, and how
    many are lost. Files that its log names and that are not there are taken out of the log first. What was derived
    from bronze before does not have what it lacked: it has to be made anew."""
    gone = lake.log(BRONZE).open().repair()["files_removed"]
    if gone:
        log.warning("%d files of bronze are not there any more", len(gone))
    bronze = lake.snapshot(BRONZE)
    if not missing(bronze):
        return 0, 0
    there = bronze.positions(APP)
    expected = {store: (before + 1, there[store]) for store, before in before_first(bronze).items()}
    found = lost = 0
    for store, first, last in holes(bronze.read(spark), expected).collect():
        got = _fetch(spark, lake, settings, store, first, last)
        found, lost = found + got, lost + (last - first + 1 - got)
        log.warning("%s: positions %d to %d were missing; %d of them could be fetched", store, first, last, got)
    return found, lost


def _fetch(spark: SparkSession, lake: Lake, settings: Settings, store: str, first: int, last: int) -> int:
    """What the store still has of a range, into bronze. A second try finds the hole filled, or as it was."""
    reading = spark.read.format(SOURCE)
    wanted = {
        "startingOffsets": json.dumps({store: first - 1}),
        "endingOffsets": json.dumps({store: last}),
        "failOnDataLoss": "false",
        "store": store,
    }
    for name, value in {**settings.source_options(), **wanted}.items():
        reading = reading.option(name, value)
    table = lake.log(BRONZE)
    files = write_rows(with_day(reading.load()), str(table.folder), table.partition)
    table.commit(files, {f"{RECOVERY}/{store}/{first}": last})
    return sum(file.rows for file in files)


def before_first(bronze: Snapshot) -> dict[str, int]:
    """Of each store the position before the first that bronze got."""
    stores = bronze.positions(APP)
    found = {store: bronze.note(f"{FIRST}/{store}") for store in stores}
    return {store: first - 1 for store, first in found.items() if first is not None}
