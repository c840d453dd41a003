"""How many things one packet may hold: a few bytes on the wire are many in memory, and others wait meanwhile."""

from __future__ import annotations

import pytest

from headwater.wire import V5, RemoteProtocolError, encode
from headwater.wire.decode import FROM_CLIENT, MOST_FILTERS
from headwater.wire.packets import (
    Connect,
    Packet,
    Properties,
    Publish,
    Subscribe,
    SubscribeRequest,
    Unsubscribe,
    Will,
)
from headwater.wire.properties import MOST_BYTES, MOST_USER_PROPERTIES
from headwater.wire.reasons import QUOTA_EXCEEDED

from .test_decode import read_one


def with_properties(number: int) -> list[Packet]:
    many = Properties(user_properties=[("", "")] * number)
    return [
        Publish("a", b"x", properties=many),
        Connect("c", V5, properties=many),
        Connect("c", V5, will=Will("a", b"", properties=many)),
        Subscribe(1, [SubscribeRequest("a", 0)], many),
    ]


def with_filters(number: int) -> list[Packet]:
    return [Subscribe(1, [SubscribeRequest("a", 0)] * number), Unsubscribe(1, ["a"] * number)]


@pytest.mark.parametrize("packet", with_properties(MOST_USER_PROPERTIES) + with_filters(MOST_FILTERS), ids=type)
def test_as_many_as_allowed(packet: Packet) -> None:
    assert read_one(encode(packet, V5), V5, FROM_CLIENT) == packet


@pytest.mark.parametrize("packet", with_properties(MOST_USER_PROPERTIES + 1), ids=type)
def test_user_properties_are_bounded(packet: Packet) -> None:
    with pytest.raises(RemoteProtocolError, match="user properties") as caught:
        read_one(encode(packet, V5), V5, FROM_CLIENT)
    assert caught.value.reason == QUOTA_EXCEEDED


@pytest.mark.parametrize("packet", with_filters(MOST_FILTERS + 1), ids=type)
def test_topic_filters_are_bounded(packet: Packet) -> None:
    with pytest.raises(RemoteProtocolError, match="topic filters") as caught:
        read_one(encode(packet, V5), V5, FROM_CLIENT)
    assert caught.value.reason == QUOTA_EXCEEDED


def test_property_bytes_are_bounded() -> None:
    largest = ("x" * 60_000, "y" * 60_000)
    just = MOST_BYTES - 2 * (5 + 120_000) + 5 + 120_000 - 5  # of the second pair's texts
    for more in (0, 1):
        pairs = [largest, ("", "z" * (just + more))]
        packet = encode(Publish("t", b"", properties=Properties(user_properties=pairs)), V5)
        if more:
            with pytest.raises(RemoteProtocolError, match="bytes of properties") as caught:
                read_one(packet, V5, FROM_CLIENT)
            assert caught.value.reason == QUOTA_EXCEEDED
        else:
            read_one(packet, V5, FROM_CLIENT)
