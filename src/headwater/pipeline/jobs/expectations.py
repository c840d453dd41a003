"""Expectations in the steps: counts that are committed with the rows they are about, and rules that stop everything.

Theory. A step that checks rows fills further tables in the same pass (`Checks.tables`): what was dropped, what is
quarantined, and how often each rule held. Each of them is its own checkpoint as the checked table is, and is committed
before it. So a step that died in between finds some of them ahead: it does the same range again for those that lack
it. One that is behind the checked table was not filled meanwhile, as there were no rules: it goes on from there.

Counts have one row for each rule and minute. A step adds to the rows of its minutes, which replace what was said of
these minutes before: no more than the files that have them is rewritten, and other minutes of these are put into files
of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.pipeline.derive.moments import exact, moment
from headwater.pipeline.expectations.checking import EXAMPLE, Checks, check_windows
from headwater.pipeline.expectations.rule import FAIL
from headwater.pipeline.lake.dataset import dataset
from headwater.pipeline.lake.files import WrittenFile, write_files
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.log import Log, Positions, View
from headwater.pipeline.lake.made import UNTIL
from headwater.pipeline.lake.snapshot import Snapshot
from headwater.pipeline.lake.types import arrow_schema
from headwater.pipeline.lake.writing import Places, Written, write_tables
from headwater.pipeline.tables import GOLD, GOLD_QUARANTINE, GOLD_RULES, SILVER, SILVER_RULES, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEYS: Final = ("minute", "day", "rule", "action")


class RuleFailed(Exception):
    """A rule with the action fail does not hold: nothing of the batch is committed. The text says which, and where."""


def refuse_failed(told: Mapping[str, Sequence[pa.RecordBatch]], checks: Checks) -> None:
    """Raises RuleFailed."""
    if not checks.have(FAIL):
        return
    for name in (SILVER_RULES.name, GOLD_RULES.name):
        batches = told.get(name, [])
        found = pa.Table.from_batches(batches) if batches else None
        for rule in checks.rules:
            if found is None or rule.action != FAIL:
                continue
            of_rule = found.filter(pc.equal(found["rule"], rule.name))
            failed = pc.sum(of_rule["failed"]).as_py() or 0
            if failed:
                first = next(each for each in of_rule[EXAMPLE].to_pylist() if each is not None)
                raise RuleFailed(
                    f"{failed:,} of {pc.sum(of_rule['checked']).as_py():,} rows fail the expectation "
                    f"{rule.name} ({rule.said}), such as {first}. Nothing of this batch is in the tables; "
                    "mend the source, or give the rule another action"
                )


# ---- counts ------------------------------------------------------------------------------------------------------


def counted(batches: Iterable[pa.RecordBatch], table: Table) -> pa.Table:
    """One row for each rule and minute."""
    schema = arrow_schema(table)
    rows = pa.Table.from_batches([each.select(schema.names).cast(schema) for each in batches], schema)
    sums = rows.group_by(list(KEYS), use_threads=False).aggregate([("checked", "sum"), ("failed", "sum")])
    named = sums.rename_columns({"checked_sum": "checked", "failed_sum": "failed"})
    return named.select(schema.names).cast(schema)


def added(snapshot: Snapshot, table: Table, fresh: pa.Table) -> tuple[list[WrittenFile], list[str]]:
    """Files that say the counts with the fresh ones, and the files whose place they take."""
    if not fresh.num_rows:
        return [], []
    bounds = pc.min_max(fresh["minute"]).as_py()
    replaced = snapshot.files_between("minute", bounds["min"], bounds["max"] + timedelta(microseconds=1))
    schema = arrow_schema(table)
    old = [_read(snapshot, path, schema) for path in replaced]
    rows = counted((batch for each in (*old, fresh) for batch in each.to_batches()), table).sort_by(
        [("minute", "ascending"), ("rule", "ascending")]
    )
    rows = rows.filter(pc.greater(rows["checked"], 0))
    is_hit = pc.is_in(rows["minute"], fresh["minute"].combine_chunks())
    log = snapshot.log
    files: list[WrittenFile] = []
    for part in (rows.filter(is_hit), rows.filter(pc.invert(is_hit))):
        if part.num_rows:
            files += write_files(part.combine_chunks().to_batches(), log.place, log.partition, lean=True)
    return files, replaced


def counts_between(snapshot: Snapshot, table: Table, start: datetime, end: datetime) -> pa.Table:
    """What the table says of minutes with start ≤ minute < end."""
    schema = arrow_schema(table)
    rows = [_read(snapshot, path, schema) for path in snapshot.files_between("minute", start, end)]
    found = pa.concat_tables([schema.empty_table(), *rows])
    first, last = (pa.scalar(each, found["minute"].type) for each in (start, end))
    return found.filter(pc.and_(pc.greater_equal(found["minute"], first), pc.less(found["minute"], last)))


def difference(now: pa.Table, before: pa.Table, table: Table) -> pa.Table:
    """What has to be added to counts that were `before`, so that they are as `now`. Who adds to them meanwhile is not
    disturbed."""
    names = ("checked", "failed")
    less = before
    for name in names:
        less = less.set_column(less.column_names.index(name), name, pc.negate(less[name]))
    return counted((batch for each in (now, less) for batch in each.to_batches()), table)


def _read(snapshot: Snapshot, path: str, schema: pa.Schema) -> pa.Table:
    with snapshot.log.place.open(path) as file, pq.ParquetFile(file) as source:
        rows = source.read()
    if "day" not in rows.column_names:  # which the folder says
        day = pc.cast(pc.divide(rows["minute"].cast(pa.int64()), 86_400_000_000), pa.int32()).cast(pa.date32())
        rows = rows.append_column("day", day)
    return rows.select(schema.names).cast(schema)


# ---- silver ------------------------------------------------------------------------------------------------------


def take_up(log: Log, view: View, job: str, done: Positions, there: Positions) -> tuple[View, Positions]:
    """A table beside silver that was not filled while there were no rules goes on where silver is."""
    if all(done.get(store, 0) >= last for store, last in there.items()):
        return view, done
    ahead = {store: max(done.get(store, 0), last) for store, last in there.items()}
    log.commit([], {}, job=job, positions=ahead, seen=view)
    return log.look(), {**done, **ahead}


def commit_beside(lake: Lake, table: Table, written: Written, job: str, positions: Positions, seen: View) -> None:
    """What a step of silver has for a table beside it."""
    log = lake.log(table)
    if table != SILVER_RULES:
        log.commit(written.files.get(table.name, []), {}, job=job, positions=positions, seen=seen)
        return
    fresh = counted(written.told.get(table.name, []), table)
    files, replaced = added(lake.snapshot(table), table, fresh)
    log.commit(files, {}, job=job, positions=positions, replaced=replaced, seen=seen)


# ---- gold --------------------------------------------------------------------------------------------------------


def checked_span(lake: Lake, checks: Checks, span: tuple[datetime, datetime]) -> tuple[datetime, datetime]:
    """As much of it as tables beside gold have already, if one has some of it."""
    notes = [lake.snapshot(table).note(UNTIL) for table in checks.tables]
    ahead = [moment(each) for each in notes if each is not None and each > exact(span[0])]
    return span[0], min(span[1], *ahead) if ahead else span[1]


def commit_windows(
    lake: Lake, table: Table, checks: Checks, span: tuple[datetime, datetime], rows: DataFrame, seen: View
) -> int:
    """Windows of a span, checked; what is beside gold first. Raises RuleFailed."""
    views = {each.name: lake.log(each).look() for each in checks.tables}
    end = exact(span[1])
    lacking = [each for each in checks.tables if (views[each.name].note(UNTIL) or 0) < end]
    written = checked_files(lake, table, checks, rows, (*lacking, table))
    for each in lacking:
        log = lake.log(each)
        if each == GOLD_RULES:
            fresh = counted(written.told.get(each.name, []), each)
            files, replaced = added(lake.snapshot(each), each, fresh)
            log.commit(files, {UNTIL: end}, replaced=replaced, seen=views[each.name])
        else:
            log.commit(written.files.get(each.name, []), {UNTIL: end}, seen=views[each.name])
    files = written.files.get(table.name, [])
    lake.log(table).commit(files, {UNTIL: end}, job=table.name, seen=seen)
    return sum(file.rows for file in files)


def checked_files(lake: Lake, table: Table, checks: Checks, rows: DataFrame, wanted: Sequence[Table]) -> Written:
    """Files of gold, or of the windows that are quarantined, or both, which no commit names yet. Raises RuleFailed."""
    logs = {each.name: lake.log(each) for each in wanted if each not in (GOLD_RULES, SILVER_RULES)}
    places: Places = {name: (log.place, log.partition) for name, log in logs.items()}
    split = partial(_split_windows, checks, table.name, tuple(each.name for each in wanted))
    written = write_tables(rows.select(*GOLD.names), split, places)
    refuse_failed(written.told, checks)
    return written


def _split_windows(
    checks: Checks, name: str, wanted: Sequence[str], batch: pa.RecordBatch
) -> Iterable[tuple[str, pa.RecordBatch]]:
    stay, quarantined, counts = check_windows(batch, checks)
    found = ((name, stay), (GOLD_QUARANTINE.name, quarantined), (GOLD_RULES.name, counts))
    return [(each, part) for each, part in found if each in wanted or each == GOLD_RULES.name]


# ---- for those who look ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RuleCount:
    """How often a rule held, since the tables were made and in the newest minute that has rows."""

    table: str
    rule: str
    action: str
    checked: int
    failed: int
    minute: datetime | None
    checked_last: int
    failed_last: int


def rule_counts(lake: Lake) -> list[RuleCount]:
    """Of all expectations that were ever counted: for `status`, and for metrics. Without Spark, and of a lake that
    somebody writes to."""
    found: list[RuleCount] = []
    there = lake.existing()
    for of, table in ((SILVER, SILVER_RULES), (GOLD, GOLD_RULES)):
        if table.name not in there:
            continue
        rows = dataset(there[table.name].log).to_table(columns=["minute", "rule", "action", "checked", "failed"])
        sums = rows.group_by(["rule", "action"]).aggregate([("checked", "sum"), ("failed", "sum"), ("minute", "max")])
        last: dict[tuple[Any, ...], dict[str, Any]] = {}
        if rows.num_rows:
            newest = rows.filter(pc.equal(rows["minute"], pc.max(rows["minute"])))
            last = {(row["rule"], row["action"]): row for row in newest.to_pylist()}
        for row in sums.sort_by([("rule", "ascending"), ("action", "ascending")]).to_pylist():
            now = last.get((row["rule"], row["action"]), {})
            seen = row["minute_max"].astimezone(UTC)
            found.append(
                RuleCount(
                    of.name,
                    row["rule"],
                    row["action"],
                    row["checked_sum"],
                    row["failed_sum"],
                    seen,
                    now.get("checked", 0),
                    now.get("failed", 0),
                )
            )
    return found
