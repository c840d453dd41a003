"""Properties: which packet may carry which, how often and with what value (section 2.2.2)."""

from __future__ import annotations

import pytest

from . import build
from .build import PROPERTIES, connect, disconnect, props, publish, subscribe, unsubscribe, will
from .marks import clause, deviates
from .peer import Peer, Target, connected

MALFORMED = 0x81
PROTOCOL_ERROR = 0x82

EXAMPLE: dict[str, build.Value] = {
    name: {"pair": ("k", "v"), "text": "a/b"}.get(kind, 1) for name, (_, kind) in PROPERTIES.items()
}
CONNECT_MAY = {
    "session_expiry", "receive_maximum", "maximum_packet_size", "topic_alias_maximum", "request_response",
    "request_problem", "user_property", "auth_method", "auth_data",
}  # fmt: skip
WILL_MAY = {
    "will_delay", "payload_format", "message_expiry", "content_type", "response_topic", "correlation_data",
    "user_property",
}  # fmt: skip
PUBLISH_MAY = {
    "payload_format", "message_expiry", "topic_alias", "response_topic", "correlation_data", "user_property",
    "content_type", "subscription_identifier",
}  # fmt: skip
SUBSCRIBE_MAY = {"subscription_identifier", "user_property"}
UNSUBSCRIBE_MAY = {"user_property"}
ACK_MAY = {"reason_string", "user_property"}
DISCONNECT_MAY = {"session_expiry", "reason_string", "user_property", "server_reference"}


def refused(target: Target, packet: bytes, reason: int) -> None:
    peer = Peer.connect(target)
    peer.send(packet)
    peer.expect_refused(reason)


def ends(target: Target, name: str, packet: bytes, reason: int) -> None:
    peer = connected(target, name)
    peer.send(packet)
    peer.expect_closed(reason)


def others(may: set[str]) -> list[str]:
    return sorted(PROPERTIES.keys() - may)


# --- a property in the wrong packet ---


@clause("MQTT-3.1.4-1", "MQTT-4.13.1-1")
@pytest.mark.parametrize("wrong", others(CONNECT_MAY))
def test_connect_with_a_foreign_property(target: Target, name: str, wrong: str) -> None:
    """CONNECT takes nine properties and no others."""
    refused(target, connect(name, properties=props(**{wrong: EXAMPLE[wrong]})), MALFORMED)


@clause("MQTT-3.1.4-1")
@pytest.mark.parametrize("wrong", others(WILL_MAY))
def test_will_with_a_foreign_property(target: Target, name: str, wrong: str) -> None:
    """A will takes seven properties and no others."""
    refused(target, connect(name, will=will(name, properties=props(**{wrong: EXAMPLE[wrong]}))), MALFORMED)


@clause("MQTT-4.13.1-1")
@pytest.mark.parametrize("wrong", others(PUBLISH_MAY))
def test_publish_with_a_foreign_property(target: Target, name: str, wrong: str) -> None:
    """PUBLISH takes eight properties and no others."""
    ends(target, name, publish(name, b"x", properties=props(**{wrong: EXAMPLE[wrong]})), MALFORMED)


@clause("MQTT-4.13.1-1")
@pytest.mark.parametrize("wrong", others(SUBSCRIBE_MAY))
def test_subscribe_with_a_foreign_property(target: Target, name: str, wrong: str) -> None:
    """SUBSCRIBE takes a subscription identifier and user properties."""
    ends(target, name, subscribe(name, properties=props(**{wrong: EXAMPLE[wrong]})), MALFORMED)


@clause("MQTT-4.13.1-1")
@pytest.mark.parametrize("wrong", others(UNSUBSCRIBE_MAY))
def test_unsubscribe_with_a_foreign_property(target: Target, name: str, wrong: str) -> None:
    """UNSUBSCRIBE takes user properties."""
    ends(target, name, unsubscribe(name, properties=props(**{wrong: EXAMPLE[wrong]})), MALFORMED)


@clause("MQTT-4.13.1-1")
@pytest.mark.parametrize("wrong", others(ACK_MAY))
def test_acknowledgement_with_a_foreign_property(target: Target, name: str, wrong: str) -> None:
    """PUBREL (like the other acknowledgements) takes a reason string and user properties."""
    ends(target, name, build.pubrel(1, 0, properties=props(**{wrong: EXAMPLE[wrong]})), MALFORMED)


@clause("MQTT-4.13.1-1")
@pytest.mark.parametrize("wrong", others(DISCONNECT_MAY))
def test_disconnect_with_a_foreign_property(target: Target, name: str, wrong: str) -> None:
    """DISCONNECT takes four properties and no others."""
    ends(target, name, disconnect(0, properties=props(**{wrong: EXAMPLE[wrong]})), MALFORMED)


# --- a property twice ---


