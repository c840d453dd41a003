"""The writer on the driver: which columns it takes, where its ledger is, and what a batch is called."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from headwater.pipeline.mqtt import MqttSource
from headwater.pipeline.mqtt.options import BadOption, WriteOptions
from headwater.pipeline.mqtt.writer import batch_name, check_columns, ledger_folder


def options(**more: str) -> WriteOptions:
    return WriteOptions.of({"broker": "mqtt://localhost", **more})


def test_columns_that_can_be_messages() -> None:
    check_columns(StructType().add("topic", StringType()).add("payload", BinaryType()), options())
    check_columns(StructType().add("payload", StringType()).add("qos", LongType()), options(topic="a"))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (StructType().add("topic", StringType()), "the column payload is missing"),
        (StructType().add("payload", StringType()), "neither a column topic nor an option topic"),
        (StructType().add("payload", LongType()), "payload is string or binary, not bigint"),
        (StructType().add("value", LongType()), "no use for the column value"),
    ],
)
def test_columns_that_cannot(schema: StructType, said: str) -> None:
    with pytest.raises(BadOption, match=said):
        check_columns(schema, options())


def test_messages_cannot_be_overwritten() -> None:
    schema = StructType().add("topic", StringType()).add("payload", StringType())
    with pytest.raises(BadOption, match="append"):
        MqttSource({"broker": "mqtt://localhost"}).writer(schema, overwrite=True)


def test_the_ledger_is_where_it_is_told_or_in_a_checkpoint_on_disk(tmp_path: Path) -> None:
    assert ledger_folder(options(), None) is None
    assert ledger_folder(options(), "hdfs://host/checkpoint") is None
    assert ledger_folder(options(), str(tmp_path)) == tmp_path / "mqtt-sent"
    assert ledger_folder(options(), f"file://{tmp_path}") == tmp_path / "mqtt-sent"
    assert ledger_folder(options(), f"file:{tmp_path}") == tmp_path / "mqtt-sent"
    assert ledger_folder(options(ledger="none"), str(tmp_path)) is None
    assert ledger_folder(options(ledger=str(tmp_path / "own")), str(tmp_path)) == tmp_path / "own"
    with pytest.raises(BadOption, match="a folder on a disk"):
        options(ledger="hdfs://host/ledger")


def test_a_batch_is_called_by_its_stream_or_by_its_run() -> None:
    assert batch_name("query", "7", None, "x") == ("query", 7)
    assert batch_name("query", "7", "alarms", "x") == ("query-alarms", 7)
    assert batch_name(None, None, "today", "x") == ("today", 0)
    assert batch_name(None, None, None, "x") == ("x", 0)
