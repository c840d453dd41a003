"""What is found in the tables after everything was drained, and what should not be.

Theory. Bronze is compared with what the stores say by REST, byte by byte. Each table behind it is compared with what is
made anew of everything in the table before: decoded in one batch, derived in one piece. Nothing in that knows of
batches, restarts or kills, so a difference is a fault of theirs. Tables are read by Delta's own reader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headwater.pipeline.catalogs.iceberg import open_catalog
from headwater.pipeline.catalogs.settings import Iceberg
from headwater.pipeline.decoding import decode
from headwater.pipeline.derive.gold import gold
from headwater.pipeline.derive.late import late
from headwater.pipeline.derive.latest import latest
from headwater.pipeline.derive.moments import exact, final_until, moment
from headwater.pipeline.expectations.checking import check_readings
from headwater.pipeline.jobs import bronze as bronze_job
from headwater.pipeline.jobs import latest as latest_job
from headwater.pipeline.jobs import silver as silver_job
from headwater.pipeline.jobs.expectations import counted
from headwater.pipeline.jobs.settings import Settings
from headwater.pipeline.jobs.windows import MINUTE
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.made import UNTIL
from headwater.pipeline.tables import (
    BRONZE,
    BY_NAME,
    COMPLETENESS,
    DROPPED,
    LATEST,
    OUTCOMES,
    QUARANTINE,
    SILVER,
    SILVER_RULES,
    TRAFFIC,
    Table,
    gold_of,
    late_of,
)
from headwater.store.arrow_schema import PLAIN
from headwater_lab.pipeline_chaos.settings import WINDOWS

WRONG: Final = (
    *("broken", "lost", "doubled", "changed", "strange", "behind", "iceberg"),
    *(table.name for table in (SILVER, QUARANTINE, DROPPED, SILVER_RULES, LATEST, COMPLETENESS, TRAFFIC, OUTCOMES)),
    *(table.name for name in ("", *(each["name"] for each in WINDOWS)) for table in (gold_of(name), late_of(name))),
)
"""Kinds of violations: each text begins with one."""
OF_MESSAGES: Final = tuple(PLAIN.names)
SHOWN: Final = 3
EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
Key = tuple[str, int]
Row = tuple[Any, ...]


@dataclass
class Found:
    """`wrong` is what is; `rows` by table is what is there."""

    wrong: list[str] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)


def examine(spark: SparkSession, lake: Lake, settings: Settings) -> Found:
    stored = read_stores(settings)
    tables = Tables(lake)
    broken = list(_broken(lake))
    if broken:
        return Found(broken)
    wrong = [*_bronze(stored, tables), *_behind(stored, tables, settings)]
    if not wrong:  # else all the others are, too
        wrong = [*_decoded(tables, settings), *_derived(spark, tables, settings), *_accounts(stored, tables)]
    return Found(wrong, {table.name: tables.arrow(table).num_rows for table in lake.tables()})


def read_stores(settings: Settings) -> dict[Key, Row]:
    """All messages, by store and position, as REST says them."""
    found: dict[Key, Row] = {}
    source = settings.source()
    for url in source.addresses():
        client = source.client(url)
        store = client.store_id()
        for batch in client.read(dictionaries=False):
            for row in batch.select(OF_MESSAGES).to_pylist():
                found[(store, row["position"])] = tuple(row.values())
    return found


def compare_with_iceberg(lake: Lake, settings: Iceberg) -> Iterator[str]:
    """Each table that a catalog of Iceberg was told of, read from there."""
    catalog, tables = open_catalog(settings), Tables(lake)
    for name in settings.tables:
        names = BY_NAME[name].names
        told = catalog.load_table(f"{settings.namespace}.{name}").scan(selected_fields=names).to_arrow()
        there = Counter(map(repr, tables.rows(BY_NAME[name])))
        found = Counter(repr(tuple(row.values())) for row in told.select(names).to_pylist())
        for said, rows in (("lacks", there - found), ("has twice, or alone,", found - there)):
            if rows:
                yield f"iceberg: {name} {said} {rows.total()} rows, such as {next(iter(rows))[:300]}"


class Tables:
    """Read by Delta itself."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self._read: dict[str, pa.Table] = {}

    def arrow(self, table: Table) -> pa.Table:
        if table.name not in self._read:
            self._read[table.name] = self.lake.log(table).open().to_pyarrow_table()
        return self._read[table.name]

    def rows(self, table: Table) -> list[Row]:
        return [tuple(row.values()) for row in self.arrow(table).select(table.names).to_pylist()]

    def positions(self, table: Table, job: str) -> dict[str, int]:
        return self.lake.snapshot(table).positions(job)

    def until(self, table: Table) -> datetime:
        """Everything before it is final, and there."""
        return moment(self.lake.snapshot(table).note(UNTIL) or 0)

    @cached_property
    def last_arrival(self) -> datetime:
        found: datetime = max(self.arrow(BRONZE)["arrival"].to_pylist())
        return found


