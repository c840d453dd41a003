"""`headwater pipeline` with a lake in an object store: a node, an S3 server and a Spark that knows folders only."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.fleet.node import RunningNode
from headwater.objects import open_place
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.holder import Holder
from headwater.pipeline.lake.lease import Leases, name
from headwater.pipeline.tables import BRONZE
from tests.objects.s3_server import S3Server, s3_server
from tests.spark_of_the_process import borrowed
from tests.test_cli_pipeline import World, invoke


@pytest.fixture(scope="module")
def spark(one_spark: SparkSession) -> Iterator[SparkSession]:
    with borrowed(one_spark, {"spark.sql.codegen.wholeStage": "false"}) as session:
        yield session


class FarWorld(World):
    """Its lake is at a URL; the options of the store are in the file of settings, and given where there is none."""

    def __init__(self, node: RunningNode, folder: Path, s3: S3Server) -> None:
        super().__init__(node, folder)
        self.url = f"{s3.bucket()}/some/lake"
        options = s3.options()
        table = "".join(f"{key} = {json.dumps(value)}\n" for key, value in options.items())
        self.config.write_text(f"{self.config.read_text()}\n[lake_options]\n{table}")
        self.options = ("--lake", self.url, "--config", self.config)  # type: ignore[assignment] # no folder
        self.given = [word for key, value in options.items() for word in ("--lake-option", f"{key}={value}")]
        self.there = Lake(self.url, options=options)

    def ask(self, sql: str) -> list[dict[str, Any]]:
        status, said, errors = invoke("query", "--lake", self.url, *self.given, "-f", "json", sql)
        assert (status, errors) == (0, "")
        return [json.loads(line) for line in said.splitlines()]


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarWorld]:
    """With what a first run has brought."""
    folder = tmp_path_factory.mktemp("far")
    with pytest.MonkeyPatch.context() as patch, s3_server() as s3, RunningNode(folder / "node") as node:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        world = FarWorld(node, folder, s3)
        world.publish()
        world.once()
        yield world


def test_everything_is_in_the_tables_once_also_if_the_scratch_folder_is_lost_or_old(
    world: FarWorld, tmp_path: Path
) -> None:
    """As if another machine had gone on, and then this one came back."""
    assert world.has_everything_once()
    scratch, old = world.there.scratch, tmp_path / "old"
    assert (scratch / "checkpoints/bronze").is_dir()
    shutil.copytree(scratch, old)
    for found in (None, old):
        world.publish()
        shutil.rmtree(scratch)
        if found is not None:
            shutil.copytree(found, scratch)
        assert f"{world.last:,} messages in {world.url}" in world.once()
        assert world.has_everything_once()
    [counts] = world.ask("select sum(made) made, sum(lost) lost from completeness")
    assert counts["lost"] == 0
    [windows] = world.ask("select count(*) n, count(distinct window_start, topic, device, metric) d from gold")
    assert windows["n"] == windows["d"] != 0


def test_the_status_and_who_writes(world: FarWorld) -> None:
    status, said, errors = invoke("status", *world.options)
    assert (status, errors) == (0, "")
    assert said.startswith(f"{world.url}: nobody writes to it") and "hush-hush" not in said
    with world.there.writing("pipeline run"):
        epoch = Leases(world.there.place).epoch
        holder = Holder.read(world.there.place.get(name(epoch)).data)
        assert holder is not None
        other = Holder("pipeline run", "far-away", 77, holder.since, "another machine")
        world.there.place.put(name(epoch), other.written())
        assert "pipeline run on far-away (process 77) since" in invoke("status", *world.options)[1]
        for words in (("run", "--once"), ("compact",)):
            given = world.options if words[0] == "run" else ("--lake", world.url, *world.given)
            status, said, errors = invoke(*words, *given)
            assert status == 1
            assert "another pipeline writes into" in errors and "pipeline run on far-away (process 77) since" in errors


def test_derived_tables_are_made_again(world: FarWorld) -> None:
    before = world.ask("select count(*) n from silver")
    status, said, errors = invoke("remake", "silver", *world.options)
    assert (status, errors) == (0, "") and "made again: " in said and "silver" in said.rpartition("made again: ")[2]
    assert world.ask("select count(*) n from silver") == before
    assert list(world.there.place.list("building")) == []


def test_a_topic_is_erased_and_a_table_is_compacted(world: FarWorld) -> None:
    [topic] = world.ask(
        "select topic, count(*) n from bronze where topic not like '$%' group by topic order by 2, 1 limit 1"
    )
    status, _, errors = invoke("erase", "--topic", topic["topic"], "--yes", *world.options)
    assert (status, errors) == (0, "")
    [left] = world.ask(f"select count(*) n from bronze where topic = '{topic['topic']}'")
    assert left == {"n": 0}
    status, said, errors = invoke("compact", "--lake", world.url, *world.given)
    assert (status, errors) == (0, "") and "bronze:" in said
    [left] = world.ask("select count(*) n, count(distinct store, position) p from bronze")
    assert left["n"] == left["p"] == world.last - topic["n"]


def test_spark_reads_a_table_of_it(world: FarWorld, spark: SparkSession) -> None:
    place = world.there.reading(BRONZE).place
    reading = spark.read.format("headwater-delta").option("path", place.where)
    for key, value in place.options.items():
        reading = reading.option(f"storage.{key}", value)
    [expected] = world.ask("select count(*) n from bronze")
    assert reading.load().count() == expected["n"]


def test_what_is_no_lake(world: FarWorld) -> None:
    status, _, errors = invoke("status", "--lake", f"{world.url}-none", "--config", world.config)
    assert status == 1 and f"there is no lake in {world.url}-none" in errors
    status, _, errors = invoke("query", "--lake", "hdfs://host/lake", "select 1")
    assert status == 1 and "hdfs://host/lake is no place for a lake" in errors
    status, _, errors = invoke("query", "--lake", world.url, "--lake-option", "AWS_REGION", "select 1")
    assert status == 2 and "--lake-option is a name and a value" in errors
    assert open_place(world.url, {}).url == world.url
