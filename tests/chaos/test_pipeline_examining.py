"""What is found in the tables of a pipeline: every way in which they may be wrong is found."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater.pipeline.jobs.pipeline import Pipeline, drain
from headwater.pipeline.jobs.settings import Settings
from headwater.pipeline.lake.files import write_files
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.tables import (
    BRONZE,
    COMPLETENESS,
    DROPPED,
    GOLD,
    LATE,
    LATEST,
    OUTCOMES,
    QUARANTINE,
    SILVER,
    SILVER_RULES,
    TRAFFIC,
    Table,
)
from headwater.store.memory import MemoryStore
from headwater_lab.pipeline_chaos.examining import examine
from headwater_lab.pipeline_chaos.payloads import message
from headwater_lab.pipeline_chaos.settings import settings_for
from tests.spark_of_the_process import borrowed
from tests.store.messages import MICROSECONDS, NOON, SECOND
from tests.store.rest.served import EVERYTHING, Served

BEHIND_BRONZE = (SILVER, QUARANTINE, DROPPED, SILVER_RULES, GOLD, LATE, LATEST, COMPLETENESS, OUTCOMES, TRAFFIC)
MESSAGES = 120
Change = Callable[[pa.Table], pa.Table]


@dataclass
class Made:
    spark: SparkSession
    lake: Lake
    settings: Settings

    def kinds(self) -> list[str]:
        found = examine(self.spark, self.lake, self.settings)
        return [text.partition(":")[0] for text in found.wrong]

    def change(self, table: Table, change: Change) -> None:
        """Other rows in the table, under the same notes."""
        log = self.lake.log(table)
        rows = change(log.open().to_pyarrow_table())
        log.commit(write_files(rows.to_batches(), str(log.folder), log.partition), {}, replaced=log.paths())


@pytest.fixture(scope="module")
def original(one_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """A lake in which everything is as it should be, made of two stores by a pipeline."""
    served = [Served(MemoryStore(name, MICROSECONDS)) for name in ("one", "two")]
    for publisher, each in enumerate(served):
        for number in range(MESSAGES):
            arrival = NOON + number * SECOND
            topic, payload = message(1, publisher, number, arrival / SECOND)
            each.writer.take(topic, payload, qos=1, arrival=arrival)
        each.writer.sync()
        each.gate.clock = NOON + 2 * MESSAGES * SECOND
    settings = replace(settings_for([each.url for each in served]), token=EVERYTHING)
    lake = Lake(tmp_path_factory.mktemp("original"))
    try:
        with borrowed(one_spark, {"spark.sql.streaming.minBatchesToRetain": "5"}) as spark:
            with Pipeline(spark, lake, settings) as pipeline:
                drain(pipeline)
            yield Made(spark, lake, settings)
    finally:
        for each in served:
            each.stop()


@pytest.fixture
def made(original: Made, tmp_path: Path) -> Made:
    shutil.copytree(original.lake.folder / "tables", tmp_path / "tables")
    return replace(original, lake=Lake(tmp_path))


def without_one(rows: pa.Table) -> pa.Table:
    return rows.slice(1)


def one_twice(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(0, 1)])


def with_another(column: str, value: object) -> Change:
    """In the first row, the column has this value."""

    def change(rows: pa.Table) -> pa.Table:
        place = rows.column_names.index(column)
        values = [value, *rows[column].to_pylist()[1:]]
        return rows.set_column(place, rows.schema.field(column), pa.array(values, rows.schema.field(column).type))

    return change


def test_what_is_right_is_acquitted(original: Made) -> None:
    found = examine(original.spark, original.lake, original.settings)
    assert found.wrong == []
    assert found.rows["bronze"] == 2 * MESSAGES
    assert all(found.rows[table.name] > 0 for table in BEHIND_BRONZE), found.rows


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (without_one, ["lost"]),
        (one_twice, ["doubled"]),
        (with_another("payload", b"other"), ["changed"]),
        (with_another("value", 1e9), ["changed"]),
        (with_another("position", 10**6), ["lost", "strange"]),
        (with_another("store", "three"), ["lost", "strange"]),
    ],
)
def test_bronze_is_what_is_stored(change: Change, kinds: list[str], made: Made) -> None:
    made.change(BRONZE, change)
    assert made.kinds() == kinds


def test_a_file_that_is_not_there_is_found(made: Made) -> None:
    (made.lake.path(GOLD) / made.lake.log(GOLD).paths()[0]).unlink()
    assert made.kinds() == ["broken"]


@pytest.mark.parametrize("change", [without_one, one_twice])
def test_each_table_is_what_is_made_of_the_one_before(change: Change, made: Made) -> None:
    """Readings that are missing or there twice are missing or there twice in what is derived from them, or not: the
    tables behind silver are about another one."""
    tables = (SILVER, QUARANTINE, DROPPED, SILVER_RULES, COMPLETENESS, OUTCOMES, TRAFFIC)
    for table in tables:
        made.change(table, change)
    assert {table.name for table in tables} <= set(made.kinds())


@pytest.mark.parametrize("change", [without_one, one_twice])
def test_windows_are_what_is_made_of_readings(change: Change, made: Made) -> None:
    for table in (GOLD, LATE, LATEST):
        made.change(table, change)
    assert made.kinds() == [GOLD.name, LATE.name, LATEST.name]


def test_figures_count(made: Made) -> None:
    made.change(SILVER, with_another("clock", "ahead"))
    made.change(GOLD, with_another("p95", -1.0))
    made.change(LATEST, with_another("position", 1))
    made.change(COMPLETENESS, with_another("lost", 1))
    made.change(TRAFFIC, with_another("bytes", 0))
    assert {SILVER.name, GOLD.name, LATEST.name, COMPLETENESS.name, TRAFFIC.name} <= set(made.kinds())


def test_a_table_that_does_not_go_to_the_end_is_behind(made: Made) -> None:
    made.lake.log(SILVER).commit([], {}, job="silver", positions={"one": 7})
    made.lake.log(GOLD).commit([], {"until": NOON // SECOND * 1_000_000})
    assert made.kinds() == ["behind", "behind"]


def test_a_lake_without_anything_is_behind(original: Made, tmp_path: Path) -> None:
    empty = replace(original, lake=Lake(tmp_path))
    assert set(empty.kinds()) == {"lost", "behind"}
