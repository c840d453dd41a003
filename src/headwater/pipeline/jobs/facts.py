"""What is known of messages that bronze does not have: which were erased, and which it lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headwater.pipeline.derive.completeness import holes
from headwater.pipeline.jobs.bronze import APP
from headwater.pipeline.jobs.positions import Ranges, union, without
from headwater.pipeline.lake.dataset import dataset
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.sink import FIRST
from headwater.pipeline.lake.snapshot import Snapshot
from headwater.pipeline.lake.upkeep import noted_deletions
from headwater.pipeline.tables import BRONZE, ERASED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONSIDERED: Final = "considered"
"""The note of `erased` with the version of bronze up to which deletions are noted."""


def erased_ranges(lake: Lake) -> Ranges:
    """All positions that were erased."""
    snapshot = lake.snapshot(ERASED)
    if not snapshot.files:
        return {}
    rows = dataset(snapshot.log).to_table(columns=["store", "first", "last"]).to_pylist()
    return union((row["store"], row["first"], row["last"]) for row in rows)


def before_first(bronze: Snapshot) -> dict[str, int]:
    """Of each store the position before the first that bronze got."""
    stores = bronze.positions(APP)
    found = {store: bronze.note(f"{FIRST}/{store}") for store in stores}
    return {store: first - 1 for store, first in found.items() if first is not None}


def holes_of(spark: SparkSession, bronze: Snapshot, erased: Ranges) -> Ranges:
    """Positions that bronze lacks, though it goes further, and that were not erased."""
    there = bronze.positions(APP)
    expected = {store: (before + 1, there[store]) for store, before in before_first(bronze).items()}
    lacking = holes(bronze.read(spark).select("store", "position"), expected).collect()
    return without(union((row["store"], row["first"], row["last"]) for row in lacking), erased)


def deletions(lake: Lake) -> list[str]:
    """Deletions of rows of bronze by other tools that nobody has noted: when each was. Those of which the log has
    forgotten the commit are noted beside it."""
    known = lake.snapshot(ERASED).note(CONSIDERED)
    log = lake.log(BRONZE)
    logged = {each.get("version", 0) for each in log.open().history() if each.get("operation") == "DELETE"}
    return [f"version {each}" for each in sorted(logged | noted_deletions(log)) if each > (known or -1)]
