"""Who is forgotten is in no table and no store any more, is not lost, and there is a receipt of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.pipeline.jobs import accounts, erasing, forgetting
from headwater.pipeline.jobs.erasing import Wanted
from headwater.pipeline.jobs.facts import erased_ranges
from headwater.pipeline.jobs.forgetting import Receipt, Request
from headwater.pipeline.jobs.positions import count
from headwater.pipeline.jobs.settings import Settings
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.source.stores import Stores
from headwater.pipeline.tables import BRONZE, COMPLETENESS, FORGOTTEN, GOLD, LATEST, QUARANTINE, SILVER, TRAFFIC
from headwater.store.query import Query
from headwater.store.reader import StoreReader, Unreachable
from tests.pipeline.jobs.a_lake import bring_up_to_date, contents, pipeline
from tests.pipeline.jobs.test_erasing import landed, topics, totals
from tests.pipeline.source.some_stores import fill
from tests.spark_of_the_process import borrowed
from tests.store.messages import found
from tests.store.rest.served import EVERYTHING, Served


@pytest.fixture(scope="module")
def spark(one_spark: SparkSession) -> Iterator[SparkSession]:
    with borrowed(one_spark, {"spark.sql.codegen.wholeStage": "false"}) as session:
        yield session


def forget(spark: SparkSession, lake: Lake, given: Settings, wanted: Wanted, *, clean: bool = False) -> Receipt:
    stores = Stores(given.source()).look()
    hit = erasing.find(spark, lake, wanted)
    return forgetting.forget(spark, lake, given, wanted, hit, Request("request 4711", "a.person"), stores, clean=clean)


def test_a_device_is_forgotten_by_all_tables_and_the_store(
    spark: SparkSession, one: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(one, 60)
    lake = Lake(tmp_path)
    given = landed(one, lake, spark)
    bring_up_to_date(pipeline(spark, lake, given))
    fill(one, 6)  # which bronze has not read yet
    # Who is killed between two tables does it again, and finds all that is left.
    without = erasing._without_positions

    def killed(session: SparkSession, snapshot: object, positions: object) -> int:
        monkeypatch.setattr(erasing, "_without_positions", without)
        raise KeyboardInterrupt

    monkeypatch.setattr(erasing, "_without_positions", killed)
    with pytest.raises(KeyboardInterrupt):
        forget(spark, lake, given, Wanted(("a/1",)))
    receipt = forget(spark, lake, given, Wanted(("a/1",)), clean=True)
    assert receipt.tables["bronze"] == receipt.tables["silver"] == receipt.messages == 20
    for table in (BRONZE, SILVER, QUARANTINE, GOLD, LATEST, TRAFFIC):
        assert "a/1" not in topics(lake, table), table.name
    assert found(one.store, Query(filter="a/1")) == []
    assert len(found(one.store)) == 44
    assert count(erased_ranges(lake)) == 22
    assert accounts.missing(lake) == 0
    assert accounts.recover(spark, lake, given) == (0, 0)
    assert totals(lake)["lost"] == 0
    [row] = contents(lake, FORGOTTEN)
    assert (row["what"], row["why"], row["who"]) == ("topics a/1", "request 4711", "a.person")
    assert json.loads(row["tables"]) == receipt.tables
    assert json.loads(row["up_to"]) == {"s1": 66}
    assert row["vacuumed"] == row["files_until"] >= row["done"] >= row["begun"]
    assert row["files_removed"] > 0
    assert json.loads(json.dumps(receipt.document()))["id"] == row["id"]


def test_messages_of_a_condition_by_position_and_what_others_erased(
    spark: SparkSession, one: Served, tmp_path: Path
) -> None:
    fill(one, 30)
    lake = Lake(tmp_path)
    given = landed(one, lake, spark)
    receipt = forget(spark, lake, given, Wanted(where="publisher = 'device' and position between 4 and 9"))
    assert receipt.stores == {"s1": 6}
    assert receipt.files_until is not None and receipt.files_until > receipt.done
    assert [entry.position for entry in found(one.store)] == [1, 2, 3, *range(10, 31)]
    # What another erases in the store before the lake has it, is not lost: the lake asks.
    fill(one, 3)
    StoreReader(one.url, token=EVERYTHING).erase(positions="31-32")
    rows = spark.read.format("headwater").options(url=one.url, token=EVERYTHING).load().where("position > 30")
    from tests.pipeline.jobs.a_lake import land

    land(lake, [{**row.asDict(), "day": row.arrival.date()} for row in rows.collect()])
    assert accounts.missing(lake) == 2
    bring_up_to_date(pipeline(spark, lake, given))
    assert forgetting.learn(lake, given) >= 0
    assert accounts.missing(lake) == 0
    assert [row["lost"] for row in contents(lake, COMPLETENESS) if row["lost"]] == []


def test_a_store_that_goes_away_in_between_makes_no_receipt(
    spark: SparkSession, one: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(one, 6)
    lake = Lake(tmp_path)
    given = landed(one, lake, spark)

    def away(*_: object, **__: object) -> tuple[int, int, bool]:
        raise Unreachable("away")

    with monkeypatch.context() as patched, pytest.raises(Unreachable):
        patched.setattr(StoreReader, "erase", away)
        forget(spark, lake, given, Wanted(("a/1",)))
    assert contents(lake, FORGOTTEN) == []
    assert "a/1" in topics(lake, BRONZE)
    assert forget(spark, lake, given, Wanted(("a/1",))).stores == {"s1": 2}
