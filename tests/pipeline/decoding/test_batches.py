"""What `decode` makes of a batch, whatever decodes its payloads."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.pipeline.decoding import Rules, decode
from headwater.pipeline.decoding.schemas import QUARANTINED, arrow_schema
from headwater.pipeline.tables import QUARANTINE, SILVER
from tests.pipeline.decoding.bronze import NOON, SECOND, bronze, reading, rows, rules_of

HOUR = 3600 * SECOND


def test_columns_are_those_of_the_tables() -> None:
    found = decode(bronze([b"1", b"x"]), rules_of(decoder="number"))
    assert tuple(found.readings.schema.names) == SILVER.names
    assert tuple(found.quarantined.schema.names) == QUARANTINE.names
    assert found.readings.schema == arrow_schema(SILVER) and found.quarantined.schema == QUARANTINED
    found.readings.validate(full=True)
    found.quarantined.validate(full=True)


def test_a_reading_has_what_its_message_had() -> None:
    batch = bronze([b'{"value": 2.5}'], values=[2.5], times=NOON - HOUR, first=42)
    [found] = rows(decode(batch, Rules()).readings)
    assert found == {
        "store": "s1",
        "position": 42,
        "part": 0,
        "topic": "plant/line1/press7/temp",
        "device": "client-1",
        "metric": "temp",
        "time": NOON - HOUR,
        "arrival": NOON,
        "clock": "ok",
        "value": 2.5,
        "text": None,
        "data": '{"value": 2.5}',
        "raw": None,
        "decoder": "auto",
        "day": batch["day"][0].as_py(),
    }


@pytest.mark.parametrize("decoder", ["auto", "json"])
def test_a_document_that_was_too_long_for_the_store_is_looked_into(decoder: str) -> None:
    """Stores look into a mebibyte of payload: beyond, they say the arrival and no value."""
    rest = b'"rest": "' + b"x" * (1 << 20) + b'"}'
    bodies = [b'{"ts": "2026-09-10T00:26:40Z", "value": 7, ' + rest, b'{"date": 1789000001, "value": "n/a", ' + rest]
    found = rows(decode(bronze([*bodies, b"1", b'{"ts": 0, ' + rest]), rules_of(decoder=decoder)).readings)
    assert [(row["time"], row["value"]) for row in found] == [
        (NOON, 7.0),
        (NOON + SECOND, None),
        (NOON, 1.0),
        (0, None),
    ]


def test_a_message_in_quarantine_is_as_it_came() -> None:
    batch = bronze([b"1", b"\xff"], times=NOON - 1)
    [found] = rows(decode(batch, rules_of(decoder="text")).quarantined)
    assert found == {
        "store": "s1",
        "position": 2,
        "topic": "plant/line1/press7/temp",
        "payload": b"\xff",
        "publisher": "client-1",
        "time": NOON - 1,
        "arrival": NOON,
        "decoder": "text",
        "day": batch["day"][0].as_py(),
        "reason": "the payload is no UTF-8: invalid start byte at byte 0",
    }


def test_messages_keep_their_order_over_rules() -> None:
    topics = ["a", "b", "c", "a", "c", "b", "a"]
    payloads = [b"1", b'{"list": [1, 2]}', b"x", b"no", b"\xff", b'{"list": []}', b"7"]
    rules = Rules.from_settings(
        [{"filter": "a", "decoder": "number"}, {"filter": "b", "decoder": "json", "each": "list"}, {"decoder": "text"}]
    )
    readings, quarantined = decode(bronze(payloads, topics), rules)
    assert [(row["position"], row["part"]) for row in rows(readings)] == [(1, 0), (2, 0), (2, 1), (3, 0), (7, 0)]
    assert [row["position"] for row in rows(quarantined)] == [4, 5, 6]


@pytest.mark.parametrize("dictionaries", [True, False])
def test_a_batch_may_be_empty(dictionaries: bool) -> None:
    rules = rules_of(decoder="json", fields={"a": "double"})
    found = decode(bronze([], [], dictionaries=dictionaries), rules)
    assert found.readings.schema == rules.schema and found.readings.num_rows == 0
    assert found.quarantined.schema == QUARANTINED and found.quarantined.num_rows == 0


def test_strings_may_come_in_any_way_of_arrow() -> None:
    batch = bronze([b'{"a":1}', b"no"], ["a", "b/c"])
    expected = decode(batch, Rules())
    for strings, binaries in ((pa.string(), pa.binary()), (pa.large_string(), pa.large_binary())):
        plain = [
            each.cast(strings) if name in ("topic", "publisher") else each.cast(binaries) if name == "payload" else each
            for name, each in zip(batch.schema.names, batch.columns, strict=True)
        ]
        found = decode(pa.RecordBatch.from_arrays(plain, names=batch.schema.names), Rules())
        assert found.readings.equals(expected.readings)


def test_a_slice_of_a_batch_is_decoded_as_such() -> None:
    payloads = [b'{"a":1}', b"5", b"text", b"\x00\xff", b'{"a":1,"a":2}', b'{"b":[1]}']
    batch = bronze(payloads, [f"t/{number}" for number in range(6)])
    whole = decode(batch, Rules()).readings
    for start in range(6):
        for length in range(1, 7 - start):
            assert decode(batch.slice(start, length), Rules()).readings.equals(whole.slice(start, length))


def test_a_batch_without_a_column_is_an_error() -> None:
    with pytest.raises(ValueError, match="the batch has no column 'arrival'; it has store"):
        decode(bronze([b""]).drop_columns(["arrival"]), Rules())


# ---- clocks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time", "clock"),
    [
        (NOON, "ok"),
        (NOON + 10 * SECOND, "ok"),
        (NOON + 10 * SECOND + 1, "ahead"),
        (NOON - 60 * SECOND, "ok"),
        (NOON - 60 * SECOND - 1, "behind"),
        (253402300799999999, "ahead"),  # the end of the year 9999
        (-62135596800000000, "behind"),  # the begin of the year 1
        (-1, "behind"),
    ],
)
def test_clocks(time: int, clock: str) -> None:
    rules = Rules.from_settings([], ahead=10.0, behind=60.0)
    found = reading(b"1", rules, times=time)
    assert (found["clock"], found["time"]) == (clock, time)


def test_a_clock_may_be_minutes_ahead_and_days_behind_unless_it_is_said() -> None:
    clocks = [
        reading(b"1", times=NOON + apart)["clock"] for apart in (300 * SECOND, 301 * SECOND, -167 * HOUR, -169 * HOUR)
    ]
    assert clocks == ["ok", "ahead", "ok", "behind"]


# ---- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "metric", "expected"),
    [
        (None, None, ("client-1", "temp")),
        ("{3}", "{-1}", ("press7", "temp")),
        ("{2}/{3}", "{topic}", ("line1/press7", "plant/line1/press7/temp")),
        ("{publisher}@{1}", "{-4}!", ("client-1@plant", "plant!")),
        ("{5}", "{-5}", ("client-1", "temp")),  # a level that the topic does not have
        ("fixed", "fixed", ("fixed", "fixed")),
    ],
)
def test_names_by_topic(device: str | None, metric: str | None, expected: tuple[str, str]) -> None:
    settings = {key: name for key, name in (("device", device), ("metric", metric)) if name is not None}
    found = reading(b"1", rules_of(**settings))
    assert (found["device"], found["metric"]) == expected


def test_names_of_several_publishers_and_topics() -> None:
    rules = Rules.from_settings([{"filter": "a/#", "device": "{publisher}-{2}"}, {"filter": "b/#", "device": "{2}"}])
    batch = bronze([b"1"] * 4, ["a/x", "b/y", "a/x", "c"], publishers=["p", "q", "r", "s"])
    assert [row["device"] for row in rows(decode(batch, rules).readings)] == ["p-x", "y", "r-x", "s"]


def test_an_empty_level_is_no_name() -> None:
    found = reading(b"1", rules_of(device="{1}", metric="{1}"), topics="/x")
    assert (found["device"], found["metric"]) == ("client-1", "x")
    assert reading(b"1", topics="x/")["metric"] == ""
