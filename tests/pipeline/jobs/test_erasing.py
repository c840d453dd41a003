"""What is erased stays so, and is not lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.pipeline.jobs import accounts, erasing
from headwater.pipeline.jobs.clocks import clocks
from headwater.pipeline.jobs.erasing import Wanted
from headwater.pipeline.jobs.facts import erased_ranges
from headwater.pipeline.jobs.positions import count
from headwater.pipeline.jobs.remaking import make_plan
from headwater.pipeline.jobs.settings import Settings, make_settings
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.log import LakeError
from headwater.pipeline.tables import (
    BRONZE,
    COMPLETENESS,
    ERASED,
    GOLD,
    LATE,
    LATEST,
    LIVE,
    QUARANTINE,
    SILVER,
    TRAFFIC,
    Table,
)
from tests.pipeline.jobs.a_lake import DERIVING, a_message, bring_up_to_date, contents, land, pipeline, settings
from tests.pipeline.source.some_stores import fill
from tests.spark_of_the_process import borrowed
from tests.store.rest.served import EVERYTHING, Served

WITH_TOPICS = (BRONZE, SILVER, QUARANTINE, GOLD, LATE, LATEST, LIVE, TRAFFIC)


@pytest.fixture(scope="module")
def spark(one_spark: SparkSession) -> Iterator[SparkSession]:
    with borrowed(one_spark, {"spark.sql.codegen.wholeStage": "false"}) as session:
        yield session


def totals(lake: Lake) -> dict[str, int]:
    rows = contents(lake, COMPLETENESS)
    return {name: sum(row[name] for row in rows) for name in ("made", "recovered", "erased", "lost")}


def topics(lake: Lake, table: Table) -> set[str]:
    return {row["topic"] for row in contents(lake, table)}


def test_a_device_is_erased_from_all_tables_and_is_not_lost(spark: SparkSession, tmp_path: Path) -> None:
    lake, given = Lake(tmp_path), settings()
    land(lake, [a_message(position) for position in range(1, 61)])
    bring_up_to_date(pipeline(spark, lake, given))
    wanted = Wanted(("plant/1/#",))
    found = erasing.find(spark, lake, wanted)
    assert (found.topics, found.rows) == (["plant/1"], 20)
    erasing.erase(spark, lake, given, wanted, found, "on request")
    assert found.erased["bronze"] == found.erased["silver"] == 20
    assert erasing.vacuum(lake) > 0
    for table in WITH_TOPICS:
        assert "plant/1" not in topics(lake, table), table.name
    files = [path for table in (*WITH_TOPICS, COMPLETENESS) for path in lake.path(table).rglob("*.parquet")]
    left = b"".join(path.read_bytes() for path in files)
    assert b"plant/1" not in left and b"plant/2" in left
    [fact, *_] = contents(lake, ERASED)
    assert (fact["what"], fact["why"]) == ("topics plant/1/#", "on request")
    assert count(erased_ranges(lake)) == 20
    # It is no loss, is not fetched again, and what is made again says the same.
    assert accounts.missing(lake) == 0
    assert accounts.recover(spark, lake, given) == (0, 0)
    before = {table.name: contents(lake, table) for table in (SILVER, GOLD, LATEST, TRAFFIC)}
    bring_up_to_date(pipeline(spark, lake, given, remake=make_plan(["silver", "completeness", "operations_traffic"])))
    assert {table.name: contents(lake, table) for table in (SILVER, GOLD, LATEST, TRAFFIC)} == before
    found_totals = totals(lake)
    assert found_totals["erased"] > 0 == found_totals["lost"]
    assert found_totals["made"] == found_totals["recovered"] + found_totals["erased"]
    # Another condition, of which a topic keeps a part.
    half = erasing.find(spark, lake, Wanted(where="topic = 'plant/2' and position <= 30"))
    erasing.erase(spark, lake, given, Wanted(where="…"), half, "")
    again = Lake(tmp_path / "fresh")
    land(again, contents(lake, BRONZE))
    bring_up_to_date(pipeline(spark, again, given))
    for table in (GOLD, LATEST):
        assert contents(lake, table) == contents(again, table)


def settings_of(served: Served) -> Settings:
    return make_settings({"urls": [served.url], "token": EVERYTHING, "deriving": DERIVING})


def landed(served: Served, lake: Lake, spark: SparkSession) -> Settings:
    """All that a store has, in bronze."""
    given = settings_of(served)
    rows = spark.read.format("headwater").options(url=served.url, token=EVERYTHING).load().collect()
    land(lake, [{**row.asDict(), "day": row.arrival.date()} for row in sorted(rows, key=lambda row: row.position)])
    return given


def test_what_another_tool_deleted_is_fetched_or_noted_as_one_wants(
    spark: SparkSession, one: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every third message, so holes are many; few jobs fetch them all."""
    fill(one, 300)
    lake = Lake(tmp_path)
    given = landed(one, lake, spark)
    lake.log(BRONZE).open().delete("topic = 'a/1'")
    assert accounts.missing(lake) == 100
    with pytest.raises(LakeError, match=r"deleted by another tool \(version 2.*erase --record.*backfill --deleted"):
        accounts.recover(spark, lake, given)
    fetches: list[int] = []
    fetch = accounts._fetch
    monkeypatch.setattr(accounts, "_fetch", lambda *given: fetches.append(1) or fetch(*given))
    assert accounts.recover(spark, lake, given, deleted=True) == (100, 0)
    assert fetches == [1]
    assert [row["position"] for row in contents(lake, BRONZE) if row["topic"] == "a/1"] != []
    assert len(contents(lake, BRONZE)) == 300
    lake.log(BRONZE).open().delete("topic = 'a/2'")
    assert count(erasing.record_deleted(spark, lake, "on request")) == 100
    assert accounts.missing(lake) == 0
    assert accounts.recover(spark, lake, given, deleted=True) == (0, 0)


def test_however_often_messages_are_fetched_again_the_table_has_one_note_of_it(
    spark: SparkSession, one: Served, tmp_path: Path
) -> None:
    """Delta keeps a note for ever, so one for each range that was fetched would make the log grow with each."""
    fill(one, 30)
    lake = Lake(tmp_path)
    given = landed(one, lake, spark)
    for position in (7, 11, 19):
        lake.log(BRONZE).open().delete(f"position = {position}")
        assert accounts.recover(spark, lake, given, deleted=True) == (1, 0)
    assert sorted(row["position"] for row in contents(lake, BRONZE)) == list(range(1, 31))
    lines = [line for path in lake.path(BRONZE).glob("_delta_log/*.json") for line in path.read_text().splitlines()]
    noted = {json.loads(line)["txn"]["appId"] for line in lines if '"txn"' in line}
    assert {name for name in noted if "recovery" in name} == {"recovery"}


def test_time_goes_on_though_the_last_message_was_erased(tmp_path: Path) -> None:
    """A store that does not answer has the clock of the last message that is there."""
    lake = Lake(tmp_path)
    land(lake, [a_message(position) for position in range(1, 10)])
    arrival = a_message(8)["arrival"]
    lake.log(BRONZE).open().delete("position = 9")
    [clock] = clocks(lake.snapshot(BRONZE), {"a": 9}, {})
    assert clock.moment == arrival
