"""Which messages of a broker are those that the spool has already, and which only look like it."""

from __future__ import annotations

from typing import Any

from headwater.pipeline.mqtt.record import Arrival
from headwater.pipeline.mqtt.redelivery import Redelivery


def arrival(payload: bytes = b"on", **changes: Any) -> Arrival:
    return Arrival("door", payload, 1, connection=0, session=4, packet_id=7)._replace(**changes)


def test_a_duplicate_under_the_same_id_with_the_same_content_is_known_once() -> None:
    redelivery = Redelivery([(41, arrival())])
    assert redelivery.number_of(arrival(), True) == 41
    assert redelivery.number_of(arrival(), True) is None


def test_everything_else_is_new() -> None:
    for other, is_duplicate in (
        (arrival(), False),
        (arrival(b"off"), True),
        (arrival(packet_id=8), True),
        (arrival(session=5), True),
        (arrival(session=0), True),
        (arrival(connection=1), True),
        (arrival(qos=2), True),
        (arrival(qos=0), True),
    ):
        assert Redelivery([(41, arrival())]).number_of(other, is_duplicate) is None


def test_messages_that_did_not_come_by_a_known_session_are_compared_with_nothing() -> None:
    assert Redelivery([(41, arrival(session=0))]).number_of(arrival(session=0), True) is None


def test_an_id_that_carries_another_message_by_now_is_free() -> None:
    redelivery = Redelivery([(41, arrival())])
    assert redelivery.number_of(arrival(), False) is None
    assert redelivery.number_of(arrival(), True) is None
