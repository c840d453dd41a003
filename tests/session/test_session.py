"""What outlives a connection."""

from __future__ import annotations

import pytest

from headwater.message import Delivery, Message
from headwater.session.connection import Connection
from headwater.session.outbound import Flight, Outbound
from headwater.session.session import Session
from headwater.session.waiting import DROP_NEWEST, Budget
from headwater.wire import encode
from headwater.wire.packets import V5, V311, Properties, Publish


def new_session() -> Session:
    return Session("c", Outbound(Budget(0), 0, 0, DROP_NEWEST))


def test_a_session_is_online_while_it_has_a_connection() -> None:
    session = new_session()
    assert not session.online
    session.connection = Connection()
    assert session.online


@pytest.mark.parametrize("size", [0, 5, 200, 20_000, 2_100_000])
@pytest.mark.parametrize("version", [V311, V5])
def test_a_flight_of_the_hot_path_becomes_a_delivery(version: int, size: int) -> None:
    """Its bytes, head and tail around the packet id, are decoded when a reconnect needs them, once."""
    properties = Properties(user_properties=[("a", "b"), ("a", "c")], content_type="x") if version == V5 else None
    data = encode(Publish("to/pic", b"p" * size, 1, False, False, 4711, properties), version)
    at = data.index(b"to/pic") + len(b"to/pic")
    flight = Flight(1, None, data[:at], data[at + 2 :], version, len(data))
    session = new_session()
    delivery = session.flight_delivery(flight)
    message = delivery.message
    assert (message.topic, message.payload, message.qos, message.retain) == ("to/pic", b"p" * size, 1, False)
    assert (delivery.qos, delivery.retain, delivery.identifiers, delivery.group) == (1, False, None, None)
    if version == V5:
        assert (message.user_properties, message.content_type) == ([("a", "b"), ("a", "c")], "x")
    assert session.flight_delivery(flight) is delivery


def test_a_flight_with_a_delivery_keeps_it() -> None:
    delivery = Delivery(Message("t"), 2, False)
    assert new_session().flight_delivery(Flight(2, delivery, b"", b"", 0, 0)) is delivery
