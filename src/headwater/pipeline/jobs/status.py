"""How far a pipeline is, from the logs of its tables and from the stores: for people, without Spark.

Nothing is locked and nothing is made: it can be asked while a pipeline runs, and of a lake that nobody writes to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.objects.arrow import source
from headwater.pipeline.derive.moments import moment
from headwater.pipeline.jobs import bronze, latest, silver
from headwater.pipeline.jobs.clocks import Answers, ask, clocks
from headwater.pipeline.jobs.expectations import RuleCount, rule_counts
from headwater.pipeline.jobs.remaking import changed, in_words, planned, stored_plan
from headwater.pipeline.jobs.settings import Settings
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.holder import Holder
from headwater.pipeline.lake.log import Positions
from headwater.pipeline.lake.made import UNTIL
from headwater.pipeline.lake.snapshot import Snapshot
from headwater.pipeline.options import OptionError
from headwater.pipeline.source.addresses import Addresses
from headwater.pipeline.source.settings import Settings as Source
from headwater.pipeline.tables import (
    BRONZE,
    COMPLETENESS,
    DROPPED,
    GOLD,
    LATEST,
    OUTCOMES,
    QUARANTINE,
    SILVER,
    SILVER_RULES,
    Table,
)

JOBS: Final = {
    BRONZE.name: bronze.APP,
    SILVER.name: silver.JOB,
    QUARANTINE.name: silver.JOB,
    DROPPED.name: silver.JOB,
    SILVER_RULES.name: silver.JOB,
    LATEST.name: latest.JOB,
    COMPLETENESS.name: COMPLETENESS.name,
}
"""Tables whose commits say positions, and whose notes those are."""
WAYS: Final = ("messages", "silver", "quarantine", "dropped", "unaccounted")
COUNTS: Final = ("made", "live", "recovered", "duplicate", "erased", "lost")


@dataclass(frozen=True)
class TableStatus:
    """`positions` is how far it contains which store; before `until` it is complete, if it is a table of windows."""

    name: str
    rows: int
    files: int
    size: int
    version: int
    positions: Positions
    until: datetime | None


@dataclass(frozen=True)
class StoreStatus:
    """`lag` and `lag_seconds` are what bronze has not got yet: messages, and time since the moment up to which it has
    everything. None: the store does not answer, or bronze has nothing of it. `behind` is what bronze has and silver
    has not."""

    store: str
    landed: int
    lag: int | None
    lag_seconds: float | None
    behind: int


@dataclass(frozen=True)
class Status:
    """`writer` is who writes to the lake now; `silent` are addresses where no store answers, each with
    what it says."""

    lake: str
    writer: Holder | None
    tables: dict[str, TableStatus] = field(default_factory=dict)
    stores: list[StoreStatus] = field(default_factory=list)
    silent: dict[str, str] = field(default_factory=dict)
    changed: dict[str, str] = field(default_factory=dict)
    """Tables that were made with other settings, with those in words."""
    remaking: tuple[str, ...] = ()
    """Tables that are made again."""
    rules: list[RuleCount] = field(default_factory=list)
    outcomes: dict[str, int] = field(default_factory=dict)
    """Of messages, where they went; empty if there are no expectations of silver."""

    @property
    def rows(self) -> int:
        """Messages that have landed."""
        return self.tables[BRONZE.name].rows if BRONZE.name in self.tables else 0

    @property
    def behind(self) -> int:
        return sum(each.behind for each in self.stores)

    @property
    def windows(self) -> int:
        """Those in gold."""
        return self.tables[GOLD.name].rows if GOLD.name in self.tables else 0

    @property
    def final_until(self) -> datetime | None:
        """Before it, windows are final and written."""
        return self.tables[GOLD.name].until if GOLD.name in self.tables else None


def look(lake: Lake, source: Source | None, now: datetime | None = None, settings: Settings | None = None) -> Status:
    """`source` says which stores are asked; None: none are. With `settings`, tables that were made with others are
    told."""
    silent: dict[str, str] = {}
    answers: Answers = {}
    if source is not None:
        try:
            answers = ask(Addresses(source), silent)
        except OptionError as error:
            silent[str(source.urls_file)] = str(error)
    snapshots = lake.existing()
    tables = {name: _table(name, snapshot) for name, snapshot in snapshots.items()}
    landing = snapshots.get(BRONZE.name)
    stores = [] if landing is None else _stores(landing, tables, answers, now or datetime.now(UTC))
    other = {} if settings is None else changed(snapshots, settings)
    plan = stored_plan(lake)
    return Status(
        lake.where,
        lake.writer(),
        tables,
        stores,
        silent,
        {name: in_words(differs) for name, differs in other.items()},
        () if plan is None else tuple(table.name for table in planned(lake, plan)),
        rule_counts(lake),
        _sums(lake, OUTCOMES, WAYS),
    )


def _table(name: str, snapshot: Snapshot) -> TableStatus:
    until = snapshot.note(UNTIL)
    positions = snapshot.positions(JOBS[name]) if name in JOBS else {}
    return TableStatus(
        name,
        snapshot.rows,
        len(snapshot.files),
        snapshot.size,
        snapshot.version,
        positions,
        None if until is None else moment(until),
    )


def _stores(landing: Snapshot, tables: Mapping[str, TableStatus], answers: Answers, now: datetime) -> list[StoreStatus]:
    landed = tables[BRONZE.name].positions
    decoded = tables[SILVER.name].positions if SILVER.name in tables else {}
    found = []
    for each in clocks(landing, landed, answers):
        there = landed.get(each.store, 0)
        seconds = None if each.moment is None else max(0.0, (now - each.moment).total_seconds())
        behind = max(0, there - decoded.get(each.store, 0))
        found.append(StoreStatus(each.store, there, each.lag, seconds, behind))
    return found


# ---- a few rows, read here ---------------------------------------------------------------------------------------


def totals(lake: Lake) -> dict[str, int]:
    """Of the completeness of all stores: made, live, recovered, duplicate, erased, lost; empty if there are no minutes
    yet."""
    return _sums(lake, COMPLETENESS, COUNTS)


def _sums(lake: Lake, table: Table, names: tuple[str, ...]) -> dict[str, int]:
    snapshot = lake.existing().get(table.name)
    rows = None if snapshot is None else _read(snapshot, snapshot.files, names)
    return {} if rows is None else {name: pc.sum(rows[name]).as_py() or 0 for name in names}


def last_windows(lake: Lake, most: int) -> list[dict[str, Any]]:
    """The rows of the last window of gold that has any, by topic."""
    snapshot = lake.existing().get(GOLD.name)
    if snapshot is None:
        return []
    newest = max((each for each in snapshot.lows("window_start") if each is not None), default=None)
    if newest is None:
        return []
    columns = ("window_start", "window_end", "topic", "metric", "count", "mean", "min", "max", "flags")
    rows = _read(snapshot, snapshot.files_between("window_start", newest, newest + timedelta(days=36_500)), columns)
    if rows is None:
        return []
    last = rows.filter(pc.equal(rows["window_start"], pc.max(rows["window_start"])))
    found: list[dict[str, Any]] = last.sort_by("topic").slice(0, most).to_pylist()
    return found


def _read(snapshot: Snapshot, files: list[str], columns: tuple[str, ...]) -> pa.Table | None:
    """None: there are no rows."""
    if not files:
        return None
    place = snapshot.log.place
    read = [pq.ParquetFile(source(place, name)).read(columns=list(columns)) for name in files]
    rows = pa.concat_tables(read, promote_options="default")  # a table may have got columns since
    return rows if rows.num_rows else None
