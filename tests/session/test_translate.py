"""Between packets and messages."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.message import NEVER, Delivery, Message
from headwater.session.translate import message_of, publish_properties, will_message
from headwater.wire.packets import Properties, Publish, Will

CARRIED = Properties(
    payload_format_indicator=1,
    content_type="x",
    response_topic="r",
    correlation_data=b"c",
    user_properties=[("a", "1"), ("a", "2")],
)


def test_a_packet_without_properties() -> None:
    message = message_of(Publish("t", b"p", 2, True, True, 9), "me", 5.0)
    assert (message.topic, message.payload, message.qos, message.retain) == ("t", b"p", 2, True)
    assert (message.publisher, message.expires_at) == ("me", NEVER)
    assert publish_properties(Delivery(message, 2, True), 5.0) is None


def test_what_belongs_to_the_message_is_passed_on_and_nothing_else() -> None:
    """A topic alias belongs to the publisher's connection, subscription identifiers to the receiver's subscription."""
    sent = replace(CARRIED, topic_alias=7)
    message = message_of(Publish("t", properties=sent), "me", 5.0)
    assert publish_properties(Delivery(message, 0, False), 5.0) == CARRIED
    passed = publish_properties(Delivery(message, 0, False, [3, 4]), 5.0)
    assert passed == replace(CARRIED, subscription_identifiers=[3, 4])


@pytest.mark.parametrize(
    ("interval", "waited", "left"),
    [
        (10, 0.0, 10),
        (10, 0.5, 10),
        (10, 1.0, 9),
        (10, 9.5, 1),
        (10, 10.0, 1),
        (10, 99.0, 1),
        (0xFFFFFFFF, 1.0, 0xFFFFFFFE),
    ],
)
def test_the_expiry_is_counted_down(interval: int, waited: float, left: int) -> None:
    """In whole seconds, rounded up: never more than there were, and 0 is never sent (what expired is not sent at all,
    except again after it was sent once)."""
    message = message_of(Publish("t", properties=Properties(message_expiry_interval=interval)), "me", 1000.0)
    passed = publish_properties(Delivery(message, 0, False), 1000.0 + waited)
    assert passed == Properties(message_expiry_interval=left)


@given(st.integers(0, 0xFFFFFFFF), st.floats(0, 1e9), st.floats(0, 1e6))
@example(1, 536870911.7867822, 0.0)
def test_the_expiry_sent_is_never_longer_than_what_came(interval: int, now: float, waited: float) -> None:
    message = message_of(Publish("t", properties=Properties(message_expiry_interval=interval)), "me", now)
    passed = publish_properties(Delivery(message, 0, False), now + waited)
    assert passed is not None and passed.message_expiry_interval is not None
    assert 1 <= passed.message_expiry_interval <= max(1, interval)


def test_a_will_does_not_grow_older_before_it_is_published() -> None:
    properties = replace(CARRIED, message_expiry_interval=10, will_delay_interval=5)
    message = will_message(Will("t", b"p", 1, True, properties), "me")
    assert (message.topic, message.payload, message.qos, message.retain) == ("t", b"p", 1, True)
    assert (message.publisher, message.expires_at) == ("me", NEVER)
    assert publish_properties(Delivery(message, 1, True), 0.0) == CARRIED
    assert publish_properties(Delivery(will_message(Will("t"), "me"), 0, False), 0.0) is None


def test_identifiers_alone_are_reason_enough_for_properties() -> None:
    assert publish_properties(Delivery(Message("t"), 0, False, [1]), 0.0) == Properties(subscription_identifiers=[1])
