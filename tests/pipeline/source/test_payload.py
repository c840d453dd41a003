"""Declared columns of payloads, and headers."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from headwater.pipeline.options import OptionError
from headwater.pipeline.source.payload import CORRUPT, PayloadColumns, headers
from headwater.pipeline.source.settings import read_settings
from headwater.pipeline.source.shape import Shape, ddl
from tests.pipeline.source.some_stores import batch, rows, settings
from tests.store.messages import NOON
from tests.store.rest.served import Served

TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any], Any]] = {
    "text": (pa.string(), st.text(st.characters(codec="utf-8")), lambda value: value),
    "tiny": (pa.int8(), st.integers(-128, 127), lambda value: value),
    "whole": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1), lambda value: value),
    "number": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False), lambda value: value),
    "truth": (pa.bool_(), st.booleans(), lambda value: value),
    "at": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC)), lambda value: value.isoformat()),
    "day": (pa.date32(), st.dates(), lambda value: value.isoformat()),
    "raw": (pa.binary(), st.binary(), lambda value: base64.b64encode(value).decode()),
    "list": (pa.list_(pa.int32()), st.lists(st.none() | st.integers(-9, 9)), lambda value: value),
    "inner": (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        st.fixed_dictionaries({"a": st.none() | st.integers(0, 9), "b": st.none() | st.just("x")}),
        lambda value: value,
    ),
}
SCHEMA = pa.schema([pa.field(name, type) for name, (type, _, _) in TYPES.items()])
DOCUMENTS = st.lists(
    st.fixed_dictionaries({}, optional={name: st.none() | values for name, (_, values, _) in TYPES.items()}), max_size=5
)
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 1 << 70) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)


def as_json(document: dict[str, Any]) -> bytes:
    said = {name: None if value is None else TYPES[name][2](value) for name, value in document.items()}
    return json.dumps(said).encode()


@given(DOCUMENTS)
def test_what_was_declared_comes_out(documents: list[dict[str, Any]]) -> None:
    found = PayloadColumns(SCHEMA).of(pa.array(map(as_json, documents), pa.binary()))
    assert pa.Table.from_arrays(found, schema=SCHEMA).to_pylist() == [
        {name: document.get(name) for name in TYPES} for document in documents
    ]


@given(
    st.lists(
        st.binary(max_size=10)
        | st.dictionaries(st.sampled_from(sorted(TYPES)), ANYTHING).map(json.dumps).map(str.encode)
    )
)
def test_nothing_stops_it_and_a_misfit_harms_no_other_column(payloads: list[bytes]) -> None:
    told = SCHEMA.append(pa.field(CORRUPT, pa.string())).append(pa.field("other", pa.int64()))
    found = pa.Table.from_arrays(PayloadColumns(told).of(pa.array(payloads, pa.binary())), schema=told).to_pylist()
    assert len(found) == len(payloads)
    for payload, row in zip(payloads, found, strict=True):
        try:
            document = json.loads(payload)
        except ValueError:
            continue
        if isinstance(document, dict) and type(document.get("tiny")) is int and -129 < document["tiny"] < 128:
            if row["tiny"] is None:
                assert row[CORRUPT] is not None, "the document itself cannot be read"
            else:
                assert row["tiny"] == document["tiny"]


@pytest.mark.parametrize(
    ("payload", "row"),
    [
        (b'{"whole": 5, "number": 2}', {"whole": 5, "number": 2.0}),
        (b'{"whole": 1.5, "number": "2"}', {CORRUPT: '{"whole": 1.5, "number": "2"}'}),
        (b'{"whole": true, "tiny": 300}', {CORRUPT: '{"whole": true, "tiny": 300}'}),
        (b'{"text": {"a": [1]}}', {"text": '{"a":[1]}'}),
        (b'{"at": "2026-01-31T12:00:00+02:00"}', {"at": datetime(2026, 1, 31, 10, tzinfo=UTC)}),
        (b'{"at": 5, "day": "2026-01-31"}', {"day": date(2026, 1, 31), CORRUPT: '{"at": 5, "day": "2026-01-31"}'}),
        (b'{"raw": "?"}', {CORRUPT: '{"raw": "?"}'}),
        (b"[1]", {CORRUPT: "[1]"}),
        (b"\xff", {CORRUPT: "�"}),
        (b'{"unknown": 1}', {}),
    ],
)
def test_one_payload(payload: bytes, row: dict[str, Any]) -> None:
    schema = SCHEMA.append(pa.field(CORRUPT, pa.string()))
    [found] = pa.Table.from_arrays(PayloadColumns(schema).of(pa.array([payload])), schema=schema).to_pylist()
    assert {name: value for name, value in found.items() if value is not None} == row


def test_numbers_beyond_a_double_are_none() -> None:
    [column] = PayloadColumns(pa.schema([("number", pa.float64())])).of(pa.array([b'{"number": 1e999}']))
    assert column.to_pylist() == [None]


def test_headers_are_the_user_properties_in_their_order() -> None:
    said = ['{"user":[["a","1"],["a","\\u00fc"]],"expiry":3}', '{"content_type":"x"}', None, '{"user":[]}']
    pairs = [{"key": "a", "value": b"1"}, {"key": "a", "value": "ü".encode()}]
    assert headers(said).to_pylist() == [pairs, None, None, None]


# ---- as Spark asks for it ------------------------------------------------------------------------------------------

URL = {"url": "http://localhost:8080"}
KEYED = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def test_the_columns_that_spark_is_told() -> None:
    assert ddl(read_settings(URL)).endswith("properties STRING")
    declared = {**URL, "payloadSchema": "temp double, unit string"}
    assert ddl(read_settings(declared)).endswith("properties STRING, temp double, unit string")
    into = read_settings({**declared, "payloadColumn": "data", "includeHeaders": "true"})
    assert ddl(into).endswith(
        "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, `data` STRUCT<temp double, unit string>"
    )


def test_rows_with_declared_columns_and_headers(one: Served) -> None:
    properties = b'{"user":[["unit","C"]]}'
    one.writer.take("a/1", b'{"temp": 21.5}', arrival=NOON, properties=properties)
    one.writer.take("a/2", b"nothing", arrival=NOON)
    one.writer.sync()
    wanted = StructType(
        [StructField("temp", DoubleType()), StructField("headers", KEYED), StructField("position", LongType())]
    )
    reader = batch(one, payloadSchema="temp double", includeHeaders=True)
    reader.shape = Shape.of(wanted, reader.settings)
    assert rows(reader, list(reader.partitions())) == [
        {"temp": 21.5, "headers": [{"key": "unit", "value": b"C"}], "position": 1},
        {"temp": None, "headers": None, "position": 2},
    ]
    inner = StructType(
        [StructField("data", StructType([StructField("temp", DoubleType())])), StructField("position", LongType())]
    )
    reader = batch(one, payloadSchema="temp double", payloadColumn="data")
    reader.shape = Shape.of(inner, reader.settings)
    assert [row["data"] for row in rows(reader, list(reader.partitions()))] == [{"temp": 21.5}, {"temp": None}]


@pytest.mark.parametrize(
    ("options", "wanted", "why"),
    [
        ({}, [StructField("temp", DoubleType())], "unknown column 'temp'"),
        (
            {"payloadSchema": "x int"},
            [StructField("time", LongType()), StructField("TIME", LongType())],
            "payloadColumn='data'",
        ),
        (
            {"payloadSchema": "x decimal"},
            [StructField("x", DecimalType())],
            "decimal128.* is no type of a payload's columns",
        ),
        ({"payloadSchema": "x int", "payloadColumn": "data"}, [StructField("x", LongType())], "unknown column 'x'"),
        ({"payloadSchema": "x int not null"}, [StructField("x", LongType(), False)], "x is NOT NULL"),
        ({"payloadSchema": "x array<int>"}, [StructField("x", ArrayType(LongType(), False))], "is NOT NULL"),
        ({"includeHeaders": True}, [StructField("headers", StringType())], "'headers' is ARRAY<STRUCT"),
        ({}, [StructField("headers", KEYED)], "unknown column 'headers'"),
    ],
)
def test_columns_that_there_are_not(options: dict[str, Any], wanted: list[StructField], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        Shape.of(StructType(wanted), settings(**URL, **options))
