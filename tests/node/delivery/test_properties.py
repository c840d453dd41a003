"""Properties as the store keeps them."""

from __future__ import annotations

import json

import pytest

from headwater.message import Message
from headwater.node.delivery.known_properties import MAX_CACHED, KnownProperties
from headwater.node.delivery.properties import optional_columns
from headwater.wire.packets import PUBLISH, Properties
from headwater.wire.properties import encode_properties


def test_none() -> None:
    assert optional_columns(Message("t"), 0.0) == {}
    assert optional_columns(Message("t", user_properties=[]), 0.0) == {}


def test_all() -> None:
    message = Message(
        "t",
        payload_format=1,
        content_type="text/ü",
        response_topic="r",
        correlation_data=b"\x00\xff",
        user_properties=[("a", "1"), ("a", "2")],
        expires_at=110.0,
    )
    assert json.loads(optional_columns(message, 100.0)["properties"]) == {
        "content_type": "text/ü",
        "response_topic": "r",
        "correlation_data": "AP8=",
        "payload_format": 1,
        "user": [["a", "1"], ["a", "2"]],
        "expiry": 10,
    }


@pytest.mark.parametrize("now", [0.1, 0.7, 1e6 + 1 / 3, 123456.789])
def test_the_expiry_is_as_it_was_sent(now: float) -> None:
    assert json.loads(optional_columns(Message("t", expires_at=now + 50), now)["properties"]) == {"expiry": 50}


def test_blocks_of_the_hot_path_mean_the_same() -> None:
    known = KnownProperties()
    block = encode_properties(Properties(content_type="c", user_properties=[("k", "v")]), PUBLISH)
    expected = optional_columns(Message("t", content_type="c", user_properties=[("k", "v")]), 0.0)
    assert known.optional_columns(block) == expected
    assert known.optional_columns(block) == expected  # remembered


def test_what_is_remembered_is_bounded() -> None:
    known = KnownProperties()
    for number in range(MAX_CACHED + 10):
        known.optional_columns(encode_properties(Properties(content_type=str(number)), PUBLISH))
    assert 0 < len(known.columns) <= MAX_CACHED
    long = encode_properties(Properties(content_type="x" * 1000), PUBLISH)
    assert json.loads(known.optional_columns(long)["properties"]) == {"content_type": "x" * 1000}
    assert long not in known.columns
