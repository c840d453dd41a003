"""The settings of a pipeline whose batches and windows are so small that all of it happens all the time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from headwater.pipeline.catalogs.settings import Iceberg
from headwater.pipeline.derive.settings import Settings as Deriving
from headwater.pipeline.java import QUICK_JAVA
from headwater.pipeline.jobs.settings import Settings
from headwater.pipeline.session import SHORT_LIFE
from headwater_lab.pipeline_chaos.payloads import DECODING

DERIVING: Final = Deriving(window=10, lateness=5.0, gap=2.0, clock_ahead=20.0, clock_behind=60.0)
EXPECTATIONS: Final = (
    {"name": "warm", "condition": "value > 15 OR value IS NULL", "action": "drop", "filter": ["many/#", "cold/#"]},
    {"name": "likely", "condition": "value < 26 OR value IS NULL", "action": "quarantine"},
    {"name": "on time", "condition": "clock = 'ok'"},
)
WINDOWS: Final[tuple[dict[str, Any], ...]] = ({"name": "short", "window": 5, "lateness": 2.0},)
SPARK: Final = {
    **SHORT_LIFE,
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.minBatchesToRetain": "5",
}
ON_A_CLUSTER: Final = {
    "spark.cores.max": "2",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def spark_settings(master: str) -> dict[str, str]:
    return SPARK if master.startswith("local") else {**SPARK, **ON_A_CLUSTER}


def settings_for(urls: Sequence[str]) -> Settings:
    return Settings(
        urls=tuple(urls),
        reader="chaos",
        most_rows=2000,
        rows_per_partition=100,
        trigger=0.2,
        tidy_every=15.0,
        wait_for_store=30.0,
        decoding=DECODING,
        expectations=EXPECTATIONS,
        windows=WINDOWS,
        provisional=0.5,
        deriving=DERIVING,
    )


def iceberg_settings(folder: Path) -> Iceberg:
    """A catalog in a file, which is told of each version."""
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/iceberg.db", "warehouse": (folder / "iceberg").as_uri()}
    return Iceberg(catalog=catalog, tables=("bronze", "silver", "gold", "latest"), every=0.0)
