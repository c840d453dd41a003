"""The last reading of each topic, device and metric: a table of which a step writes what changed (`lake.pages`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.objects import Place
from headwater.pipeline.derive.latest import ORDER, latest
from headwater.pipeline.jobs.silver import JOB as SILVER_JOB
from headwater.pipeline.jobs.silver import pending
from headwater.pipeline.lake.files import WrittenFile, write_files
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.pages import Change, PagedRows
from headwater.pipeline.lake.types import arrow_schema
from headwater.pipeline.tables import LATEST, SILVER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB: Final = "latest"


@dataclass(frozen=True)
class Step:
    """Topics whose last reading is another one now, and the bytes that were written for it."""

    changed: int
    bytes: int


def paged_rows() -> PagedRows:
    """What a process knows of the table's files, from step to step."""
    return PagedRows(arrow_schema(LATEST), LATEST.keys, _moment, ORDER)


def step(spark: SparkSession, lake: Lake, most: int, paged: PagedRows) -> Step | None:
    """What is new in silver; None if there is nothing. Files that have changed rows are replaced in the commit that
    says how far the table goes. Changed rows pass through the driver: no more than the step has keys."""
    silver, old = lake.snapshot(SILVER), lake.snapshot(LATEST)
    ranges = pending(silver.positions(SILVER_JOB), [old.positions(JOB)], most)
    if not ranges:
        return None
    fresh = latest(silver.read_positions(spark, ranges).select(*LATEST.names)).toArrow()
    log = lake.log(LATEST)
    change = paged.change(log.place, old.files, fresh)
    files = write_pages(log.place, change)
    ends = {store: last for store, (_, last) in ranges.items()}
    log.commit(files, {}, job=JOB, positions=ends, replaced=change.replaced, seen=old.view)
    return Step(change.changed, sum(file.size for file in files))


def write_pages(place: Place, change: Change) -> list[WrittenFile]:
    """A file for each page, which no commit names yet; nothing is left of them if it fails."""
    files: list[WrittenFile] = []
    try:
        for page in change.pages:
            files += write_files(page.to_batches(), place, None, lean=True)
    except BaseException:
        place.delete(each.path for each in files)
        raise
    return files


def _moment(rows: pa.Table) -> pa.ChunkedArray:
    """As `derive.latest` has it."""
    return pc.if_else(pc.equal(rows.column("clock"), "ahead"), rows.column("arrival"), rows.column("time"))
