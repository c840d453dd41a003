"""Silver and quarantine: what is new in bronze, decoded, each message into exactly one of the two.

Theory. The step reads the positions behind those that both tables contain, up to those that bronze contains, and writes
both tables in one pass. They are two transactions. If it dies between them, the next step finds one table ahead of the
other: it decodes the same range again for the one that lacks it, and leaves the other alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headwater.pipeline.decoding import Rules, decode
from headwater.pipeline.jobs.bronze import APP as BRONZE_APP
from headwater.pipeline.jobs.inference import decide, known_columns
from headwater.pipeline.lake.files import WrittenFile
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.log import Log, Positions
from headwater.pipeline.lake.types import SPARK
from headwater.pipeline.lake.writing import write_tables
from headwater.pipeline.tables import BRONZE, QUARANTINE, SILVER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOB: Final = "silver"
TARGETS: Final = (SILVER, QUARANTINE)


@dataclass(frozen=True)
class Step:
    """What was done: `behind` is how many messages are left."""

    messages: int
    behind: int
    quarantined: int


def step(spark: SparkSession, lake: Lake, rules: Rules, most: int) -> Step | None:
    """Decode up to so many messages; None: there is nothing new."""
    bronze = lake.snapshot(BRONZE)
    logs = {table.name: lake.log(table) for table in TARGETS}
    seen = {name: log.look() for name, log in logs.items()}
    done = {name: view.positions(JOB) for name, view in seen.items()}
    ranges = pending(bronze.positions(BRONZE_APP), done.values(), most)
    if not ranges:
        return None
    ends = {store: last for store, (_, last) in ranges.items()}
    rows = bronze.read_positions(spark, ranges)
    lacking = {name: log for name, log in logs.items() if any(done[name].get(s, 0) < end for s, end in ends.items())}
    before = {store: after for store, (after, _) in ranges.items()}
    written = decoded(lake, rows, rules, lacking, before)
    for name, log in lacking.items():
        log.commit(written.get(name, []), {}, job=JOB, positions=ends, seen=seen[name])
    left = sum(bronze.positions(BRONZE_APP).values()) - sum(ends.values())
    quarantined = sum(file.rows for file in written.get(QUARANTINE.name, []))
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
    lake: Lake, rows: DataFrame, rules: Rules, logs: Mapping[str, Log], behind: Positions
) -> dict[str, list[WrittenFile]]:
    """Files of the tables, which no commit names yet. Columns that payloads bring are decided here, for good
    (`jobs.inference`): two executors may have taken the same new one for different types, or have found more than there
    may be; then all decode again by the decision."""
    places = {name: (log.place, log.partition) for name, log in logs.items()}
    known = rules.knowing(known_columns(lake, rules))
    written = write_tables(rows, partial(_split, known, tuple(places)), places)
    types = _types(written.get(SILVER.name, []))
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
    return write_tables(rows, partial(_split, known.knowing(new, closed=True), tuple(places)), places)


def _split(rules: Rules, names: Sequence[str], batch: pa.RecordBatch) -> Iterable[tuple[str, pa.RecordBatch]]:
    decoded = decode(batch, rules)
    both = ((SILVER.name, decoded.readings), (QUARANTINE.name, decoded.quarantined))
    return [(name, part) for name, part in both if name in names]


def _types(files: Sequence[WrittenFile]) -> dict[str, list[str]]:
    """Of each further column, the types that it has in files."""
    found: dict[str, list[str]] = {}
    for file in files:
        for each in file.arrow_schema():
            name = SPARK[each.type]
            if each.name not in SILVER.names and name not in found.setdefault(each.name, []):
                found[each.name].append(name)
    return found
