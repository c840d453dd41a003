"""CBOR, harmless and otherwise."""

from __future__ import annotations

import json
import struct
import sys
from base64 import b64encode
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import cbor2
import pytest

from headwater.pipeline.decoding import Rules, SettingsError
from tests.pipeline.decoding.bronze import reading, refusal, rules_of

RULES = rules_of(decoder="cbor")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"a": 1, "b": [1.5, True, None, "é"]}, {"a": 1, "b": [1.5, True, None, "é"]}),
        ({1: 2, -3: {b"k": b"\xff\x00"}}, {"1": 2, "-3": {"aw==": "/wA="}}),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z"),
        (2**64, 2.0**64),
        (-(2**70), -(2.0**70)),
        (Decimal("273.15"), 273.15),
        (cbor2.CBORTag(5000, ["x"]), ["x"]),
        (cbor2.CBORTag(35, "((((((a*)*)*)*)*"), "((((((a*)*)*)*)*"),  # a regular expression that nobody should compile
        (cbor2.CBORTag(30, [1, 0]), [1, 0]),
        (cbor2.CBORTag(5, [2, 3]), 12.0),
    ],
)
def test_a_document_becomes_json(found: Any, expected: Any) -> None:
    assert json.loads(reading(cbor2.dumps(found), RULES)["data"]) == expected


def test_paths_and_fields_are_as_in_json() -> None:
    rules = rules_of(decoder="cbor", time="t", unit="s", value="v", fields={"v": "double not null"})
    found = reading(cbor2.dumps({"t": 5, "v": 1}), rules)
    assert (found["time"], found["value"], found["v"], found["data"]) == (5_000_000, 1.0, 1.0, '{"t":5,"v":1}')
    assert refusal(cbor2.dumps({}), rules) == "field v is missing, and declared not null"


def laughs(levels: int) -> bytes:
    """A list of two references to a list of two references to …"""
    bomb: list[Any] = []
    for _ in range(levels):
        bomb = [bomb, bomb]
    return cbor2.dumps(bomb, value_sharing=True)


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"", "is empty"),
        (b"\xff", "is no CBOR"),
        (b"\x01\x02", "has 1 bytes behind its end"),
        (b"\x81" * 100_000 + b"\x01", "is no CBOR: maximum container nesting depth (200) exceeded"),
        (b"\xc6" * 100_000 + b"\x01", "is no CBOR: maximum container nesting depth (200) exceeded"),
        (b"\x9f" * 5000, "is no CBOR"),
        (b"\x9b\x7f\xff\xff\xff\xff\xff\xff\xff", "is no CBOR"),  # a list of 2**63 parts
        (b"\xbb\x7f\xff\xff\xff\xff\xff\xff\xff", "is no CBOR"),
        (b"\x5b\x7f\xff\xff\xff\xff\xff\xff\xff", "is no CBOR"),
        (b"\x63\xed\xa0\x80", "is no CBOR"),
        (b"\xf7", "is undefined"),
        (b"\xe0", "has a value of type CBORSimpleValue"),
        (bytes.fromhex("f97e00"), "has a number that is not finite"),
        (bytes.fromhex("f97c00"), "has a number that is not finite"),
        (bytes.fromhex("a2616101616102"), "is no CBOR: "),  # a key twice
        (bytes.fromhex("a20101613102"), "has the key '1' twice"),
        (laughs(50), "it has references"),
        (cbor2.dumps(["x" * 100] * 100, string_referencing=True), "it has references"),
        (b"\xc4\x82\x1b\x00\xff\xff\xff\xff\xff\xff\xff\x01", "is no CBOR"),  # 1e72057594037927935
        (b"\xc5\x82\x1b\x00\xff\xff\xff\xff\xff\xff\xff\x01", "is no CBOR"),
        (b"\xc4\x01", "is no CBOR"),
        (b"\xa1\x80\x01", "has a key of type tuple"),
    ],
    ids=lambda each: repr(each[:20]),
)
def test_what_is_refused(payload: bytes, words: str) -> None:
    assert words in refusal(payload, RULES)


def test_a_bignum_of_a_megabyte_is_not_counted_out() -> None:
    found = reading(b"\xc2\x5a" + struct.pack(">I", 1 << 20) + b"\xff" * (1 << 20), RULES)["data"]
    assert json.loads(found) == b64encode(b"\xff" * (1 << 20)).decode()


def test_large_payloads_have_keys_of_text() -> None:
    large = cbor2.dumps({1: "x" * (1 << 16)})
    assert "is no CBOR" in refusal(large, RULES)
    assert reading(cbor2.dumps({"1": "x" * (1 << 16)}), RULES)["data"].startswith('{"1":"xxx')


def test_without_cbor2_the_rule_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cbor2", None)
    Rules.from_settings([{"decoder": "json"}])
    with pytest.raises(SettingsError, match="rule 1: decoder 'cbor' needs the package cbor2"):
        Rules.from_settings([{"decoder": "cbor"}])
