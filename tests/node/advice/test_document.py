"""What is advice, and what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.node.advice.document import (
    LONGEST,
    BadAdvice,
    Expired,
    read_advice,
    subject_of,
    topic_of,
)
from tests.node.advice.documents import EPOCH, GROUP, TOPIC, document, moment

NOW = EPOCH + 1000.0
DAY = 86_400.0
SPLIT = topic_of("split", "4f1c")


def read(found: object, topic: str = TOPIC) -> object:
    return read_advice(topic, json.dumps(found).encode(), NOW, DAY)


def test_weights() -> None:
    advice = read_advice(TOPIC, json.dumps(document(7, why="slow")).encode(), NOW, DAY)
    assert (advice.kind, advice.subject, advice.number, advice.why) == ("weights", GROUP, 7, "slow")
    assert advice.weights == {"one": 2.0, "two": 0.5}
    assert (advice.made, advice.expires) == (NOW, NOW + 600)


def test_a_split() -> None:
    advice = read_advice(SPLIT, json.dumps(document(1, parts=[["a/#"], ["#", "b/+"]])).encode(), NOW, DAY)
    assert (advice.subject, advice.parts) == ("4f1c", (("a/#",), ("#", "b/+")))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"version": 2}, "version"),
    ({"version": True}, "version"),
    ({"number": 0}, "number"),
    ({"number": -1}, "number"),
    ({"number": 1.5}, "number"),
    ({"number": True}, "number"),
    ({"number": 1 << 63}, "number"),
    ({"number": "7"}, "number"),
    ({"made": "yesterday"}, "ISO 8601"),
    ({"made": 7}, "ISO 8601"),
    ({"made": "2026-09-21T00:00:00"}, "with a zone"),
    ({"made": moment(NOW + 301), "expires": moment(NOW + 400)}, "in the future"),
    ({"expires": "9999-12-31T23:59:59Z"}, "at most 86400 seconds"),
    ({"made": "9999-12-31T23:00:00Z", "expires": "9999-12-31T23:59:59-23:00"}, "."),
    ({"made": "0001-01-01T00:00:00+23:00"}, "."),
    ({"expires": moment(NOW)}, "more than 0"),
    ({"why": 7}, "why"),
    ({"why": "x" * 5000}, "why"),
    ({"colour": "red"}, "keys"),
    ({"parts": []}, "keys"),
    ({"weights": {}}, "1 to 1000"),
    ({"weights": {f"m{number}": 1 for number in range(1001)}}, "1 to 1000"),
    ({"weights": [1]}, "1 to 1000"),
    ({"weights": {"": 1}}, "client ids"),
    ({"weights": {"one": "2"}}, "numbers"),
    ({"weights": {"one": True}}, "numbers"),
    ({"weights": {"one": None}}, "numbers"),
    ({"weights": {"one": -2}}, "is not from 0.01 to 100"),
    ({"weights": {"one": 0}}, "is not from 0.01 to 100"),
    ({"weights": {"one": 1e308}}, "is not from 0.01 to 100"),
    ({"weights": {"one": 10**400}}, "is not from 0.01 to 100"),
    ({"weights": {"one": float("nan")}}, "NaN is no number"),
    ({"weights": {"one": float("inf")}}, "Infinity is no number"),
]


@pytest.mark.parametrize(("change", "said"), WRONG, ids=[str(change)[:40] for change, _ in WRONG])
def test_what_is_wrong_is_said(change: dict[str, Any], said: str) -> None:
    found = document()
    if "parts" in change:
        found["parts"] = []
    with pytest.raises(BadAdvice, match=said):
        read(found | change)


@pytest.mark.parametrize("key", ["version", "number", "made", "expires", "weights"])
def test_nothing_may_be_missing(key: str) -> None:
    found = document()
    del found[key]
    with pytest.raises(BadAdvice, match="keys"):
        read(found)


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 60_000, "not JSON"),
        (b"[]", "no JSON object"),
        (b"null", "no JSON object"),
        (b" " * (1 << 20), f"at most {LONGEST}"),
        (b'{"version": 1, "version": 1}', "twice"),
        (b'{"weights": {"one": 1, "one": 2}}', "twice"),
        (b'{"why": "\\ud800"}', "not JSON"),
        (b'{"number": 1e999}', "keys"),
        (b'{"number": ' + b"9" * 5000 + b"}", "not JSON"),
    ],
)
def test_bytes_that_are_no_document(payload: bytes, said: str) -> None:
    with pytest.raises(BadAdvice, match=said):
        read_advice(TOPIC, payload, NOW, DAY)


def test_what_was_advice_once() -> None:
    with pytest.raises(Expired):
        read(document(at=NOW - 601, seconds=600))


@pytest.mark.parametrize(
    "parts",
    [[], [["a"]], [["a"], []], [["a"], ["a"]], [["a"], ["a#"]], [["a"], [""]], [["a"], "b"], [["a"], [7]], {"a": 1}],
)
def test_parts_that_are_none(parts: object) -> None:
    with pytest.raises(BadAdvice):
        read(document(parts=parts), SPLIT)


@pytest.mark.parametrize(
    "topic",
    [
        "$headwater/advice/colours/x",
        "$headwater/advice/weights",
        "$headwater/advice/weights/",
        "$headwater/advice/weights/a/b",
        "$headwater/advice/weights/%24share%2fg%2ft",  # another way to write the same
        "$headwater/advice/weights/$share%2Fg%2Ft",
        "$headwater/advice/weights/" + "x" * 5000,
        topic_of("weights", "g/t"),
        topic_of("weights", "$share/g"),
        topic_of("weights", "$share/g/a#"),
    ],
)
def test_topics_that_name_nothing(topic: str) -> None:
    with pytest.raises(BadAdvice):
        read(document(), topic)


@given(st.text(min_size=1, max_size=50).filter(lambda text: text.isprintable()))
def test_each_subject_has_one_topic(subject: str) -> None:
    assert subject_of(topic_of("split", subject)) == ("split", subject)


@given(st.binary(max_size=200))
def test_nothing_but_bad_advice_comes_of_rubbish(payload: bytes) -> None:
    with pytest.raises(BadAdvice):
        read_advice(TOPIC, payload, NOW, DAY)
