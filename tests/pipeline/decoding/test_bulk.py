"""auto, json, number, text and raw."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.pipeline.decoding import Rules, decode, json_text
from headwater.pipeline.decoding.json_text import DEEPEST, _strict_loads
from tests.pipeline.decoding.bronze import NOON, bronze, reading, refusal, rows, rules_of

OWN = ("value", "text", "data", "raw")


@pytest.fixture(params=["orjson", "json"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "json":
        monkeypatch.setattr(json_text, "quick", None)
        monkeypatch.setattr(json_text, "loads", _strict_loads)


def found(payload: bytes, rules: Rules | None = None, **about: Any) -> dict[str, Any]:
    return {
        name: value for name, value in reading(payload, rules, **about).items() if name in OWN and value is not None
    }


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b'{"a":1}', {"data": '{"a":1}'}),
        (b' {"a" : 1}\n', {"data": ' {"a" : 1}\n'}),
        (b'{"a":1,"a":2}', {"data": '{"a":2}'}),
        (b'{"a":{"b":1,"b":2},"c":"\\":"}', {"data": '{"a":{"b":2},"c":"\\":"}'}),
        (b'{"id":123456789012345678901234567890}', {"data": '{"id":123456789012345678901234567890}'}),
        (b"[1,2]", {"data": "[1,2]"}),
        (b"{}", {"data": "{}"}),
        (b"42", {"value": 42.0}),
        (b" -1.5e3\n", {"value": -1500.0}),
        (b"1" * 300, {"value": float("1" * 300)}),
        (b'"open"', {"text": "open"}),
        (b"open", {"text": "open"}),
        (b"true", {"text": "true"}),
        (b"null", {"text": "null"}),
        (b"NaN", {"text": "NaN"}),
        (b"1e999", {"text": "1e999"}),
        (b"21.5 C", {"text": "21.5 C"}),
        (b'{"a":NaN}', {"text": '{"a":NaN}'}),
        (b'{"a":"\\ud800"}', {"text": '{"a":"\\ud800"}'}),
        ("zwölf\tMal\r\n".encode(), {"text": "zwölf\tMal\r\n"}),
        (b"[" * 1000 + b"]" * 1000, {"text": "[" * 1000 + "]" * 1000}),
        (b"", {"raw": b""}),
        (b"\x00", {"raw": b"\x00"}),
        (b"a\x00b", {"raw": b"a\x00b"}),
        (b"\xff\xfe", {"raw": b"\xff\xfe"}),
        (b'"\xed\xa0\x80"', {"raw": b'"\xed\xa0\x80"'}),
        (b"\x1b[31m", {"raw": b"\x1b[31m"}),
    ],
)
def test_auto_takes_a_payload_for_what_it_is(payload: bytes, expected: dict[str, Any]) -> None:
    assert found(payload) == expected


def test_auto_has_value_and_time_as_the_store_found_them() -> None:
    payload = b'{"ts": 5, "value": 6, "temp": 7}'
    assert found(payload, values=[7.0], times=NOON - 1) == {"value": 7.0, "data": payload.decode()}
    assert reading(payload, times=NOON - 1)["time"] == NOON - 1
    assert found(payload, values=[float("nan")]) == {"data": payload.decode()}


def test_auto_keeps_what_is_too_long_as_it_is() -> None:
    rules = Rules.from_settings([], longest=1000)
    for payload in (b"x" * 1001, b'"%s"' % (b"x" * 1000), b"\x00" * 1001):
        assert found(payload, rules) == {"raw": payload}
    assert found(b"x" * 1000, rules) == {"text": "x" * 1000}


def test_auto_says_of_a_document_that_is_too_long_that_it_did_not_look_into_it() -> None:
    """It has neither the time nor the value that the document says, so it is no reading."""
    rules = Rules.from_settings([], longest=1000)
    long = [b'{"ts": 1, "value": 2, "rest": "%s"}' % (b"x" * 1000), b" \r\n[%s]" % (b" " * 1000)]
    decoded = decode(bronze([b"1", *long, b"{}"]), rules)
    assert [row["position"] for row in rows(decoded.readings)] == [1, 4]
    assert [(row["payload"], row["reason"]) for row in rows(decoded.quarantined)] == [
        (payload, f"the payload has {len(payload)} bytes, and documents may have 1000") for payload in long
    ]


def test_kinds_may_be_mixed() -> None:
    payloads = [b"1", b'{"a":1}', b"x", b"\xff", b'{"a":1,"a":3}', b'{"b" :2}', b""] * 3
    readings = rows(decode(bronze(payloads), Rules()).readings)
    one_by_one = [
        rows(decode(bronze([each], first=number), Rules()).readings)[0] for number, each in enumerate(payloads, 1)
    ]
    assert readings == one_by_one


# ---- json ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b'{"a":1}', {"data": '{"a":1}'}),
        (b'{"a":1,"a":2}', {"data": '{"a":2}'}),
        (b"5", {"data": "5", "value": 5.0}),
        (b'"x"', {"data": '"x"', "text": "x"}),
        (b"true", {"data": "true"}),
        (b"null", {"data": "null"}),
        (b"[[]]", {"data": "[[]]"}),
        (b"[" * DEEPEST + b"]" * DEEPEST, {"data": "[" * DEEPEST + "]" * DEEPEST}),
    ],
)
def test_json_is_kept_as_a_document(payload: bytes, expected: dict[str, Any]) -> None:
    assert found(payload, rules_of(decoder="json")) == expected


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"", "the payload is empty"),
        (b"{", "the payload is no JSON: "),
        (b"\xff", "the payload is no JSON: "),
        (b'{"a":1e999}', "the payload is no JSON: "),
        (b"[" * 201 + b"]" * 201, "the payload is nested deeper than 200 levels"),
        (b"[" * 1_000_000, "the payload is nested deeper than 200 levels"),
        (b" " * (4 << 20) + b"{}", "the payload has 4194306 bytes, and documents may have 4194304"),
    ],
)
def test_what_json_refuses(payload: bytes, words: str) -> None:
    for rules in (rules_of(decoder="json"), rules_of(decoder="json", value="a")):
        assert refusal(payload, rules).startswith(words)


def test_refused_ones_leave_the_others_where_they_are() -> None:
    readings, quarantined = decode(
        bronze([b"{", b'{"a":1}', b"]", b"5"], values=[None, 1.0, None, 5.0]), rules_of(decoder="json")
    )
    assert [(row["position"], row["data"], row["value"]) for row in rows(readings)] == [
        (2, '{"a":1}', 1.0),
        (4, "5", 5.0),
    ]
    assert [row["position"] for row in rows(quarantined)] == [1, 3]


# ---- number, text, raw ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "value"), [(b"5", 5.0), (b" -1.5E2 \n", -150.0), (b".5", 0.5), (b"+7", 7.0), (b"1e-999", 0.0)]
)
def test_numbers(payload: bytes, value: float) -> None:
    assert found(payload, rules_of(decoder="number")) == {"value": value}


@pytest.mark.parametrize(
    "payload", [b"", b"nan", b"-inf", b"1e999", b"1_000", b"0x10", b"1,5", b"\xff", b"5\x00", b"1" * 401]
)
def test_what_is_no_number(payload: bytes) -> None:
    expected = "the payload is no finite number: " if payload else "the payload is empty"
    assert refusal(payload, rules_of(decoder="number")).startswith(expected)


def test_text_is_utf_8() -> None:
    rules = rules_of(decoder="text")
    for payload in ("", "é😀", "a\x00b", '{"a":1}'):
        assert found(payload.encode(), rules) == {"text": payload}
    assert refusal(b"a\xff", rules) == "the payload is no UTF-8: invalid start byte at byte 1"
    assert "documents may have" in refusal(b"x" * (1 + (4 << 20)), rules)


def test_raw_is_everything() -> None:
    for payload in (b"", b"\x00\xff", b"5", b"x" * (5 << 20)):
        assert found(payload, rules_of(decoder="raw")) == {"raw": payload}
