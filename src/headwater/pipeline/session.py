"""A Spark session as the pipeline needs it: Java, Python, the package on executors, our formats by name."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headwater.pipeline.java import use_java
from headwater.pipeline.shipping import make_zip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
LOCAL_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
}


class NoSpark(Exception):
    """PySpark is not installed."""


def make_session(
    master: str = "local[*]", *, name: str = "headwater", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """`master` is `local[N]`, `spark://host:port` or, for Spark Connect, `sc://host:port`. A session that this process
    has already is taken as it is. Raises NoJava, NoSpark."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise NoSpark("PySpark is not installed: pip install 'headwater[spark]'") from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder: Any = SparkSession.builder
    if master.startswith("sc://"):
        builder = builder.remote(master)
    else:
        use_java()
        builder = builder.master(master).appName(name)
        for key, value in _fixed(master).items():
            builder = builder.config(key, value)
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    for key, value in SETTINGS.items():
        session.conf.set(key, value)
    ship(session, master)
    register(session)
    return session


def _fixed(master: str) -> dict[str, str]:
    """What cannot be changed later."""
    cores = str(os.cpu_count() or 2)
    fixed = {"spark.sql.shuffle.partitions": cores, "spark.driver.extraJavaOptions": "-Dfile.encoding=UTF-8"}
    return {**fixed, **LOCAL_SETTINGS} if master.startswith("local") else {**fixed, "spark.ui.enabled": "false"}


def ship(session: SparkSession, master: str) -> None:
    """The package, to executors; those of a local session have it."""
    if master.startswith("local"):
        os.environ["PYTHONPATH"] = os.pathsep.join(_paths())
        return
    archive = make_zip(Path(tempfile.mkdtemp(prefix="headwater-ship-")))
    if master.startswith("sc://"):
        session.addArtifact(str(archive), pyfile=True)
    else:
        session.sparkContext.addPyFile(str(archive))


def _paths() -> list[str]:
    ours = str(Path(__file__).parent.parent.parent)
    return list(dict.fromkeys([ours, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]))


def register(session: SparkSession) -> None:
    """Our formats, by their names."""
    from headwater.pipeline.lake.sink import DeltaSink
    from headwater.pipeline.source import HeadwaterSource

    for format in (HeadwaterSource, DeltaSink):
        session.dataSource.register(format)
