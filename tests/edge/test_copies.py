"""A copy is the same whichever way the message came."""

from __future__ import annotations

import json

import pytest

from headwater.client import Message, Properties
from headwater.edge.copies import Copy, Place, from_batch, from_message, place_of
from headwater.edge.rendering import as_ndjson
from headwater.message import POSITION_PROPERTY
from headwater.wire.packets import Publish

PROPERTIES = Properties(
    content_type="application/json",
    response_topic="answers/1",
    correlation_data=b"\x00\xff",
    payload_format_indicator=1,
    message_expiry_interval=17,
    user_properties=[("a", "1"), (POSITION_PROPERTY, "s1:7"), ("a", "2")],
)


def message(properties: Properties | None, payload: bytes = b"21.5") -> Message:
    return Message(Publish("t/\u00fc", payload, properties=properties), lambda message: None)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ("s1:7", Place("s1", 7)),
        ("a:b:7", Place("a:b", 7)),
        ("7", None),
        ("s1:", None),
        ("s1:-7", None),
        ("s1:7.5", None),
        ("s1:\u0667", None),
        ("s1:99999999999999999999", None),
    ],
)
def test_the_place_of_a_message(value: str, place: Place | None) -> None:
    assert place_of(message(Properties(user_properties=[(POSITION_PROPERTY, value)]))) == place


def test_a_message_without_a_position_has_no_place() -> None:
    assert place_of(message(None)) is None
    assert place_of(message(Properties(user_properties=[("other", "s1:7")]))) is None


def test_the_brokers_position_is_the_last_one() -> None:
    """A publisher's own comes before it, if a broker lets it through."""
    faked = [(POSITION_PROPERTY, "s1:1"), (POSITION_PROPERTY, "s1:7")]
    assert place_of(message(Properties(user_properties=faked))) == Place("s1", 7)


def test_by_mqtt_and_by_rest_it_is_the_same() -> None:
    import pyarrow

    stored = {
        "user": [["a", "1"], ["a", "2"]],
        "expiry": 20,
        "payload_format": 1,
        "correlation_data": "AP8=",
        "response_topic": "answers/1",
        "content_type": "application/json",
    }
    batch = pyarrow.RecordBatch.from_pydict(
        {
            "position": [7, 8],
            "topic": pyarrow.array(["t/\u00fc", "t/\u00fc"]).dictionary_encode(),
            "payload": [b"21.5", b"\xff"],
            "properties": [json.dumps(stored), None],
        }
    )
    live = [from_message(message(PROPERTIES), 7), from_message(message(None, b"\xff"), 8)]
    assert list(from_batch(batch)) == live
    assert live[1] == Copy(8, "t/\u00fc", b"\xff", "")


def test_lines_of_json() -> None:
    lines = as_ndjson([from_message(message(PROPERTIES), 7), Copy(8, "t", b"\xff\n")]).splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "position": 7,
            "topic": "t/\u00fc",
            "payload": "21.5",
            "properties": {
                "content_type": "application/json",
                "response_topic": "answers/1",
                "correlation_data": "AP8=",
                "payload_format": 1,
                "user": [["a", "1"], ["a", "2"]],
            },
        },
        {"position": 8, "topic": "t", "payload_base64": "/wo="},
    ]
