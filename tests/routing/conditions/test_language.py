"""What conditions mean, against a second implementation; every text is a condition, or an error with a place."""

from __future__ import annotations

import json
import time
from typing import Any

import cbor2
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headwater.routing.conditions.condition import ContentCondition, condition_of
from headwater.routing.conditions.errors import ConditionError
from headwater.routing.conditions.parser import DEEPEST, MOST_ITEMS, MOST_STEPS, MOST_TERMS
from headwater.routing.conditions.reading import Reading
from headwater.routing.conditions.tokens import LONGEST, LONGEST_NUMBER
from headwater.routing.conditions.values import LONGEST_ORDERED
from tests.routing.conditions.reference import NAMES, Meaning, Writer, texts, trees, values

TOO_MUCH = ("longer than", "more than", "deeper than")


def holds(condition: ContentCondition, payload: bytes, topic: str = "t", **more: Any) -> bool:
    return condition.may_hold(Reading(1, topic, payload, **more))


def said(text: str, payload: object, **more: Any) -> bool:
    return holds(condition_of(text), json.dumps(payload).encode(), **more)


topics = st.lists(st.sampled_from(["a", "3", "-2.5", "", "C"]), min_size=1, max_size=4).map("/".join)
pairs = st.lists(st.tuples(st.sampled_from(NAMES), texts), max_size=3)


@given(trees, values, topics, pairs, st.integers(0, 10**6), st.booleans())
@settings(max_examples=500)
def test_it_means_what_the_reference_says(
    tree: Any, document: Any, topic: str, user: list[tuple[str, str]], seed: int, as_cbor: bool
) -> None:
    text = Writer(seed).tree(tree)
    assume(len(text) <= LONGEST)
    condition = condition_of(text)
    payload = cbor2.dumps(document) if as_cbor else json.dumps(document).encode()
    kind = "application/cbor" if as_cbor else None
    reading = Reading(1, topic, payload, user, kind)
    assert condition.may_hold(reading) == (Meaning(topic, document, user).truth(tree) is True), condition.text


@given(trees, st.integers(0, 10**6), st.integers(0, 10**6))
def test_spelling_is_nothing_and_the_normal_form_is_a_condition_again(tree: Any, one: int, other: int) -> None:
    texts = [Writer(seed).tree(tree) for seed in (one, other)]
    assume(all(len(text) <= LONGEST for text in texts))
    first, second = (condition_of(text) for text in texts)
    assert first.text == second.text
    try:
        assert condition_of(first.text).text == first.text
    except ConditionError as error:
        assert error.problem.startswith(TOO_MUCH)


@given(st.text(max_size=200) | st.lists(st.sampled_from(
    ["value", "and", "or", "not", "(", ")", "in", "between", "exists", "changed", "limit", "per", "topic", "user", ".",
     "[", "]", "=", "<", "'", '"', "1", "-", "10s", "1e999", "null", ",", " ", "payload", "\ud800", "\0"]
), max_size=30).map(" ".join))  # fmt: skip
@settings(max_examples=1000)
def test_any_text_is_a_condition_or_has_an_error_at_a_place(text: str) -> None:
    try:
        condition = condition_of(text)
    except ConditionError as error:
        assert 1 <= error.place <= len(text) + 1
        assert str(error).endswith(f"at character {error.place}")
        assert len(str(error)) < 200 + len(text)
    else:
        holds(condition, b'{"value": 1}')


@given(st.binary(max_size=200), st.sampled_from([None, "application/cbor", "application/json", "x+cbor; a=b"]))
@settings(max_examples=1000)
def test_any_payload_may_come(payload: bytes, kind: str | None) -> None:
    for text in ("value > 3", "payload = 'x'", "not value.a[0] < 3", "payload[0] in (1, 'a', null)", "exists(value)"):
        holds(condition_of(text), payload, content_type=kind)