def _broken(lake: Lake) -> Iterator[str]:
    """A log may name only files that are there."""
    for table in lake.tables():
        log = lake.log(table)
        missing = [path for path in log.paths() if log.place.head(path) is None]
        if missing:
            yield f"broken: {table.name} consists of {len(missing)} files that are not there, such as {missing[0]}"


# ---- bronze --------------------------------------------------------------------------------------------------------


def _bronze(stored: dict[Key, Row], tables: Tables) -> Iterator[str]:
    there: dict[Key, list[Row]] = {}
    for row in tables.arrow(BRONZE).select(["store", *OF_MESSAGES]).to_pylist():
        store, *rest = row.values()
        there.setdefault((store, row["position"]), []).append(tuple(rest))
    missing = sorted(stored.keys() - there.keys())
    if missing:
        yield f"lost: {len(missing)} messages are stored and not in bronze, the first is {missing[0]}"
    doubled = sorted(key for key, rows in there.items() if len(rows) > 1)
    if doubled:
        yield f"doubled: {len(doubled)} messages are in bronze more than once, the first is {doubled[0]}"
    strange = sorted(there.keys() - stored.keys())
    if strange:
        yield f"strange: {len(strange)} messages are in bronze and not stored, the first is {strange[0]}"
    for key in sorted(stored.keys() & there.keys()):
        if any(row != stored[key] for row in there[key]):
            yield f"changed: {key} is {str(there[key])[:300]} and was {str(stored[key])[:300]}"
            return


def _behind(stored: dict[Key, Row], tables: Tables, settings: Settings) -> Iterator[str]:
    """What tables say of themselves, and whether all is done that can be."""
    ends: dict[str, int] = {}
    for store, position in stored:
        ends[store] = max(ends.get(store, 0), position)
    decoded = (SILVER, QUARANTINE, *settings.checks()[SILVER.name].tables)
    noted = ((BRONZE, bronze_job.APP), (LATEST, latest_job.JOB), *((table, silver_job.JOB) for table in decoded))
    for table, job in noted:
        found = tables.positions(table, job)
        if found != ends:
            yield f"behind: {table.name} says that it goes to {found}, and the stores to {ends}"
    if not tables.arrow(BRONZE).num_rows:
        return
    minute = final_until(tables.last_arrival, MINUTE)
    expected = [(COMPLETENESS, minute), (TRAFFIC, minute), (OUTCOMES, minute)]
    for name, deriving in settings.definitions().items():
        final = final_until(tables.last_arrival, deriving.window, deriving.lateness)
        expected += [(gold_of(name), final), (late_of(name), minute)]
    for table, least in expected:
        if tables.until(table) < least:
            yield f"behind: {table.name} goes to {tables.until(table)}, and {least} is final"


# ---- behind bronze -------------------------------------------------------------------------------------------------


