"""What object storage gives: the part `tiered` of `scripts/bench pipeline`.

A node brings all that it has to an S3 server (moto's, a process of its own on the same machine), and keeps it on its
disk, too. Then the same messages are read through the node and straight from the server, by one reader and by a stream
of Spark into nothing; and what each stream has cost the node is compared. The S3 server is written in Python and shares
the machine's cores: a real one is quicker, and elsewhere.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headwater.fleet.node import KEEP_ALL, RunningNode
from headwater.fleet.process import BrokerError
from headwater.store.direct import Direct
from headwater.store.reader import StoreReader
from headwater_lab.s3_server import S3Server, s3_server
from headwater_lab.store_figures import Figures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS: Final = {
    "tiered_upload/rows_per_s": "blocks → object storage, rows/s",
    "tiered_rest/rows_per_s": "a reader through the node, rows/s",
    "tiered/rows_per_s": "the same from object storage, rows/s",
    "tiered/times_rest": "times what the node gives",
    "catchup_rest/rows_per_s": "a stream of Spark through the node, rows/s",
    "catchup_tiered/rows_per_s": "the same from object storage, rows/s",
    "catchup_tiered/node_cpu_ratio": "processor time of the node, over that through the node",
}
GOALS: Final = {"tiered/times_rest": ("≥", 2.0), "catchup_tiered/node_cpu_ratio": ("≤", 0.1)}
AFTER: Final = 20.0
PATIENCE: Final = 600.0
ROUNDS: Final = 3


def measure(
    folder: Path,
    spark: SparkSession,
    options: Mapping[str, str],
    figures: Figures,
    tell: Callable[[str], None],
) -> None:
    """`folder` has the data of a node that does not run; `options` are the source's, without an address."""
    with s3_server() as server:
        settings = {"url": server.bucket(), "after": AFTER, "options": server.options()}
        words = [f"store.history.{name}={_toml(value)}" for name, value in settings.items()]
        chosen = [*KEEP_ALL, *(word for each in words for word in ("--set", each))]
        with RunningNode(folder, log_level="error", options=chosen) as node:
            _Tiered(node, server, spark, options, figures, tell).run()


class _Tiered:
    def __init__(
        self,
        node: RunningNode,
        server: S3Server,
        spark: SparkSession,
        options: Mapping[str, str],
        figures: Figures,
        tell: Callable[[str], None],
    ) -> None:
        self.node = node
        self.server = server
        self.spark = spark
        self.options = {**options, "url": node.url}
        self.figures = figures
        self.tell = tell

    def run(self) -> None:
        end = self._uploaded()
        rest = self._read("tiered_rest", None, end)
        tiered = self._read("tiered", Direct(self.server.options()), end)
        self.figures.add("tiered/times_rest", tiered / rest, "")
        self.tell(f"tiered: {tiered:,.0f} rows/s from object storage, {rest:,.0f} through the node")
        through = self._streamed("catchup_rest", {}, end)
        asked = {"history": "direct", "historyOptions": json.dumps(self.server.options())}
        direct = self._streamed("catchup_tiered", asked, end)
        self.figures.add("catchup_tiered/node_cpu_ratio", direct / through, "")
        self.tell(f"catchup_tiered: the node used {direct:.2f} s of processor time, {through:.2f} through it")

    def _uploaded(self) -> int:
        """Where history ends when all of the store is there."""
        reader = StoreReader(self.node.url)
        began, first = time.monotonic(), None
        while True:
            status = reader.status()
            history = status["history"]
            if history["failure"]:
                raise BrokerError(f"object storage is away: {history['failure']}")
            if history["objects"] and first is None:
                first = time.monotonic(), history["rows"]
            if history["end"] == status["next"]:
                break
            if time.monotonic() - began > PATIENCE:
                raise BrokerError(f"not all blocks have gone to object storage: {history}")
            time.sleep(0.1)
        assert first is not None
        rows = history["rows"] - first[1]
        if rows:
            self.figures.add("tiered_upload/rows_per_s", rows / (time.monotonic() - first[0]), "1/s")
        self.figures.add("tiered_upload/bytes_per_row", history["size"] / history["rows"], "B")
        end: int = history["end"]
        return end

    def _read(self, name: str, direct: Direct | None, end: int) -> float:
        """The best of some rounds, rows a second."""
        rates = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            rows: int = sum(batch.num_rows for batch in StoreReader(self.node.url, direct=direct).read(before=end))
            rates.append(rows / (time.perf_counter() - began))
            if rows != end - 1:
                raise BrokerError(f"{rows} rows were read of {end - 1}")
        self.figures.add(f"{name}/rows_per_s", max(rates), "1/s")
        return max(rates)

    def _streamed(self, name: str, more: Mapping[str, str], end: int) -> float:
        """Everything into nothing; returns what that has cost the node."""
        before = self._cpu_seconds()
        began = time.monotonic()
        reading = self.spark.readStream.format("headwater").options(**{**self.options, **more}).load()
        query: Any = reading.writeStream.format("noop").trigger(availableNow=True)
        query = query.option("checkpointLocation", str(self.node.data.parent / name)).start()
        query.awaitTermination()
        rows = sum(each["numInputRows"] for each in query.recentProgress)
        if rows != end - 1:
            raise BrokerError(f"{rows} rows were streamed of {end - 1}")
        self.figures.add(f"{name}/rows_per_s", rows / (time.monotonic() - began), "1/s")
        return self._cpu_seconds() - before

    def _cpu_seconds(self) -> float:
        """Of all processes of the node."""
        ticks = 0
        for pid in self.node.pids():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {json.dumps(each)}" for name, each in value.items()) + "}"
    return str(value)
