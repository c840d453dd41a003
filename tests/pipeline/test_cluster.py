"""A standalone cluster whose machines do not have our package: two workers land stores together, and one executor is
killed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.pipeline.java import QUICK_JAVA
from headwater_lab.spark_cluster import Cluster, cluster
from tests.pipeline.bare_python import make_bare_python
from tests.pipeline.landed import check_landed, run_client, served_stores

PATIENCE = 120.0
OF_A_STREAM = "sql.streaming.queryId"
"""A property of the jobs that a streaming query runs."""


@pytest.mark.slow
def test_two_workers_land_stores_exactly_once(tmp_path: Path) -> None:
    python = make_bare_python(tmp_path / "python")
    events = tmp_path / "events"
    events.mkdir()
    killed: list[int] = []
    with served_stores() as url, cluster(tmp_path / "cluster", python) as spark:
        killing = threading.Thread(target=kill_an_executor, args=(spark, tmp_path / "bronze", killed), daemon=True)
        killing.start()
        said = run_client(spark.url, url, tmp_path, python, settings(events))
        killing.join(PATIENCE)
    check_landed(said, tmp_path)
    assert len(killed) == 1
    executors = spark.executors()
    assert {executors[each] for each in executors_of_streams(events)} == {"worker-0", "worker-1"}


def kill_an_executor(spark: Cluster, bronze: Path, killed: list[int]) -> None:
    """When the first task of a batch has written a file: others are lost, or it is, and run again."""
    until = time.monotonic() + PATIENCE
    while not any(bronze.rglob("*.parquet")):
        if time.monotonic() > until:
            return
        time.sleep(0.02)
    for process, worker in spark.running_executors().items():
        if worker == "worker-0":
            os.kill(process, signal.SIGKILL)
            killed.append(process)


def settings(events: Path) -> dict[str, str]:
    """No task begins before both workers have an executor."""
    return {
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.ui.enabled": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }


def executors_of_streams(events: Path) -> set[str]:
    """Those that have done tasks of a streaming query, as `application/executor`."""
    found = set()
    for log in events.iterdir():
        stages: set[int] = set()
        for event in read_events(log):
            if event["Event"] == "SparkListenerStageSubmitted" and OF_A_STREAM in event["Properties"]:
                stages.add(event["Stage Info"]["Stage ID"])
            elif event["Event"] == "SparkListenerTaskEnd" and event["Stage ID"] in stages:
                found.add(f"{log.name}/{event['Task Info']['Executor ID']}")
    return found


def read_events(log: Path) -> Iterator[dict[str, Any]]:
    for line in log.read_text().splitlines():
        yield json.loads(line)
