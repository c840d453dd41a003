"""Rows as Arrow batches: the columns, their types, and how big a batch is."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from headwater.pipeline.mqtt import MqttSource, rows
from headwater.pipeline.mqtt.options import BadOption
from headwater.pipeline.mqtt.record import Arrival
from headwater.pipeline.mqtt.rows import batches, ddl, names, shape

EVERYTHING = shape(dict.fromkeys(names(True), True))
ARRIVAL = Arrival("a/b", b"\x00", 2, True, '{"expiry":1}', 1_700_000_000_123_456, "store", 7)
OPTIONS = {"broker": "mqtt://localhost", "topics": "a", "spool": "/tmp/spool"}


def test_a_record_is_a_row() -> None:
    [batch] = batches(iter([ARRIVAL, Arrival("c", b"")]), EVERYTHING)
    assert batch.to_pylist() == [
        {
            "topic": "a/b",
            "payload": b"\x00",
            "qos": 2,
            "retain": True,
            "properties": '{"expiry":1}',
            "received": datetime(2023, 11, 14, 22, 13, 20, 123456, UTC),
            "store": "store",
            "position": 7,
        },
        {
            "topic": "c",
            "payload": b"",
            "qos": 0,
            "retain": False,
            "properties": None,
            "received": datetime(1970, 1, 1, tzinfo=UTC),
            "store": None,
            "position": None,
        },
    ]


def test_batches_are_bounded_by_rows_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "BATCH_ROWS", 10)
    monkeypatch.setattr(rows, "BATCH_BYTES", 100)
    found = list(batches((Arrival("a", b"x") for _ in range(25)), EVERYTHING))
    assert [each.num_rows for each in found] == [10, 10, 5]
    found = list(batches((Arrival("a", b"x" * 60) for _ in range(5)), EVERYTHING))
    assert [each.num_rows for each in found] == [2, 2, 1]
    assert list(batches(iter(()), EVERYTHING)) == []


def test_the_columns_are_those_that_were_asked_for() -> None:
    source = MqttSource(OPTIONS)
    assert source.schema() == ddl(names(False)) and "position" not in source.schema()
    assert MqttSource({**OPTIONS, "positions": "true"}).schema().endswith("store string, position bigint")
    reader = source.streamReader(StructType().add("topic", StringType(), False))
    assert reader._shape == pa.schema([pa.field("topic", pa.string(), False)])


def test_columns_that_there_are_not_are_named() -> None:
    with pytest.raises(BadOption, match=r"unknown column 'colour' of .*; there are topic, payload"):
        MqttSource(OPTIONS).streamReader(StructType().add("colour", StringType()))
    with pytest.raises(BadOption, match="there is no column position: positions=true"):
        MqttSource(OPTIONS).streamReader(StructType().add("position", StringType()))
    with pytest.raises(BadOption, match="the column qos is tinyint, not int"):
        MqttSource(OPTIONS).streamReader(StructType().add("qos", IntegerType()))
