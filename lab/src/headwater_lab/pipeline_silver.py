"""What comes behind bronze: the parts `silver` and `query` of `scripts/bench pipeline`.

- silver: all of bronze decoded into silver, step after step as a pipeline does that was stopped for a day; the first
  step, in which Spark's workers start, is not counted. Then silver has every message of bronze once;
- query: `headwater pipeline query`, a process of its own without Spark, asked for a few rows of one topic: seconds from
  its start to the first row that it prints, the median of some.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headwater.fleet.process import BrokerError
from headwater.pipeline.decoding import Rules
from headwater.pipeline.jobs import silver
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.tables import BRONZE, QUARANTINE, SILVER
from headwater_lab.store_figures import Figures
from headwater_lab.store_messages import topic_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS: Final = {
    "silver/rows_per_s": "bronze → silver, catching up, rows/s",
    "query/first_row_s": "a simple question without Spark: seconds to its first row",
}
GOALS: Final = {"silver/rows_per_s": ("≥", 150_000.0), "query/first_row_s": ("≤", 1.5)}
QUESTION: Final = f"SELECT device, time, value FROM silver WHERE topic = '{topic_of(7)}' LIMIT 10"
QUESTIONS: Final = 5
PATIENCE: Final = 120.0
"""Seconds for an answer."""


def measure(lake: Lake, spark: SparkSession, most: int, figures: Figures, tell: Callable[[str], None]) -> None:
    """Nobody else decodes into this lake; `most` is how much a step takes."""
    _decode(lake, spark, most, figures, tell)
    found = statistics.median(_first_row(lake) for _ in range(QUESTIONS))
    figures.add("query/first_row_s", found, "s")
    tell(f"query: the first row after {found:.2f} s")


def _decode(lake: Lake, spark: SparkSession, most: int, figures: Figures, tell: Callable[[str], None]) -> None:
    taken: list[tuple[int, float]] = []
    while True:
        began = time.perf_counter()
        done = silver.step(spark, lake, Rules(), most)
        if done is None:
            break
        taken.append((done.messages, time.perf_counter() - began))
    warm = taken[1:] or taken
    messages, seconds = sum(count for count, _ in warm), sum(took for _, took in warm)
    rows = {table.name: lake.snapshot(table).rows for table in (BRONZE, SILVER, QUARANTINE)}
    if rows[SILVER.name] + rows[QUARANTINE.name] != rows[BRONZE.name]:
        raise BrokerError(f"silver has not what bronze has: {rows}")
    figures.add("silver/rows_per_s", messages / seconds, "1/s")
    figures.add("silver/rows", messages, "")
    tell(f"silver: {messages / seconds:,.0f} rows/s ({messages:,} rows in {len(warm)} warm steps)")


def _first_row(lake: Lake) -> float:
    words = ["headwater", "pipeline", "query", "--lake", str(lake.folder), "--format", "json", QUESTION]
    began = time.perf_counter()
    with subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        took = time.perf_counter() - began
        process.communicate(timeout=PATIENCE)
    if not line.startswith(b"{") or process.returncode:
        raise BrokerError(f"a question was not answered: {line!r}, status {process.returncode}")
    return took
