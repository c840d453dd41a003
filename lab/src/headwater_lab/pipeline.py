"""How fast messages come from a store into tables: `scripts/bench pipeline`, or `python -m headwater_lab.pipeline`.

A node and Spark (`local[2]`) share the machine's cores; payloads are JSON of about 100 bytes on 10,000 topics.

- source_noop: a stream of everything that the store holds, into nothing; rates are of warm batches, the first is not
  counted;
- source_bronze: the same into bronze, committed;
- parquet_bound: the rows of bronze read by Spark from their Parquet files into nothing: the bound of any source;
- tiered, catchup_tiered: the same messages from object storage, and what that costs the node (pipeline_tiered.py);
- silver, query: bronze decoded, and a question asked without Spark (pipeline_silver.py);
- rules: what is in bronze is decoded, without expectations and with ten of them, in turns;
- provisional: 2,000 messages a second while the whole pipeline runs, from sending to the commit of `gold_open` that has
  them in its windows;
- subscriber: a plain subscriber (paho-mqtt) that writes Parquet files, which is what people do now;
- freshness: 20,000 messages a second with QoS 1 while the pipeline runs with a trigger of a second: from sending to the
  commit that makes a message visible in bronze;
- catch_up (not with --quick): 10,000,000 messages wait while 20,000 a second keep coming, until bronze is not more than
  two seconds behind.

In the end bronze is compared with the store: `lost` and `duplicates` have to be 0, and the exit status is 1 if not. It
does not depend on speed.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.fleet.node import KEEP_ALL, RunningNode
from headwater.fleet.process import BrokerError
from headwater.node.persistence.schema import open_folder
from headwater.pipeline.expectations.checking import NO_CHECKS
from headwater.pipeline.jobs import bronze, silver
from headwater.pipeline.jobs.pipeline import Pipeline, Round
from headwater.pipeline.jobs.remaking import Beside, forget_building
from headwater.pipeline.jobs.settings import Settings, make_settings
from headwater.pipeline.lake.dataset import dataset
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.session import make_session
from headwater.pipeline.tables import BRONZE, OPEN, QUARANTINE, SILVER
from headwater.store.reader import StoreReader
from headwater_lab import machine, pipeline_silver, pipeline_tiered, store_inside
from headwater_lab.options import figure_options
from headwater_lab.store_contenders import CONTENDERS
from headwater_lab.store_figures import Figures
from headwater_lab.store_load import Publishers
from headwater_lab.store_messages import readings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SEED: Final = 6
RATE: Final = 20_000.0
GROUP: Final = 50_000
LOOK: Final = 0.02
"""Seconds between two looks at bronze."""
CATCH_UP: Final = 1200.0
"""Seconds that it may take."""
CAUGHT_UP: Final = 2.0
"""Seconds behind what comes."""

PROVISIONAL_RATE: Final = 2_000.0
TURNS: Final = 4
"""Of silver, with rules and without."""
EXPECTATIONS: Final = [
    {"name": "plausible", "condition": "value BETWEEN -1000000 AND 1000000 OR value IS NULL", "action": "quarantine"},
    {"name": "there", "condition": "value IS NOT NULL"},
    {"name": "on time", "condition": "arrival - time < INTERVAL 5 MINUTES"},
    {"name": "clock", "condition": "clock = 'ok'"},
    {"name": "device", "condition": "device IS NOT NULL AND length(device) <= 40"},
    {"name": "metric", "condition": "metric NOT LIKE '$%'", "action": "drop"},
    {"name": "topic", "condition": "topic LIKE '%/%' AND length(topic) < 100", "action": "drop"},
    {"name": "small", "condition": "abs(value) < 1e5 AND NOT isnan(value)"},
    {"name": "known", "condition": "decoder IN ('auto', 'json', 'number')", "action": "fail"},
    {"name": "part", "condition": "coalesce(part, 0) >= 0 AND position > 0", "action": "fail", "filter": "#"},
]
ROWS: Final = {
    "source_noop/rows_per_s": "store → nothing, rows/s",
    "source_bronze/rows_per_s": "store → bronze, rows/s",
    **pipeline_tiered.ROWS,
    "parquet_bound/rows_per_s": "the same rows from Parquet files → nothing, rows/s",
    **pipeline_silver.ROWS,
    "subscriber/rows_per_s": "a plain subscriber that writes Parquet, rows/s",
    "subscriber/missing": "messages that it did not get, as it was too slow for them",
    "catch_up/seconds": "10,000,000 that wait, and 20,000/s that keep coming: seconds until no more than two behind",
    "catch_up/rows_per_s": "catching up while 20,000/s come, rows/s",
    "catch_up/times_intake": "times what comes",
    "freshness/p50_s": "sent → visible in bronze at 20,000/s, p50 in s",
    "freshness/p95_s": "p95 in s",
    "freshness/max_s": "most in s",
    "rules/cost_ratio": "silver with ten expectations, times the seconds without",
    "provisional/p50_s": "sent → in windows that are not final yet, at 2,000/s, p50 in s",
    "provisional/p95_s": "p95 in s",
    "lost": "lost",
    "duplicates": "duplicates",
}
GOALS: Final = {
    "source_noop/rows_per_s": ("≥", 600_000.0),
    "source_bronze/rows_per_s": ("≥", 350_000.0),
    **pipeline_tiered.GOALS,
    **pipeline_silver.GOALS,
    "freshness/p50_s": ("≤", 2.0),
    "rules/cost_ratio": ("≤", 1.15),
    "provisional/p50_s": ("≤", 5.0),
    "lost": ("≤", 0.0),
    "duplicates": ("≤", 0.0),
}


class Sizes(NamedTuple):
    stored: int
    batch: int
    freshness: float
    subscriber: int
    catch_up: bool


FULL: Final = Sizes(10_000_000, 500_000, 60.0, 300_000, True)
QUICK: Final = Sizes(1_500_000, 250_000, 15.0, 50_000, False)


class Campaign:
    def __init__(self, folder: Path, sizes: Sizes, tell: Callable[[str], None]) -> None:
        self.folder = folder
        self.sizes = sizes
        self.tell = tell
        self.figures = Figures(ROWS, GOALS, {"": "here"})
        self.lake = Lake(folder / "lake")
        self.checks = make_settings({"expectations": EXPECTATIONS}).checks()[SILVER.name]
        self.spark: SparkSession

    def run(self) -> None:
        self._fill()
        self.spark = make_session("local[2]")
        try:
            self._tiered()
            with RunningNode(self.folder, log_level="error", options=KEEP_ALL) as node:
                self.settings = self._settings(node.url)
                self._noop()
                self._bronze(node)
                self._bound()
                pipeline_silver.measure(self.lake, self.spark, self.settings.most_rows, self.figures, self.tell)
                self._rules()
                self._freshness(node)
                self._check(node)
                self._provisional(node)
                self._subscriber(node)
        finally:
            self.spark.stop()

    def _settings(self, url: str) -> Settings:
        return make_settings(
            {
                "urls": [url],
                "most_rows": self.sizes.batch,
                "rows_per_partition": self.sizes.batch // 2,
                "trigger": 1.0,
            }
        )

    def _tiered(self) -> None:
        self.settings = self._settings("http://localhost:8080")
        pipeline_tiered.measure(self.folder, self.spark, self._options(), self.figures, self.tell)

    def _fill(self) -> None:
        """In process, as the store's own benchmark does; what is measured here is how it comes out."""
        data = self.folder / "data"
        data.mkdir(parents=True)
        open_folder(data).close()
        store = CONTENDERS["store"](data / "messages")
        try:
            cost = store_inside.fill(store, readings(self.sizes.stored, SEED), GROUP, None, lambda text: None)
        finally:
            store.close()
        self.tell(f"{self.sizes.stored:,} messages are in the store ({cost.rate:,.0f}/s)")

    # ---- rates ---------------------------------------------------------------------------------------------------

    def _noop(self) -> None:
        reading = self.spark.readStream.format("headwater").options(**self._options())
        writing = reading.load().writeStream.format("noop")
        query = writing.option("checkpointLocation", str(self.folder / "noop")).trigger(availableNow=True).start()
        self._add_rate("source_noop", query)

    def _bronze(self, node: RunningNode) -> None:
        """What waits; in a full run messages keep coming meanwhile, and it goes on until it has those, too."""
        if not self.sizes.catch_up:
            self._add_rate("source_bronze", bronze.start(self.spark, self.lake, self.settings, once=True))
            return
        load = self._load(node, CATCH_UP)
        began = time.monotonic()
        query = bronze.start(self.spark, self.lake, self.settings)
        self._until(query, lambda: self._lack(node) <= RATE * CAUGHT_UP)
        took = time.monotonic() - began
        query.stop()
        load.terminate()
        self._add_rate("source_bronze", query)
        rows = self.lake.snapshot(BRONZE).rows
        self.figures.add("catch_up/seconds", took, "s")
        self.figures.add("catch_up/rows_per_s", rows / took, "1/s")
        self.figures.add("catch_up/times_intake", rows / took / RATE, "")
        self.tell(f"catch_up: {rows:,} rows in {took:.1f} s while {RATE:,.0f} a second came")
        self._finish(load)

    def _options(self) -> dict[str, str]:
        options = self.settings.source_options()
        del options["reader"]
        return options

    def _add_rate(self, name: str, query: StreamingQuery) -> None:
        query.awaitTermination()
        batches = [each for each in query.recentProgress if each["numInputRows"]]
        warm = batches[1:] or batches
        rows = sum(each["numInputRows"] for each in warm)
        seconds = sum(each["durationMs"]["triggerExecution"] for each in warm) / 1000
        self.figures.add(f"{name}/rows_per_s", rows / seconds, "1/s")
        self.figures.add(f"{name}/rows", rows, "")
        self.tell(f"{name}: {rows / seconds:,.0f} rows/s ({rows:,} rows in {len(warm)} warm batches)")

    def _bound(self) -> None:
        rows = self.lake.snapshot(BRONZE).read(self.spark)
        taken = []
        for _ in range(3):
            began = time.perf_counter()
            rows.write.format("noop").mode("overwrite").save()
            taken.append(time.perf_counter() - began)
        rate = self.lake.snapshot(BRONZE).rows / min(taken)
        self.figures.add("parquet_bound/rows_per_s", rate, "1/s")
        self.tell(f"parquet_bound: {rate:,.0f} rows/s")

    def _rules(self) -> None:
        """The same messages, in turns, into tables that are thrown away; the first turn of each is not counted."""
        tables = (SILVER, QUARANTINE, *self.checks.tables)
        taken: dict[bool, list[float]] = {False: [], True: []}
        for turn in range(2 * TURNS):
            has_rules = turn % 2 == 1
            beside = Beside(self.lake, tables, turn)
            began = time.perf_counter()
            silver.step(
                self.spark, beside, self.settings.rules(), self.sizes.batch, self.checks if has_rules else NO_CHECKS
            )
            taken[has_rules].append(time.perf_counter() - began)
            forget_building(self.lake)
        without, having = (statistics.median(each[1:]) for each in (taken[False], taken[True]))
        self.figures.add("rules/cost_ratio", having / without, "")
        self.tell(
            f"rules: {self.sizes.batch / without:,.0f} rows/s without; with ten {having / without:.3f} times the time"
        )

    # ---- freshness -----------------------------------------------------------------------------------------------

    def _freshness(self, node: RunningNode) -> None:
        """Only of what is sent here: what waited before has been read first."""
        query = bronze.start(self.spark, self.lake, self.settings)
        self._until(query, lambda: self._lack(node) == 0)
        known = set(self.lake.snapshot(BRONZE).files)
        load = self._load(node, self.sizes.freshness)
        ages: list[Any] = []

        def is_over() -> bool:
            known.update(self._look(known, ages))
            return load.poll() is not None and self._lack(node) == 0

        self._until(query, is_over)
        query.stop()
        self._finish(load)
        found = numpy.concatenate(ages)
        for name, quantile in (("p50", 0.5), ("p95", 0.95), ("max", 1.0)):
            self.figures.add(f"freshness/{name}_s", float(numpy.quantile(found, quantile)), "s")
        self.figures.add("freshness/messages", len(found), "")
        self.tell(f"freshness: p50 {numpy.quantile(found, 0.5):.2f} s, p95 {numpy.quantile(found, 0.95):.2f} s")

    def _look(self, known: set[str], ages: list[Any]) -> set[str]:
        """Files that are new, and how old their messages were when they could be seen."""
        snapshot = self.lake.snapshot(BRONZE)
        now = time.time() * 1e6
        new = set(snapshot.files) - known
        for name in new:
            times = pq.read_table(snapshot.log.folder / name, columns=["time"], partitioning=None)["time"]
            ages.append((now - times.to_numpy().astype("datetime64[us]").astype(numpy.int64)) / 1e6)
        return new

    def _lack(self, node: RunningNode) -> int:
        """Messages that the store has, and bronze not yet."""
        made: int = StoreReader(node.url).status()["next"] - 1
        return made - sum(self.lake.snapshot(BRONZE).positions(bronze.APP).values())

    def _until(self, query: StreamingQuery, condition: Callable[[], bool]) -> None:
        while not condition():
            if query.exception() is not None:
                raise BrokerError(f"the query has failed: {query.exception()}")
            time.sleep(LOOK)

    def _load(self, node: RunningNode, seconds: float, rate: float = RATE) -> subprocess.Popen[str]:
        words = ["--port", str(node.port), "--rate", str(rate), "--seconds", str(seconds)]
        return subprocess.Popen(
            [sys.executable, "-m", "headwater_lab.pipeline_load", *words], stdout=subprocess.PIPE, text=True
        )

    def _finish(self, load: subprocess.Popen[str]) -> None:
        said, _ = load.communicate(timeout=120)
        found = json.loads(said)
        if load.returncode or found["acknowledged"] != found["sent"]:
            raise BrokerError(f"the fleet was not acknowledged: {said}")
        self.figures.add("load/msgs_per_s", found["sent"] / found["seconds"], "1/s")

    def _provisional(self, node: RunningNode) -> None:
        """A lake of its own, of what comes from now on. A message counts as seen when the round has ended in which the
        table got it."""
        lake = Lake(self.folder / "provisional")
        given = {"urls": [node.url], "reader": "provisional", "starting": "latest"}
        ages: list[Any] = []
        seen: list[Any] = []
        with Pipeline(self.spark, lake, make_settings(given)) as pipeline:
            load = self._load(node, self.sizes.freshness, PROVISIONAL_RATE)

            def look(found: Round) -> None:
                newest = pc.max(dataset(lake.log(OPEN)).to_table(columns=["seen"])["seen"])
                if newest.is_valid and newest.as_py() not in seen:
                    rows = dataset(lake.log(SILVER)).to_table(columns=["time", "arrival"])
                    fresh = pc.less_equal(rows["arrival"], newest)
                    if seen:
                        fresh = pc.and_(fresh, pc.greater(rows["arrival"], pa.scalar(seen[-1], newest.type)))
                    times = rows.filter(fresh)["time"].to_numpy().astype("datetime64[us]").astype(numpy.int64)
                    ages.append((time.time() * 1e6 - times) / 1e6)
                    seen.append(newest.as_py())
                if load.poll() is not None and found.is_idle:
                    pipeline.stopped.set()

            pipeline.watchers.append(look)
            pipeline.run()
        self._finish(load)
        found = numpy.concatenate(ages)
        for name, quantile in (("p50", 0.5), ("p95", 0.95)):
            self.figures.add(f"provisional/{name}_s", float(numpy.quantile(found, quantile)), "s")
        self.figures.add("provisional/messages", len(found), "")
        self.tell(f"provisional: p50 {numpy.quantile(found, 0.5):.2f} s, p95 {numpy.quantile(found, 0.95):.2f} s")

    # ---- what people do now, and what must be --------------------------------------------------------------------

    def _subscriber(self, node: RunningNode) -> None:
        folder = self.folder / "subscriber"
        folder.mkdir()
        words = [str(node.port), str(folder), str(self.sizes.subscriber)]
        with subprocess.Popen(
            [sys.executable, "-m", "headwater_lab.pipeline_subscriber", *words], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()  # it has subscribed
            publishers = Publishers(node.port, readings(self.sizes.subscriber, SEED), 1)
            publishers.send_acknowledged(20)
            rate, missing = map(float, process.stdout.readline().split())
            publishers.close()
        self.figures.add("subscriber/rows_per_s", rate, "1/s")
        self.figures.add("subscriber/missing", missing, "")
        self.tell(f"subscriber: {rate:,.0f} rows/s, and {missing:,.0f} of {self.sizes.subscriber:,} did not reach it")

    def _check(self, node: RunningNode) -> None:
        """Everything that the store has is in bronze once."""
        made = StoreReader(node.url).status()["next"] - 1
        rows = self.lake.snapshot(BRONZE).read(self.spark)
        there, different = rows.selectExpr("count(*)", "count(distinct store, position)").collect()[0]
        self.figures.add("lost", made - different, "")
        self.figures.add("duplicates", there - different, "")
        self.tell(f"{made:,} messages were stored: {made - different} lost, {there - different} duplicates")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = figure_options("pipeline", __doc__, quick="fewer messages, in under two minutes")
    parser.add_argument("--folder", type=Path, help="where the data goes (default: the system's folder for such)")
    chosen = parser.parse_args(arguments)
    began = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    with tempfile.TemporaryDirectory(prefix="headwater-bench-", dir=chosen.folder) as name:
        campaign = Campaign(Path(name), QUICK if chosen.quick else FULL, tell)
        try:
            campaign.run()
        except BrokerError as error:
            print(f"scripts/bench pipeline: {error}", file=sys.stderr)
            return 1
    about = machine.describe("headwater node, Spark local[2]")
    figures = campaign.figures
    figures.publish(chosen, "pipeline", "performance.md", about)
    return 1 if figures.value("lost") or figures.value("duplicates") else 0


if __name__ == "__main__":
    sys.exit(main())
