"""A Connect server as others run it: a process of the wheel's own script."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from headwater_lab.spark_cluster import HOME, Process, environment_without_us

CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
OF_SPARK_ITSELF = "spark-internal"
"""Instead of a jar, for spark-submit."""


@contextlib.contextmanager
def connect_server(folder: Path, python: Path) -> Iterator[str]:
    """The address of a server of Spark Connect, with a Spark in its process whose Python does not have our package."""
    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }
    words = [str(HOME / "bin" / "spark-submit"), "--class", CONNECT]
    for name, value in settings.items():
        words += ["--conf", f"{name}={value}"]
    folder.mkdir(parents=True)
    server = Process([*words, OF_SPARK_ITSELF], environment_without_us(python, folder, "1g"), folder / "log")
    try:
        port = server.wait_for(r"Spark Connect server started at: \S*?:(\d+)")[1]
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.end()
