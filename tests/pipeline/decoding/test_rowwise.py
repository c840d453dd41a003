"""Documents with paths and fields."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from headwater.pipeline.decoding import Rules, decode
from headwater.pipeline.decoding.fields import DEEPEST_FIELD
from headwater.pipeline.decoding.naming import LONGEST_COLUMN, column_name
from headwater.pipeline.decoding.reading import MOST_READINGS
from headwater.pipeline.decoding.schemas import FIXED
from tests.pipeline.decoding.bronze import NOON, SECOND, bronze, decoded, reading, refusal, rows, rules_of


def json_rules(**settings: Any) -> Rules:
    return rules_of(decoder="json", **settings)


# ---- time, value and names by path ---------------------------------------------------------------------------------


def test_time_and_value_by_path() -> None:
    rules = json_rules(time="meta.at", unit="ms", value="temp.c", device="$.meta.id", metric="$.kind")
    found = reading(
        b'{"meta":{"at":1789000000500,"id":7},"temp":{"c":21.5},"kind":"air","value":3}', rules, values=[3.0]
    )
    assert found["time"] == NOON + SECOND // 2
    assert (found["value"], found["device"], found["metric"], found["decoder"]) == (21.5, "7", "air", "json")
    assert found["data"].startswith('{"meta":')


def test_what_is_not_there_is_as_the_message_says() -> None:
    rules = json_rules(time="at", value="temp", device="$.id", metric="$.kind")
    for payload in (b"{}", b'{"at":null,"temp":null,"id":null,"kind":[]}', b'{"id":{},"kind":""}'):
        found = reading(payload, rules, times=NOON - 1, values=[3.0])
        assert (found["time"], found["value"], found["device"], found["metric"]) == (NOON - 1, None, "client-1", "temp")


def test_without_a_path_the_value_is_that_of_the_store() -> None:
    assert reading(b'{"value":1,"at":5}', json_rules(time="at"), values=[3.0])["value"] == 3.0
    assert reading(b"5", json_rules(time="at"), values=[5.0])["value"] == 5.0


@pytest.mark.parametrize(
    ("found", "value", "text"),
    [
        (1, 1.0, None),
        (-0.5, -0.5, None),
        ("open", None, "open"),
        (True, 1.0, None),
        (False, 0.0, None),
        ([1], None, None),
        ({}, None, None),
    ],
)
def test_what_a_value_may_be(found: Any, value: float | None, text: str | None) -> None:
    made = reading(json.dumps({"x": found}).encode(), json_rules(value="x"))
    assert (made["value"], made["text"]) == (value, text)


@pytest.mark.parametrize("wrong", ["yesterday", True, {}, 1e300, -1e18])
def test_a_time_that_is_none_is_refused(wrong: Any) -> None:
    reason = refusal(json.dumps({"at": wrong}).encode(), json_rules(time="at", unit="s"))
    assert reason.startswith("field at is ") and reason.endswith(", and no time")


def test_a_clock_is_judged_by_the_time_that_was_decoded() -> None:
    assert reading(b'{"at":"9999-12-31"}', json_rules(time="at"))["clock"] == "ahead"
    assert reading(b'{"at":-1}', json_rules(time="at"))["clock"] == "behind"


# ---- several readings ----------------------------------------------------------------------------------------------


def test_each_part_of_a_list_is_a_reading() -> None:
    rules = json_rules(each="r", time="t", unit="s", device="$.id", metric="$.m")
    payload = b'{"id":"d","t":1,"r":[{"m":"a","value":1,"t":2},{"m":"b","value":"x"},3]}'
    readings, quarantined = decoded(payload, rules, values=[9.0])
    assert quarantined == []
    found = [(row["part"], row["metric"], row["value"], row["text"], row["time"], row["device"]) for row in readings]
    expected = [(0, "a", 1.0, None, 2, "d"), (1, "b", None, "x", 1, "d"), (2, "temp", 3.0, None, 1, "d")]
    assert found == [(part, metric, value, text, time * SECOND, id) for part, metric, value, text, time, id in expected]
    assert [row["data"] for row in readings] == ['{"m":"a","value":1,"t":2}', '{"m":"b","value":"x"}', "3"]


@pytest.mark.parametrize("payload", [b"{}", b'{"r":[]}', b'{"r":{}}', b'{"r":null}', b"5"])
def test_no_list_of_readings(payload: bytes) -> None:
    assert refusal(payload, json_rules(each="r")) == "field r has no list of readings"


def test_too_many_readings() -> None:
    payload = json.dumps({"r": [0] * (MOST_READINGS + 1)}).encode()
    assert refusal(payload, json_rules(each="r")) == "field r has 10001 readings, and 10000 are allowed"


def test_a_part_that_cannot_be_read_refuses_the_message_whole() -> None:
    rules = json_rules(each="r", fields={"a": "double"})
    assert refusal(b'{"r":[{"a":1},{"a":"x"}]}', rules) == "field a is 'x', and declared as double"


# ---- declared ------------------------------------------------------------------------------------------------------

DECLARED = {"d": "double", "i": "bigint", "b": "boolean", "s": "string", "t": "timestamp", "n.x": "Double NOT NULL"}


def test_declared_fields_are_typed_columns() -> None:
    rules = json_rules(fields=DECLARED)
    assert rules.columns == {
        "d": "double",
        "i": "bigint",
        "b": "boolean",
        "s": "string",
        "t": "timestamp",
        "n_x": "double",
    }
    payload = (
        b'{"d":1,"i":9223372036854775807,"b":true,"s":"\\u0000","t":"1970-01-01T00:00:01Z","n":{"x":2},"more":[1]}'
    )
    batch = decode(bronze([payload]), rules).readings
    assert batch.schema == rules.schema and batch.schema.field("t").type == pa.timestamp("us", "UTC")
    [found] = rows(batch)
    assert [found[name] for name in rules.columns] == [1.0, 2**63 - 1, True, "\x00", SECOND, 2.0]
    assert found["data"] == payload.decode()


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({}, "field n.x is missing, and declared not null"),
        ({"n": {"x": None}}, "field n.x is missing, and declared not null"),
        ({"n": 5}, "field n.x is missing, and declared not null"),
        ({"n": {"x": "1"}}, "field n.x is '1', and declared as double"),
        ({"d": True}, "field d is true, and declared as double"),
        ({"i": True}, "field i is true, and declared as bigint"),
        ({"i": 1.5}, "field i is 1.5, and declared as bigint"),
        ({"i": 2**63}, "field i is 9223372036854775808, and declared as bigint"),
        ({"i": 1e300}, "field i is 1e+300, and declared as bigint"),
        ({"b": 1}, "field b is 1, and declared as boolean"),
        ({"s": 1}, "field s is 1, and declared as string"),
        ({"s": {}}, "field s is an object, and declared as string"),
        ({"d": []}, "field d is a list, and declared as double"),
        ({"t": "noon"}, "field t is 'noon', and declared as timestamp"),
        ({"d": "x" * 1000}, f"field d is '{'x' * 59}…, and declared as double"),
    ],
)
def test_violations_name_the_field_and_the_reason(document: dict[str, Any], reason: str) -> None:
    whole = {"n": {"x": 1}, **document} if document else document
    assert refusal(json.dumps(whole).encode(), json_rules(fields=DECLARED)) == reason


def test_what_is_declared_may_be_missing() -> None:
    found = reading(b'{"n":{"x":1},"d":null,"i":5.0}', json_rules(fields=DECLARED))
    assert [found[name] for name in ("d", "i", "b", "s", "t", "n_x")] == [None, 5, None, None, None, 1.0]


def test_other_rules_have_nothing_in_declared_columns() -> None:
    rules = Rules.from_settings([{"filter": "a", "decoder": "json", "fields": {"x": "double"}}])
    found = rows(decode(bronze([b'{"x":1}', b'{"x":1}'], ["a", "b"]), rules).readings)
    assert [row["x"] for row in found] == [1.0, None]


# ---- inferred ------------------------------------------------------------------------------------------------------


def further(payloads: list[bytes], rules: Rules) -> dict[str, list[Any]]:
    batch = decode(bronze(payloads), rules).readings
    assert batch.num_rows == len(payloads)
    return {name: batch[name].to_pylist() for name in batch.schema.names if name not in FIXED}


def test_scalars_become_columns_as_they_appear() -> None:
    payloads = [b'{"a":1,"on":true,"s":"x"}', b'{"b":{"C d":2.5},"list":[1],"nothing":null}', b"{}"]
    assert further(payloads, json_rules(mode="inferred")) == {
        "a": [1.0, None, None],
        "on": [True, None, None],
        "s": ["x", None, None],
        "b_c_d": [None, 2.5, None],
    }


def test_what_does_not_fit_is_null_there_and_still_in_the_document() -> None:
    payloads = [b'{"a":1}', b'{"a":"x"}', b'{"a":true}', b'{"a":3}']
    assert further(payloads, json_rules(mode="inferred")) == {"a": [1.0, None, None, 3.0]}
    assert further(payloads[::-1][1:], json_rules(mode="inferred")) == {"a": [True, None, None]}
    batch = decode(bronze(payloads), json_rules(mode="inferred")).readings
    assert batch["data"].to_pylist() == [each.decode() for each in payloads]


def test_types_of_a_table_are_established() -> None:
    rules = json_rules(mode="inferred").knowing({"a": "string", "at": "timestamp", "n": "bigint", "topic": "string"})
    found = further([b'{"a":1,"at":"1970-01-01","n":5,"new":true}', b'{"a":"x","at":"no","n":5.5}'], rules)
    assert found["a"] == [None, "x"] and found["n"] == [5, None] and found["new"] == [True, None]
    assert [each and each.year for each in found["at"]] == [1970, None]


def test_closed_rules_make_no_columns() -> None:
    rules = json_rules(mode="inferred").knowing({"a": "double"}, closed=True)
    assert not rules.infers
    assert further([b'{"a":1,"b":2}'], rules) == {"a": [1.0]}
    assert decode(bronze([b'{"b":2}']), rules).readings.schema == rules.schema


def test_columns_appear_in_the_order_of_messages_over_rules() -> None:
    rules = Rules.from_settings([{"filter": name, "decoder": "json", "mode": "inferred"} for name in ("b", "a")])
    found = decode(bronze([b'{"x":"text"}', b'{"x":1}', b'{"y":1}'], ["a", "b", "a"]), rules).readings
    assert found["x"].to_pylist() == ["text", None, None]


def test_columns_are_bounded() -> None:
    payload = json.dumps({f"f{number}": number for number in range(1000)}).encode()
    assert list(further([payload], json_rules(mode="inferred"))) == [f"f{number}" for number in range(200)]
    few = Rules.from_settings([{"decoder": "json", "mode": "inferred"}], most_columns=3).knowing(
        {"a": "double", "b": "string"}
    )
    assert list(further([payload], few)) == ["a", "b", "f0"]


def test_fields_are_not_looked_for_in_great_depth() -> None:
    deep: Any = 1
    for _ in range(DEEPEST_FIELD + 1):
        deep = {"a": deep}
    assert further([json.dumps(deep).encode(), json.dumps(deep["a"]).encode()], json_rules(mode="inferred")) == {
        "a_a_a_a_a": [None, 1.0]
    }


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("Temp",), "temp"),
        (("a b;c",), "a_b_c"),
        (("a", "b"), "a_b"),
        (("1st",), "_1st"),
        (("",), "_"),
        (("温度",), "温度"),
        (("`x`",), "_x_"),
        (("Value",), "value_"),
        (("data",), "data_"),
        (("store",), "store_"),
        (("x" * 1000,), "x" * LONGEST_COLUMN),
    ],
)
def test_names_of_columns_are_safe(names: tuple[str, ...], expected: str) -> None:
    assert column_name(names) == expected


def test_two_names_for_one_column() -> None:
    assert further([b'{"A b":1,"a_b":2}', b'{"a_b":2,"A b":1}'], json_rules(mode="inferred")) == {"a_b": [1.0, 2.0]}
