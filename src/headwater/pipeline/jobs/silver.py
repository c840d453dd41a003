"""Silver and quarantine: what is new in bronze, decoded, each message into exactly one of the two.

Theory. The step reads the positions behind those that both tables contain, up to those that bronze contains, and writes
both tables in one pass. They are two transactions. If it dies between them, the next step finds one table ahead of the
other: it decodes the same range again for the one that lacks it, and leaves the other alone. With expectations, tables
beside silver are filled in the same pass, and committed before it (`jobs.expectations`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headwater.pipeline.decoding import COLUMNS, Rules, decode
from headwater.pipeline.expectations.checking import NO_CHECKS, Checks, check_readings
from headwater.pipeline.jobs.bronze import APP as BRONZE_APP
from headwater.pipeline.jobs.expectations import commit_beside, refuse_failed, take_up
from headwater.pipeline.jobs.inference import decide, known_columns
from headwater.pipeline.lake.files import WrittenFile
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.log import Log, Positions
from headwater.pipeline.lake.scan import Rows, scan
from headwater.pipeline.lake.types import SPARK
from headwater.pipeline.lake.writing import Written, write_tables
from headwater.pipeline.tables import BRONZE, DROPPED, QUARANTINE, SILVER, SILVER_RULES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB: Final = "silver"
TARGETS: Final = (SILVER, QUARANTINE)


@dataclass(frozen=True)
class Step:
    """What was done: `behind` is how many messages are left."""

    messages: int
    behind: int
    quarantined: int


def step(spark: SparkSession, lake: Lake, rules: Rules, most: int, checks: Checks = NO_CHECKS) -> Step | None:
    """Decode up to so many messages; None: there is nothing new. Raises RuleFailed."""
    bronze = lake.snapshot(BRONZE)
    targets = (*checks.tables, *TARGETS)
    logs = {table.name: lake.log(table) for table in targets}
    seen = {name: log.look() for name, log in logs.items()}
    done = {name: view.positions(JOB) for name, view in seen.items()}
    least = {store: min(done[table.name].get(store, 0) for table in TARGETS) for store in done[SILVER.name]}
    for table in checks.tables:
        name = table.name
        seen[name], done[name] = take_up(logs[name], seen[name], JOB, done[name], least)
    ranges = pending(bronze.positions(BRONZE_APP), done.values(), most)
    if not ranges:
        return None
    ends = {store: last for store, (_, last) in ranges.items()}
    rows = scan(spark, bronze, ranges, COLUMNS)
    lacking = {name: log for name, log in logs.items() if any(done[name].get(s, 0) < end for s, end in ends.items())}
    before = {store: after for store, (after, _) in ranges.items()}
    written = decoded(lake, rows, rules, lacking, before, checks)
    for table in targets:
        if table.name in lacking:
            commit_beside(lake, table, written, JOB, ends, seen[table.name])
    left = sum(bronze.positions(BRONZE_APP).values()) - sum(ends.values())
    quarantined = sum(file.rows for file in written.files.get(QUARANTINE.name, []))
    return Step(sum(last - after for after, last in ranges.values()), max(0, left), quarantined)


def pending(there: Positions, done: Iterable[Positions], most: int) -> dict[str, tuple[int, int]]:
    """What all outputs lack, as ranges of positions of about `most` messages in all; a function of its arguments, so
    that a step that is done again is the same one as long as an output has it half."""
    outputs = list(done)
    ahead = {store: max(each.get(store, 0) for each in outputs) for store in there}
    begin = {store: min(each.get(store, 0) for each in outputs) for store in there}
    half = {store: (begin[store], ahead[store]) for store in there if begin[store] < ahead[store]}
    if half:
        return half
    waiting = {store: last - begin[store] for store, last in there.items() if last > begin[store]}
    share = min(1.0, most / max(1, sum(waiting.values())))
    return {store: (begin[store], begin[store] + max(1, int(count * share))) for store, count in waiting.items()}


def decoded(
    lake: Lake,
    rows: Rows,
    rules: Rules,
    logs: Mapping[str, Log],
    behind: Positions,
    checks: Checks = NO_CHECKS,
) -> Written:
    """Files of the tables, which no commit names yet, and counts. Columns that payloads bring are decided for good
    (`jobs.inference`): two executors may have taken the same new one for different types, or have found more than there
    may be; then all decode again by the decision. Raises RuleFailed."""
    names = tuple(logs)
    places = {name: (log.place, log.partition) for name, log in logs.items() if name != SILVER_RULES.name}
    known = rules.knowing(known_columns(lake, rules))
    written = write_tables(rows, partial(_split, known, checks, names), places)
    refuse_failed(written.told, checks)
    types = _types(written.files.get(SILVER.name, []))
    new = {name: "string" if "string" in found else found[0] for name, found in types.items()}
    new = {name: type for name, type in sorted(new.items()) if name not in known.columns}
    if not known.infers or not new:
        return written
    room = max(0, rules.limits.most_columns - len(known.columns))
    agreed = all(len(found) == 1 for found in types.values()) and len(new) < room
    new = dict(list(new.items())[:room])
    decide(lake, rules, new, behind)
    if agreed:
        return written
    return write_tables(rows, partial(_split, known.knowing(new, closed=True), checks, names), places)


def _split(
    rules: Rules, checks: Checks, names: Sequence[str], batch: pa.RecordBatch
) -> Iterable[tuple[str, pa.RecordBatch]]:
    decoded = decode(batch, rules)
    both = [(SILVER.name, decoded.readings), (QUARANTINE.name, decoded.quarantined)]
    if checks:
        found = check_readings(batch, decoded, checks)
        both = [(SILVER.name, found.readings), (QUARANTINE.name, found.quarantined)]
        both += [(DROPPED.name, found.dropped), (SILVER_RULES.name, found.counts)]
    return [(name, part) for name, part in both if name in names or name == SILVER_RULES.name]


def _types(files: Sequence[WrittenFile]) -> dict[str, list[str]]:
    """Of each further column, the types that it has in files."""
    found: dict[str, list[str]] = {}
    for file in files:
        for each in file.arrow_schema():
            name = SPARK[each.type]
            if each.name not in SILVER.names and name not in found.setdefault(each.name, []):
                found[each.name].append(name)
    return found