@pytest.mark.parametrize(
    ("text", "payload", "expected"),
    [
        ("value > 30 and unit = 'C'", {"value": 31, "unit": "C"}, True),
        ("value > 30 and unit = 'C'", {"value": 30, "unit": "C"}, False),
        ("value > 30 or unit = 'F'", {"value": 3, "unit": "F"}, True),
        ("value>30", {"value": "31"}, False),  # a text in JSON is a text
        ("not value > 30", {}, False),
        ("value != 3", {"value": "3"}, True),
        ("value != 3", {}, False),
        ("value = null", {"value": None}, True),
        ("exists(value)", {"value": None}, True),
        ("not exists(value)", {}, True),
        ("alarm", {"alarm": True}, True),
        ("not alarm", {"alarm": False}, True),
        ("not alarm", {"alarm": 0}, False),
        ("data.list[1].x between 2 and 4", {"data": {"list": [0, {"x": 3}]}}, True),
        ("payload['a b'] = 1", {"a b": 1}, True),
        ("payload.limit not in (1, 2)", {"limit": 3}, True),
        ("value in (1, 2)", {"value": True}, False),
        ("value = 1", {"value": True}, False),
        ("value = 9007199254740993", {"value": 9007199254740992}, False),
        ("value < other", {"value": 1, "other": 2}, True),
        ("payload[0] = 1", [1], True),
        ("payload = 31.5", 31.5, True),
        ("NOT (a = 1 OR a = 2) AND TRUE", {"a": 3}, True),
    ],
)
def test_examples(text: str, payload: object, expected: bool) -> None:
    assert said(text, payload) is expected


def test_topics_and_user_properties() -> None:
    assert said("topic = 'plant/7/temp'", {}, topic="plant/7/temp")
    assert said("topic[1] >= 5 and topic[1] in (7, 8) and topic[2] = 'temp'", {}, topic="plant/7/temp")
    assert not said("topic[3] != 'x'", {}, topic="plant/7/temp")
    assert said("user.site = 'north' and user['a b'] < 2.5", {}, user_properties=[("site", "north"), ("a b", "2")])
    assert not said("user.site = 'south'", {}, user_properties=[("site", "north"), ("site", "south")])  # the first one
    assert not said("topic[0] < 5", {}, topic="x") and not said("topic[0] < 5", {}, topic="nan")


def test_user_properties_are_looked_through_once_for_all_tests() -> None:
    """A message may have a thousand, and a condition many tests."""
    pairs = [("a", "1"), ("a", "2"), ("b", "3")]
    reading = Reading(1, "t", b"", pairs)
    assert reading.user_property("b") == "3"
    pairs.clear()
    assert reading.user_property("a") == "1"
    assert condition_of("not exists(user.c)").may_hold(reading)


def test_of_very_long_texts_neither_is_less() -> None:
    """To find out would take as long as they are, for each test."""
    short, long = "x" * LONGEST_ORDERED, "x" * (LONGEST_ORDERED + 1)
    assert said("a < b", {"a": short, "b": "y"}) and said("a <= b", {"a": short, "b": short})
    for text in ("a < b", "not a < b", "a >= b", "b between 'a' and a"):
        assert not said(text, {"a": long, "b": "y"})
    assert said("a = b", {"a": long, "b": long}) and said("a != b", {"a": long, "b": "y"})


def test_cbor_that_looks_like_spaces_is_a_number() -> None:
    for number in (-1, 9, 10, 13):
        payload = cbor2.dumps(number)
        assert payload.isspace()
        assert condition_of(f"payload = {number}").may_hold(Reading(1, "t", payload, None, "application/cbor"))
        assert condition_of("payload = ' '").may_hold(Reading(1, "t", b" ")), "without that type it is a text"


def test_a_payload_that_is_no_document_is_a_text() -> None:
    assert holds(condition_of("payload = 'ON'"), b"ON")
    assert holds(condition_of("payload = 'ünïcode'"), "ünïcode".encode())
    assert holds(condition_of("payload = ''"), b"")
    assert holds(condition_of("payload = '{broken'"), b"{broken")
    assert not holds(condition_of("exists(payload)"), b"\xff\xfe")


def test_what_compares_with_nothing() -> None:
    for payload in (b"NaN", b"Infinity", b'{"value": NaN}', cbor2.dumps({"value": float("nan")}), cbor2.dumps({})):
        for sign in ("=", "!=", "<", ">="):
            assert not holds(condition_of(f"value {sign} 1"), payload)
    for value in ([], {}, [1]):
        assert not said("value = 1", {"value": value}) and not said("value != 1", {"value": value})
    assert holds(condition_of("value > 1e308"), cbor2.dumps({"value": float("inf")}))
    assert holds(condition_of("value > 1e308"), b'{"value": %d}' % 10**400)
    assert holds(condition_of("value = 18446744073709551617"), cbor2.dumps({"value": 2**64 + 1}))


