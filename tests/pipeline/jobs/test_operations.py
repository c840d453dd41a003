"""Advice from tables to a node: made once, sent as often as it takes, used once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater.node.advice.settings import AdviceSettings
from headwater.pipeline.derive.moments import exact
from headwater.pipeline.jobs import operations
from headwater.pipeline.jobs.settings import Settings, make_settings
from headwater.pipeline.lake.files import write_files
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.types import arrow_schema
from headwater.pipeline.tables import ADVICE, COMPLETENESS, MEMBERS, TRAFFIC, Table
from tests.node.delivery.node import Node, running
from tests.spark_of_the_process import borrowed

TOKEN = "a token of some length"
GROUP = "$share/workers/jobs/#"


@pytest.fixture(scope="module")
def spark(one_spark: SparkSession) -> Iterator[SparkSession]:
    with borrowed(one_spark) as session:
        yield session


@pytest.fixture
def node() -> Iterator[Node]:
    with running(rest={"token": TOKEN}, advice=AdviceSettings(enabled=True)) as node:
        yield node


def settings_for(node: Node) -> Settings:
    return make_settings({"urls": [node.url], "token": TOKEN, "advise": True, "advising": {"least_minutes": 2}})


def add(lake: Lake, table: Table, rows: list[dict[str, Any]], **notes: Any) -> None:
    log = lake.log(table)
    batch = pa.RecordBatch.from_pylist(rows, arrow_schema(table))
    log.commit(write_files([batch], str(log.folder), table.partition), notes.pop("notes", {}), **notes)


def filled(lake: Lake, store: str, processing: tuple[float, float], position: int) -> None:
    """Five minutes up to now, in which the members of a group took so many seconds for a message."""
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    minutes = [now - timedelta(minutes=back) for back in range(5, 0, -1)]
    rows = [
        {"minute": minute, "group": GROUP, "member": name, "dispatched": 100, "backlog": 0.0, "processing": seconds}
        for minute in minutes
        for name, seconds in zip(("quick", "slow"), processing, strict=True)
    ]
    add(lake, MEMBERS, [{**row, "day": now.date()} for row in rows])
    topics = [("a/1", 500), ("a/2", 500), ("b/1", 900)]
    carried = [
        {"minute": minute, "topic": topic, "store": store, "messages": count, "bytes": count, "publishers": 1}
        for minute in minutes
        for topic, count in topics
    ]
    add(lake, TRAFFIC, [{**row, "day": now.date()} for row in carried])
    add(lake, COMPLETENESS, [], notes={"until": exact(now)}, job=COMPLETENESS.name, positions={store: position})


def in_force(node: Node) -> dict[str, Any]:
    """What the node follows, by kind."""
    found = node.do(node.broker.advice)
    return {each.kind: each.weights or each.parts for each in found}


def times_used(node: Node) -> int:
    advising = node.broker.server.advising
    assert advising is not None
    return node.do(lambda: advising.counts["used"])


def test_advice_is_made_sent_and_used(spark: SparkSession, node: Node, tmp_path: Path) -> None:
    lake, settings = Lake(tmp_path), settings_for(node)
    filled(lake, "s1", (0.010, 0.040), 1000)
    made = operations.advice_step(spark, lake, settings)
    assert made is not None and made >= 2
    weights = in_force(node)["weights"]
    assert weights["quick"] == pytest.approx(4 * weights["slow"], rel=0.05)
    parts = in_force(node)["split"]
    assert len(parts) == 2
    assert operations.advice_step(spark, lake, settings) is None  # of the same minutes there is nothing new
    assert lake.snapshot(ADVICE).note("number") == 1000


def test_who_was_killed_before_sending_sends_it_when_it_comes_back(
    spark: SparkSession, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, settings = Lake(tmp_path), settings_for(node)
    filled(lake, "s1", (0.010, 0.040), 1000)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):

        def killed(*_: object) -> int:
            raise KeyboardInterrupt

        patched.setattr(operations, "send", killed)
        operations.advice_step(spark, lake, settings)
    assert in_force(node) == {}
    assert operations.advice_step(spark, lake, settings) is None  # it is in the table, so it is not made again
    operations.send(spark, lake, settings)
    first = in_force(node)
    assert first["weights"]
    used = times_used(node)
    operations.send(spark, lake, settings)
    assert in_force(node) == first
    assert times_used(node) == used  # it counts once


def test_a_node_that_does_not_answer_holds_up_nothing(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(rest={"token": TOKEN}, advice=AdviceSettings(enabled=True)) as node:
        settings = settings_for(node)
    filled(Lake(tmp_path), "s1", (0.010, 0.040), 1000)
    assert operations.advice_step(spark, Lake(tmp_path), settings) is not None
    assert "could not be advised" in caplog.text
