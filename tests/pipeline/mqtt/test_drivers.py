"""Whole drivers in processes of their own: killed with all that they have started, and on a cluster."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from headwater_lab.spark_cluster import cluster
from tests.pipeline.bare_python import make_bare_python
from tests.pipeline.mqtt.queries import Query, numbered, options, publish, query, wait_until

PATIENCE = 400
"""Seconds: for machines that have much else to do."""
CLIENT = "driver"
SETTINGS = {"spark.sql.shuffle.partitions": "2"}


def words(port: int, folder: Path, *, once: bool, master: str = "local[2]", **more: str) -> list[str]:
    given: dict[str, Any] = {"master": master, "port": port, "folder": str(folder), "once": once, "settings": SETTINGS}
    given["options"] = {"clientId": CLIENT, "settle": "0.5", "linger": "20", **more}
    return [sys.executable, "-m", "tests.pipeline.mqtt.driver", json.dumps(given)]


@contextlib.contextmanager
def driver(port: int, folder: Path) -> Iterator[None]:
    """Until the block ends: then it is killed, and all of its process group with it."""
    command = words(port, folder, once=False, maxRowsPerTrigger="200")
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"READY\n"
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def rows_of(folder: Path) -> Counter[bytes]:
    """By the sink's own log of files that count."""
    files = []
    for path in sorted((folder / "rows" / "_spark_metadata").glob("[0-9]*"), key=lambda each: int(each.stem)):
        files += [json.loads(line)["path"] for line in path.read_text().splitlines()[1:]]
    names = [file.removeprefix("file://") for file in dict.fromkeys(files)]
    return Counter(ds.dataset(names).to_table(["payload"])["payload"].to_pylist() if names else [])


def batches_of(folder: Path) -> int:
    return len(list((folder / "checkpoint" / "commits").glob("[0-9]*")))


def is_subscribed(folder: Path) -> bool:
    """By the spooler's log. The spool notes its filters before the broker is asked, so they do not tell."""
    log = folder / "spool" / "spooler.log"
    return log.exists() and "INFO subscribed to " in log.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_driver_and_a_spooler_that_are_killed_lose_nothing_and_repeat_nothing(broker: int, tmp_path: Path) -> None:
    """First the driver in the middle of its batches, later the spooler, which had gone on alone."""
    reading = Query(options(broker, tmp_path / "spool"))
    with driver(broker, tmp_path):
        wait_until(lambda: is_subscribed(tmp_path), "it reads", PATIENCE)
        publish(broker, numbered(0, 1000))
        wait_until(lambda: batches_of(tmp_path) >= 2, "batches", PATIENCE)
    publish(broker, numbered(1000, 1500))
    reading.kill_spooler()
    publish(broker, numbered(1500, 2000))
    subprocess.run(words(broker, tmp_path, once=True), check=True, timeout=PATIENCE, capture_output=True)
    reading.end_spooler()
    assert rows_of(tmp_path) == Counter(numbered(0, 2000))


@pytest.mark.slow
def test_executors_of_a_cluster_read_from_the_spooler(broker: int, tmp_path: Path) -> None:
    """None of its Pythons has our package: it is shipped, also to the process that starts the spooler."""
    python = make_bare_python(tmp_path / "python")
    folder = tmp_path / "run"
    with query(broker, folder / "spool", clientId=CLIENT) as reading:
        reading.plan()
        reading.end_spooler()
        publish(broker, numbered(0, 1000))
        with cluster(tmp_path / "cluster", python) as found:
            command = words(broker, folder, once=True, master=found.url, rowsPerPartition="100")
            environment = {**os.environ, "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": sys.executable}
            done = subprocess.run(command, timeout=PATIENCE, capture_output=True, env=environment, check=False)
            assert done.returncode == 0, done.stderr[-3000:].decode()
            assert len(set(found.executors().values())) == 2
    assert rows_of(folder) == Counter(numbered(0, 1000))