def _decoded(tables: Tables, settings: Settings) -> Iterator[str]:
    """All of bronze in one batch."""
    bronze = tables.arrow(BRONZE).sort_by([("store", "ascending"), ("position", "ascending")]).combine_chunks()
    batch = pa.RecordBatch.from_arrays([each.combine_chunks() for each in bronze.columns], names=bronze.column_names)
    expected = check_readings(batch, decode(batch, settings.rules()), settings.checks()[SILVER.name])
    made = {
        SILVER: expected.readings,
        QUARANTINE: expected.quarantined,
        DROPPED: expected.dropped,
        SILVER_RULES: counted([expected.counts], SILVER_RULES),
    }
    for table, rows in made.items():
        plain = [tuple(row.values()) for row in rows.select(table.names).to_pylist()]
        yield from _differences(table, tables.rows(table), plain)


def _derived(spark: SparkSession, tables: Tables, settings: Settings) -> Iterator[str]:
    silver = tables.lake.snapshot(SILVER).read(spark)
    anew: dict[Table, DataFrame] = {}
    for name, deriving in settings.definitions().items():
        windows, too_late = gold_of(name), late_of(name)
        anew[windows] = gold(silver, EARLIEST, tables.until(windows), deriving)
        anew[too_late] = late(silver, EARLIEST, tables.until(too_late), deriving)
    anew[LATEST] = latest(silver)
    for table, expected in anew.items():
        yield from _differences(
            table, _collected(tables.lake.snapshot(table).read(spark), table), _collected(expected, table)
        )


def _collected(rows: DataFrame, table: Table) -> list[Row]:
    return [tuple(row) for row in rows.select(*table.names).collect()]


def _accounts(stored: dict[Key, Row], tables: Tables) -> Iterator[str]:
    """By minutes of arrival, counted here."""
    made: Counter[tuple[str, int]] = Counter()
    carried: dict[tuple[int, str, str], list[tuple[int, str]]] = {}
    index = {name: OF_MESSAGES.index(name) for name in ("arrival", "topic", "payload", "publisher")}
    until = {table: exact(tables.until(table)) for table in (COMPLETENESS, TRAFFIC, OUTCOMES)}
    for (store, _), row in stored.items():
        minute = exact(row[index["arrival"]]) // 60_000_000 * 60_000_000
        made[(store, minute)] += 1
        if minute < until[TRAFFIC]:
            key = (minute, row[index["topic"]], store)
            carried.setdefault(key, []).append((len(row[index["payload"]]), row[index["publisher"]]))
    counted = [
        (row["store"], exact(row["minute"]), row["made"], row["live"], row["recovered"], row["lost"])
        for row in tables.arrow(COMPLETENESS).to_pylist()
    ]
    expected = [(*key, count, 0, count, 0) for key, count in made.items() if key[1] < until[COMPLETENESS]]
    yield from _differences(COMPLETENESS, [row for row in counted if any(row[2:])], expected)
    gone = [(row["store"], exact(row["minute"]), row["messages"]) for row in tables.arrow(OUTCOMES).to_pylist()]
    there = [(*key, count) for key, count in made.items() if key[1] < until[OUTCOMES]]
    yield from _differences(OUTCOMES, gone, there)
    if any(row["unaccounted"] for row in tables.arrow(OUTCOMES).to_pylist()):
        yield "outcomes: messages are unaccounted for"
    seen = [
        (exact(row["minute"]), row["topic"], row["store"], row["messages"], row["bytes"], row["publishers"])
        for row in tables.arrow(TRAFFIC).to_pylist()
    ]
    sums = [
        (*key, len(each), sum(size for size, _ in each), len({who for _, who in each})) for key, each in carried.items()
    ]
    yield from _differences(TRAFFIC, seen, sums)


def _differences(table: Table, found: Iterable[Row], expected: Iterable[Row]) -> Iterator[str]:
    """NaN is NaN here."""
    there, wanted = Counter(map(repr, found)), Counter(map(repr, expected))
    missing, beyond = wanted - there, there - wanted
    if missing or beyond:
        yield (
            f"{table.name}: {missing.total()} rows are missing, such as {_some(missing)}; "
            f"{beyond.total()} should not be there, such as {_some(beyond)}"
        )


def _some(rows: Counter[str]) -> str:
    return "; ".join(row[:400] for row in sorted(rows)[:SHOWN]) or "none"
