"""A day of a fleet through the pipeline's own steps, compared with what is true of it: `scripts/bench day`.

Ten thousand devices, a reading a minute, two stores of which one cannot be read for an hour; devices that are silent,
late, wrong about the time, or send what cannot be read; a schema that changes at noon (`fleet_day`). Messages come
into bronze in `--parts` commits; after each, the pipeline does a round, with expectations, and windows that are not
final yet in a table. The decoder is mistaken until noon; then it is mended, and all is made again while the rest of the
day comes. In the end every answer is compared with the generator's own (`fleet_day_truth`): the exit status is 1 if
anything differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.pipeline.derive.settings import Settings
from headwater.pipeline.jobs.bronze import APP
from headwater.pipeline.jobs.clocks import Answers
from headwater.pipeline.jobs.pipeline import Pipeline, Round
from headwater.pipeline.jobs.remaking import Plan as RemakePlan
from headwater.pipeline.jobs.remaking import make_plan
from headwater.pipeline.jobs.settings import Settings as PipelineSettings
from headwater.pipeline.jobs.settings import make_settings
from headwater.pipeline.lake.dataset import dataset
from headwater.pipeline.lake.files import TableWriter, WrittenFile
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.sink import FIRST
from headwater.pipeline.session import make_session
from headwater.pipeline.tables import (
    BRONZE,
    COMPLETENESS,
    GOLD,
    LATE,
    LATEST,
    OPEN,
    OUTCOMES,
    QUARANTINE,
    SILVER,
    SILVER_RULES,
    TRAFFIC,
    Table,
)
from headwater_lab import machine
from headwater_lab.fleet_day import MICROSECONDS, START, Plan, batches
from headwater_lab.fleet_day_truth import Truth, truth
from headwater_lab.results import write_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST: Final = 2_000_000
RULES: Final = [{"filter": "fleet/#", "decoder": "json", "device": "{3}"}]
MISTAKEN: Final = {"filter": "fleet/#", "decoder": "json", "device": "{2}", "value": "vlaue"}
"""Until noon, when somebody sees it."""
EXPECTATIONS: Final = [
    {"name": "named", "condition": "device IS NOT NULL AND metric IS NOT NULL", "action": "fail"},
    {"name": "clock", "condition": "clock IN ('ok', 'ahead', 'behind')", "action": "quarantine"},
    {"name": "on time", "condition": "clock = 'ok' AND arrival - time < INTERVAL 15 MINUTES"},
    {"name": "a value", "condition": "value IS NOT NULL"},
]
EXACT: Final = ("window_start", "topic", "count", "min", "max", "first", "last", "gaps", "longest_gap", "flags")
ROUNDING: Final = 1e-12


class Day:
    """A lake that a plan's day is led through."""

    def __init__(self, spark: SparkSession, folder: Path, plan: Plan, tell: Callable[[str], None]) -> None:
        self.spark = spark
        self.lake = Lake(folder)
        self.plan = plan
        self.settings = make_settings({"decoding": RULES, "expectations": EXPECTATIONS, "most_rows": MOST})
        self.tell = tell
        self.seconds = 0.0
        """That the steps took."""
        self.rows = 0

    @property
    def deriving(self) -> Settings:
        return self.settings.deriving

    def run(self, parts: int) -> None:
        """The first half by rules that find no values; then by others, by which all is made again while the rest of
        the day comes."""
        day = list(batches(self.plan))
        size = -(-len(day) // parts)
        chunks = [day[number : number + size] for number in range(0, len(day), size)]
        morning = replace(self.settings, decoding=(MISTAKEN,))
        half = len(chunks) // 2
        self._pass(chunks[:half], morning, None)
        values = self._with_values()
        self._pass(chunks[half:], self.settings, make_plan(["silver"]))
        self.tell(f"readings with a value: {values:,} at noon, {self._with_values():,} in the end")
        self._finish()

    def _pass(
        self, chunks: Sequence[Sequence[pa.RecordBatch]], settings: PipelineSettings, plan: RemakePlan | None
    ) -> None:
        """Rounds until nothing is left to do of what has come, and to be made again."""
        with Pipeline(self.spark, self.lake, settings, landing=False, remake=plan) as pipeline:
            for part in chunks:
                self._land(part)
                self._round(pipeline, {})
                self.tell(f"{self.rows:,} messages, {self.rows / self.seconds:,.0f}/s in the steps behind bronze")
            while not self._round(pipeline, {}).is_idle or pipeline.remake is not None:
                pass

    def _finish(self) -> None:
        """Days later, by the clocks of the stores, all is final."""
        end = datetime.fromtimestamp((START + (self.plan.seconds + 4 * 86_400) * MICROSECONDS) / MICROSECONDS, UTC)
        asked = {store: (end, last + 1) for store, last in self.lake.log(BRONZE).positions(APP).items()}
        with Pipeline(self.spark, self.lake, self.settings, landing=False) as pipeline:
            pipeline.hurry = True
            while not self._round(pipeline, asked).is_idle:
                pass

    def _round(self, pipeline: Pipeline, asked: Answers) -> Round:
        began = time.perf_counter()
        try:
            return pipeline.round(asked)
        finally:
            self.seconds += time.perf_counter() - began

    def _with_values(self) -> int:
        found: int = dataset(self.lake.log(SILVER)).count_rows(filter=pc.field("value").is_valid())
        return found

    def _land(self, part: Sequence[pa.RecordBatch]) -> None:
        """A commit of bronze, as the sink makes it."""
        log = self.lake.log(BRONZE)
        with TableWriter(log.place, log.partition) as writer:
            for batch in part:
                writer.write(batch)
            files = writer.close()
        known = log.positions(APP)
        ends, firsts = _ranges(files)
        notes = {f"{FIRST}/{store}": first for store, first in firsts.items() if store not in known}
        log.commit(files, notes, job=APP, positions=ends)
        self.rows += sum(file.rows for file in files)

    # ---- comparing -----------------------------------------------------------------------------------------------

    def differences(self, true: Truth) -> Iterator[str]:
        """What is not as it should be, in words."""
        yield from _differ("gold", self._table(GOLD), true.gold, EXACT)
        yield from self._means(true)
        yield from _differ("late", self._table(LATE), true.late, ("window_start", "topic", "minute", "behind", "ahead"))
        names = ("topic", "time", "arrival", "value", "store", "position")
        yield from _differ("latest", self._table(LATEST), true.latest, names)
        made = self._table(COMPLETENESS)
        counted = made.filter(pc.greater(made["made"], 0)).rename_columns({"made": "messages"})
        yield from _differ("completeness", counted, true.messages, ("store", "minute", "messages"))
        if pc.sum(made["lost"]).as_py():
            yield f"completeness: {pc.sum(made['lost']).as_py()} lost"
        carried = self._table(TRAFFIC).group_by(["store", "minute"]).aggregate([("messages", "sum")])
        carried = carried.rename_columns({"messages_sum": "messages"})
        yield from _differ("traffic", carried, true.messages, ("store", "minute", "messages"))
        refused = self._table(QUARANTINE).group_by("store").aggregate([("position", "count")])
        refused = refused.rename_columns({"position_count": "messages"})
        yield from _differ("quarantine", refused, true.quarantined, ("store", "messages"))
        yield from self._accounts()
        read = self.lake.snapshot(SILVER).rows + self.lake.snapshot(QUARANTINE).rows
        if read != self.rows:
            yield f"silver and quarantine have {read:,} rows of {self.rows:,} messages"

    def _accounts(self) -> Iterator[str]:
        """Each rule was asked of each reading once, though a part was decoded twice; each message is somewhere; no
        window is open any more."""
        silver = self.lake.snapshot(SILVER).rows
        for row in (
            self._table(SILVER_RULES).group_by("rule").aggregate([("checked", "sum"), ("failed", "sum")]).to_pylist()
        ):
            if row["checked_sum"] != silver or (row["failed_sum"] and row["rule"] in ("named", "clock")):
                yield f"the rule {row['rule']} was asked {row['checked_sum']:,} times, and failed {row['failed_sum']:,}"
        gone = self._table(OUTCOMES)
        sums = {name: pc.sum(gone[name]).as_py() for name in ("messages", "silver", "quarantine", "unaccounted")}
        if sums["messages"] != self.rows or sums["unaccounted"] or sums["silver"] + sums["quarantine"] != self.rows:
            yield f"outcomes: {sums} of {self.rows:,} messages"
        if self._table(OPEN).num_rows:
            yield f"gold_open: {self._table(OPEN).num_rows:,} windows are open when all are final"

    def _means(self, true: Truth) -> Iterator[str]:
        keys = [("window_start", "ascending"), ("topic", "ascending")]
        ours, theirs = (each.sort_by(keys)["mean"] for each in (self._table(GOLD), true.gold))
        apart = pc.abs(pc.subtract(ours, theirs))
        allowed = pc.add(pc.multiply(pc.abs(theirs), ROUNDING), ROUNDING)
        wrong = pc.sum(pc.greater(apart, allowed)).as_py()
        if len(ours) == len(theirs) and wrong:
            yield f"gold: {wrong:,} means differ"

    def _table(self, table: Table) -> pa.Table:
        return pa.table(self.lake.log(table).open().to_pyarrow_table())


def _ranges(files: Sequence[WrittenFile]) -> tuple[dict[str, int], dict[str, int]]:
    """Last and first position of each store."""
    ends: dict[str, int] = {}
    firsts: dict[str, int] = {}
    for file in files:
        for store, (low, high) in file.stores.items():
            ends[store] = max(ends.get(store, high), high)
            firsts[store] = min(firsts.get(store, low), low)
    return ends, firsts


def _differ(name: str, found: pa.Table, true: pa.Table, columns: Sequence[str]) -> Iterator[str]:
    keys = [(each, "ascending") for each in columns]
    schema = true.select(list(columns)).schema
    ours = found.select(list(columns)).cast(schema).combine_chunks().sort_by(keys)
    theirs = true.select(list(columns)).combine_chunks().sort_by(keys)
    if ours.num_rows != theirs.num_rows:
        yield f"{name}: {ours.num_rows:,} rows, and {theirs.num_rows:,} are true"
    elif not ours.equals(theirs):
        wrong = [each for each in columns if not ours[each].equals(theirs[each])]
        yield f"{name}: {', '.join(wrong)} differ"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/bench day", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, default=10_000)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--parts", type=int, default=12, help="commits in which the day comes (default: 12)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    plan = Plan(devices=chosen.devices, seconds=chosen.hours * 3600, seed=chosen.seed)
    began = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    spark = make_session("local[2]")
    try:
        with tempfile.TemporaryDirectory(prefix="headwater-day-") as folder:
            day = Day(spark, Path(folder), plan, tell)
            day.run(chosen.parts)
            tell(f"the day took {timedelta(seconds=round(day.seconds))} behind bronze; now the truth")
            true = truth(plan, day.deriving)
            found = list(day.differences(true))
            figures = {"messages": day.rows, "seconds": day.seconds, "rows_per_s": day.rows / day.seconds}
            figures |= {"gold_rows": true.gold.num_rows, "late": true.late.num_rows, "topics": true.latest.num_rows}
    finally:
        spark.stop()
    for text in found or ["every answer is the generator's own"]:
        tell(text)
    if chosen.json is not None:
        about = machine.describe("steps behind bronze, Spark local[2]")
        result = {**about, "plan": vars(plan), **figures, "differences": found}
        write_json(chosen.json, result)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