@clause("MQTT-3.1.4-1", "MQTT-4.13.1-1")
@pytest.mark.parametrize("twice", sorted(CONNECT_MAY - {"user_property"}))
def test_connect_with_a_property_twice(target: Target, name: str, twice: str) -> None:
    """Each property but user properties stands in a CONNECT once at most."""
    block = props(**{twice: [EXAMPLE[twice]] * 2})  # type: ignore[arg-type]
    refused(target, connect(name, properties=block), PROTOCOL_ERROR)


@clause("MQTT-3.1.4-1")
@pytest.mark.parametrize("twice", sorted(WILL_MAY - {"user_property"}))
def test_will_with_a_property_twice(target: Target, name: str, twice: str) -> None:
    """Each property but user properties stands in a will once at most."""
    block = props(**{twice: [EXAMPLE[twice]] * 2})  # type: ignore[arg-type]
    refused(target, connect(name, will=will(name, properties=block)), PROTOCOL_ERROR)


@clause("MQTT-4.13.1-1")
@pytest.mark.parametrize("twice", sorted(DISCONNECT_MAY - {"user_property"}))
def test_disconnect_with_a_property_twice(target: Target, name: str, twice: str) -> None:
    """Each property but user properties stands in a DISCONNECT once at most."""
    block = props(**{twice: [EXAMPLE[twice]] * 2})  # type: ignore[arg-type]
    ends(target, name, disconnect(0, properties=block), PROTOCOL_ERROR)


def test_user_properties_may_repeat(target: Target, name: str) -> None:
    """User properties may repeat, with the same name too."""
    pairs: list[build.Pair] = [("k", "1"), ("k", "2"), ("k", "1")]
    connected(target, name, user_property=pairs, will=will(name, user_property=pairs)).expect_nothing()


# --- values ---


@clause("MQTT-3.1.4-1", "MQTT-4.13.1-1")
@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("receive_maximum", 0),
        ("maximum_packet_size", 0),
        ("request_problem", 2),
        ("request_problem", 255),
        ("request_response", 2),
    ],
)
def test_value_out_of_range(target: Target, name: str, what: str, value: int) -> None:
    """Zero maxima, and flags other than 0 and 1, are protocol errors."""
    refused(target, connect(name, properties=props(**{what: value})), PROTOCOL_ERROR)


@clause("MQTT-3.1.4-1")
@deviates("mosquitto 2.0: accepts it")
def test_authentication_data_without_method(target: Target, name: str) -> None:
    """Authentication data needs a method."""
    refused(target, connect(name, auth_data=b"data"), PROTOCOL_ERROR)


def test_every_property_of_connect(target: Target, name: str) -> None:
    """A CONNECT and a will with everything they may carry (but authentication) are accepted."""
    told = {key: EXAMPLE[key] for key in sorted(CONNECT_MAY - {"auth_method", "auth_data"})}
    told["maximum_packet_size"] = 10_000
    last = will(name, properties=props(**{key: EXAMPLE[key] for key in sorted(WILL_MAY)}))
    connected(target, name, will=last, properties=props(**told)).expect_nothing()


# --- the block ---

BROKEN = {
    "longer than the packet": b"\x7f\x26\x00\x01k\x00\x01v",
    "shorter than its last property": b"\x02\x11\x00\x00\x00\x00",
    "a cut integer": b"\x03\x11\x00\x00",
    "a cut string": b"\x04\x15\x00\x09a",
    "half a pair": b"\x04\x26\x00\x01k",
    "an unknown identifier": b"\x02\x7e\x00",
    "identifier 0": b"\x02\x00\x00",
    "an identifier of two bytes": b"\x03\x80\x01\x00",
}


@clause("MQTT-2.2.2-1", "MQTT-3.1.4-1")
@pytest.mark.parametrize("what", BROKEN)
def test_broken_block_in_connect(target: Target, name: str, what: str) -> None:
    """A property block of a CONNECT that does not add up is malformed."""
    refused(target, connect(name, properties=BROKEN[what]), MALFORMED)


@clause("MQTT-2.2.2-1", "MQTT-4.13.1-1")
@pytest.mark.parametrize("what", BROKEN)
def test_broken_block_in_disconnect(target: Target, name: str, what: str) -> None:
    """Nor may that of a later packet."""
    ends(target, name, disconnect(0, properties=BROKEN[what]), MALFORMED)


@clause("MQTT-2.2.2-1", "MQTT-4.13.1-1")
def test_block_missing(target: Target, name: str) -> None:
    """Without properties a length of 0 still stands: a 3.1.1 SUBSCRIBE is malformed in 5.0."""
    ends(target, name, subscribe("abc", version=4), MALFORMED)


@clause("MQTT-2.2.2-1")
def test_no_properties_is_a_zero(target: Target, name: str) -> None:
    """What the server forwards without properties has the length 0 in their place."""
    peer = connected(target, name)
    peer.subscribe("t/" + name)
    peer.send(publish("t/" + name, b"x"))
    peer.expect(publish("t/" + name, b"x", properties=b"\x00"))
