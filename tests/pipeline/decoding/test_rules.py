"""Rules from settings, and errors that say what to do."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from headwater.pipeline.decoding import Rules, SettingsError, decode
from headwater.pipeline.decoding.rules import MOST_REMEMBERED
from tests.pipeline.decoding.bronze import bronze, rows


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"filtr": "a"}, "unknown setting 'filtr' of a rule with decoder 'auto'; did you mean 'filter'?"),
        ({"mode": "variant"}, "unknown setting 'mode' of a rule with decoder 'auto'"),
        ({"decoder": "jason"}, "unknown decoder 'jason'; did you mean 'json'?"),
        ({"decoder": "x"}, "there are auto, raw, text, number, json, cbor, or module:function"),
        ({"decoder": 5}, "decoder is the name of one, not 5"),
        ({"decoder": "no.such.module:f"}, "cannot be imported: ModuleNotFoundError"),
        ({"decoder": "json:nothing_there"}, "cannot be imported: AttributeError"),
        ({"decoder": "math:pi"}, "is no function, but float"),
        ({"decoder": ":f"}, "is no place of a function"),
        ({"decoder": "json", "mode": "variants"}, "did you mean 'variant'?"),
        ({"decoder": "json", "mode": "declared"}, "needs `fields`"),
        ({"decoder": "json", "mode": "inferred", "fields": {"a": "double"}}, "fields are for mode 'declared'"),
        ({"decoder": "json", "fields": ["a"]}, "fields is a table of paths and types, not ['a']"),
        (
            {"decoder": "json", "fields": {"a": "float"}},
            "field 'a': unknown type 'float'; there are double",
        ),
        ({"decoder": "json", "fields": {"a..b": "double"}}, "'a..b' is no path"),
        ({"decoder": "json", "fields": {"a.b": "double", "A_B": "double"}}, "'a.b' and 'A_B' are both column 'a_b'"),
        ({"decoder": "json", "time": "ts", "unit": "sec"}, "unknown unit 'sec'"),
        ({"decoder": "json", "unit": "ms"}, "say by `time` where it is"),
        ({"decoder": "json", "time": 5}, "time is a path such as data.temp, not 5"),
        ({"decoder": "json", "value": ""}, "value: '' is no path"),
        ({"filter": "a/#/b"}, "'#' must be the last level"),
        ({"filter": ""}, "the topic filter is empty"),
        ({"filter": []}, "filter is a topic filter or a list of some, not []"),
        ({"filter": "$share/g/a"}, "leave $share and the group's name away"),
        ({"device": "{0}"}, "device: there is no {0} in a name"),
        ({"device": "{client}"}, "there is no {client}"),
        ({"device": "{1"}, "is no name such as"),
        ({"device": ""}, "is no name such as"),
        ({"metric": "$.a"}, "$.a is for the decoders json and cbor, and here is 'auto'"),
        ({"decoder": "json", "options": {}}, "unknown setting 'options' of a rule with decoder 'json'"),
    ],
)
def test_errors_name_the_rule_and_what_to_do(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError) as error:
        Rules.from_settings([{"filter": "fine"}, settings])
    assert str(error.value).startswith("rule 2: ")
    assert words in str(error.value)


def test_a_rule_is_a_table() -> None:
    with pytest.raises(SettingsError, match="rule 1: a rule is a table of settings, not 'json'"):
        Rules.from_settings(["json"])  # type: ignore[list-item]


@pytest.mark.parametrize(
    "limits", [{"ahead": -1}, {"behind": "a day"}, {"longest": True}, {"most_columns": float("nan")}]
)
def test_limits_are_numbers(limits: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="is a number from 0 on"):
        Rules.from_settings([], **limits)


def test_one_column_has_one_type() -> None:
    first = {"decoder": "json", "fields": {"temp": "double"}}
    with pytest.raises(SettingsError, match="column 'temp' cannot be double and string"):
        Rules.from_settings([first, {"decoder": "json", "fields": {"Temp": "string"}}])
    with pytest.raises(SettingsError, match="column 'temp' cannot be string and double"):
        Rules.from_settings([first]).knowing({"temp": "string"})
    with pytest.raises(SettingsError, match="column 'temp' is array"):
        Rules().knowing({"temp": "array<int>"})


def test_the_first_rule_that_matches_counts() -> None:
    rules = Rules.from_settings(
        [
            {"filter": ["a/+", "b/#"], "decoder": "text"},
            {"filter": "a/#", "decoder": "raw"},
            {"filter": "#", "decoder": "number"},
            {"filter": "$SYS/x", "decoder": "json"},
        ]
    )
    topics = {"a/x": "text", "b": "text", "b/x/y": "text", "a/x/y": "raw", "c": "number", "/": "number"}
    topics |= {"$SYS/x": "json", "$SYS/y": "auto"}  # which no wildcard reaches
    found = decode(bronze([b"1"] * len(topics), list(topics)), rules)
    assert {row["topic"]: row["decoder"] for row in rows(found.readings)} == topics


def test_rules_can_be_pickled_with_what_they_know() -> None:
    rules = Rules.from_settings([{"decoder": "cbor"}, {"decoder": "json", "fields": {"a": "double"}}], ahead=5.0)
    rules = rules.knowing({"b": "string", "value": "double"}, closed=True)
    decode(bronze([b"\x01"]), rules)
    again = pickle.loads(pickle.dumps(rules))
    assert again.rules == rules.rules and again.limits == rules.limits and again.closed
    assert again.columns == {"a": "double", "b": "string"}
    assert again.schema == rules.schema
    assert decode(bronze([b"\x01"]), again).readings.equals(decode(bronze([b"\x01"]), rules).readings)


def test_topics_that_never_repeat_do_not_fill_the_memory() -> None:
    rules = Rules()
    for number in range(MOST_REMEMBERED + 10):
        rules.number_of(str(number))
    assert len(rules._numbers) <= MOST_REMEMBERED