def test_hostile_payloads_take_little() -> None:
    condition = condition_of("value > 30 or data.a.b = 'x' or payload[5] = 1")
    deep = b"[" * 65536
    numbers = b'{"value": ' + b"9" * 60000 + b"}"
    collisions = cbor2.dumps({n * (2**61 - 1): n for n in range(3000)})
    many = cbor2.dumps(list(range(60000)))
    huge = b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff"
    tags = b"\xc0" * 60000
    for payload in (deep, numbers, collisions, many, huge, tags, b'{"a":' * 10000, b"\x9f" * 60000, b'"' * 65536):
        began = time.process_time()
        assert not holds(condition, payload)
        assert time.process_time() - began < 0.1


def test_of_a_payload_above_the_bound_nothing_is_known() -> None:
    payload = json.dumps({"value": 50, "more": "x" * 1000}).encode()
    condition = condition_of("value > 30")
    assert condition.may_hold(Reading(1, "t", payload, most=len(payload)))
    reading = Reading(2, "t", payload, most=len(payload) - 1)
    assert not condition.may_hold(reading)
    assert reading.is_too_long


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", 1, "expected a name or a value, found the end"),
        ("value >", 8, "found the end"),
        ("value > 30 and", 15, "found the end"),
        ("value ~ 3", 7, "unexpected '~'"),
        ("value > 30 unit = 'C'", 12, "expected 'and', 'or', 'limit' or the end"),
        ("(value > 30", 12, "expected ')'"),
        ("value in ()", 11, "expected a number, a text"),
        ("value in (1, x)", 14, "expected a number, a text"),
        ("value between 1", 16, "expected 'and'"),
        ("value > 'C", 9, "closing quote"),
        ("limit > 3", 7, "whole number"),
        ("value > limit", 9, "payload.limit"),
        ("value > 1e999", 9, "too large"),
        ("value < true", 7, "neither more nor less"),
        ("3", 2, "expected a comparison"),
        ("topic.a = 1", 1, "payload.topic"),
        ("user = 1", 1, "user.name"),
        ("value limit 0 per 1s", 13, "whole number"),
        ("value limit 1 per 1d", 19, "a time such as"),
        ("value limit 1 per 9999h", 19, "from 1ms to 168h"),
        ("changed(value, -1)", 16, "not negative"),
        ("payload[-1] = 1", 9, "a number from 0"),
        ("value ~ /^a.*b$/", 7, "unexpected"),
    ],
)
def test_errors_point_at_the_place(text: str, place: int, words: str) -> None:
    with pytest.raises(ConditionError) as caught:
        condition_of(text)
    assert words in str(caught.value)
    assert caught.value.place == place


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "1" * (LONGEST - 3),
        "a = 0." + "1" * LONGEST_NUMBER,
        "(" * (DEEPEST + 1) + "a = 1" + ")" * (DEEPEST + 1),
        "not " * (DEEPEST + 1) + "a",
        " or ".join(["a"] * (MOST_TERMS + 1)),
        "a in (" + ",".join(["1"] * (MOST_ITEMS + 1)) + ")",
        "a" + ".b" * MOST_STEPS + " = 1",
    ],
)
def test_what_a_condition_may_have_is_bounded(text: str) -> None:
    with pytest.raises(ConditionError, match=r"longer than|deeper than|more than"):
        condition_of(text)


def test_what_is_within_the_bounds_is_taken() -> None:
    condition_of("(" * DEEPEST + "a = 1" + ")" * DEEPEST)
    condition_of(" or ".join(["a"] * MOST_TERMS))
    condition_of("a in (" + ",".join(["1"] * MOST_ITEMS) + ")")
    condition_of("a" + ".b" * (MOST_STEPS - 1) + " = 1")


def test_the_dearest_condition_takes_little() -> None:
    dearest = " or ".join(["a.b.c.d.e>x"] * MOST_TERMS)
    condition = condition_of(dearest)
    payload = json.dumps({"a": {"b": {"c": {"d": {"e": 1}}}}, "x": 2}).encode()
    began = time.process_time()
    for number in range(100):
        condition.may_hold(Reading(number + 1, "t", payload))
    assert (time.process_time() - began) / 100 < 0.002
