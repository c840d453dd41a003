from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.wire import LocalProtocolError, RemoteProtocolError, packets
from headwater.wire.packets import CONNACK, CONNECT, PUBLISH, SUBSCRIBE, Properties
from headwater.wire.primitives import Reader
from headwater.wire.properties import RULES, WILL, decode_properties, encode_properties
from headwater.wire.reasons import MALFORMED_PACKET, PROTOCOL_ERROR, TOPIC_ALIAS_INVALID

from .strategies import LEGAL_PROPERTIES, properties

TYPE_OF: dict[str, int] = {name: getattr(packets, name, WILL) for name in LEGAL_PROPERTIES}

# One property each as it stands on the wire (section 2.2.2.2), and what it is read as.
SAMPLES: dict[str, tuple[str, Any]] = {
    "payload_format_indicator": ("01 01", 1),
    "message_expiry_interval": ("02 00010203", 0x010203),
    "content_type": ("03 0001 61", "a"),
    "response_topic": ("08 0001 61", "a"),
    "correlation_data": ("09 0001 ff", b"\xff"),
    "subscription_identifiers": ("0b ff7f", [16_383]),
    "session_expiry_interval": ("11 ffffffff", 0xFFFFFFFF),
    "assigned_client_identifier": ("12 0001 61", "a"),
    "server_keep_alive": ("13 0102", 0x0102),
    "authentication_method": ("15 0001 61", "a"),
    "authentication_data": ("15 0001 61 16 0001 ff", b"\xff"),
    "request_problem_information": ("17 00", 0),
    "will_delay_interval": ("18 00000000", 0),
    "request_response_information": ("19 01", 1),
    "response_information": ("1a 0001 61", "a"),
    "server_reference": ("1c 0001 61", "a"),
    "reason_string": ("1f 0001 61", "a"),
    "receive_maximum": ("21 0001", 1),
    "topic_alias_maximum": ("22 0000", 0),
    "topic_alias": ("23 ffff", 0xFFFF),
    "maximum_qos": ("24 00", 0),
    "retain_available": ("25 01", 1),
    "user_properties": ("26 0001 61 0000 26 0001 61 0001 62", [("a", ""), ("a", "b")]),
    "maximum_packet_size": ("27 00000001", 1),
    "wildcard_subscription_available": ("28 01", 1),
    "subscription_identifier_available": ("29 00", 0),
    "shared_subscription_available": ("2a 01", 1),
}


def read(block: str, packet_type: int) -> Properties | None:
    """Decode the properties of `block`, to which the length is added."""
    content = bytes.fromhex(block)
    reader = Reader(bytes((len(content),)) + content, 0, len(content) + 1)
    result = decode_properties(reader, packet_type)
    reader.finish()
    return result


def test_every_property_has_a_rule_and_a_sample() -> None:
    names = {field.name for field in fields(Properties)}
    assert {rule.name for rule in RULES} == names == set(SAMPLES) == set().union(*LEGAL_PROPERTIES.values())


@pytest.mark.parametrize("packet_name", LEGAL_PROPERTIES)
@pytest.mark.parametrize("name", SAMPLES)
def test_property_is_legal_exactly_where_the_standard_says(name: str, packet_name: str) -> None:
    block, value = SAMPLES[name]
    single = Properties(**{name: value})
    if name == "authentication_data":
        single.authentication_method = "a"
    if name in LEGAL_PROPERTIES[packet_name]:
        assert read(block, TYPE_OF[packet_name]) == single
        assert encode_properties(single, TYPE_OF[packet_name])[1:] == bytes.fromhex(block)
    else:
        with pytest.raises(RemoteProtocolError) as caught:
            read(block, TYPE_OF[packet_name])
        assert caught.value.reason == MALFORMED_PACKET
        with pytest.raises(LocalProtocolError):
            encode_properties(single, TYPE_OF[packet_name])


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - {"user_properties", "authentication_data"}))
def test_property_twice_is_a_protocol_error(name: str) -> None:
    packet_name = next(packet for packet in LEGAL_PROPERTIES if name in LEGAL_PROPERTIES[packet])
    block = SAMPLES[name][0]
    if name == "subscription_identifiers":
        assert read(f"{block} {block}", PUBLISH) == Properties(subscription_identifiers=[16_383, 16_383])
        packet_name = "SUBSCRIBE"
    with pytest.raises(RemoteProtocolError) as caught:
        read(f"{block} {block}", TYPE_OF[packet_name])
    assert caught.value.reason == PROTOCOL_ERROR


@pytest.mark.parametrize(
    ("block", "packet_type", "reason"),
    [
        ("23 0000", PUBLISH, TOPIC_ALIAS_INVALID),  # [MQTT-3.3.2-8]
        ("0b 00", PUBLISH, PROTOCOL_ERROR),
        ("0b 00", SUBSCRIBE, PROTOCOL_ERROR),
        ("21 0000", CONNECT, PROTOCOL_ERROR),
        ("21 0000", CONNACK, PROTOCOL_ERROR),
        ("27 00000000", CONNECT, PROTOCOL_ERROR),
        ("01 02", WILL, PROTOCOL_ERROR),
        ("24 ff", CONNACK, PROTOCOL_ERROR),
        ("16 0000", CONNECT, PROTOCOL_ERROR),
        ("16 0000", CONNACK, PROTOCOL_ERROR),
        ("08 0001 23", WILL, PROTOCOL_ERROR),  # [MQTT-3.3.2-14]
        ("0b 8000", PUBLISH, MALFORMED_PACKET),  # [MQTT-1.5.5-1]
        ("7f", PUBLISH, MALFORMED_PACKET),
        ("8080", PUBLISH, MALFORMED_PACKET),
    ],
)
def test_forbidden_values(block: str, packet_type: int, reason: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read(block, packet_type)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("forbidden", "packet_type"),
    [
        (Properties(topic_alias=0), PUBLISH),
        (Properties(topic_alias=65_536), PUBLISH),
        (Properties(subscription_identifiers=[0]), SUBSCRIBE),
        (Properties(subscription_identifiers=[268_435_456]), SUBSCRIBE),
        (Properties(subscription_identifiers=[1, 2]), SUBSCRIBE),
        (Properties(receive_maximum=0), CONNECT),
        (Properties(maximum_packet_size=0), CONNECT),
        (Properties(session_expiry_interval=-1), CONNECT),
        (Properties(session_expiry_interval=1 << 32), CONNECT),
        (Properties(maximum_qos=2), CONNACK),
        (Properties(maximum_qos=-1), CONNACK),
        (Properties(authentication_data=b""), CONNECT),
    ],
)
def test_forbidden_values_are_not_written(forbidden: Properties, packet_type: int) -> None:
    with pytest.raises(LocalProtocolError):
        encode_properties(forbidden, packet_type)


@given(st.sampled_from(sorted(LEGAL_PROPERTIES)).flatmap(lambda name: st.tuples(st.just(name), properties(name))))
def test_properties_are_read_as_written(case: tuple[str, Properties | None]) -> None:
    packet_name, original = case
    written = encode_properties(original, TYPE_OF[packet_name])
    reader = Reader(written + b"more", 0, len(written) + 4)
    assert decode_properties(reader, TYPE_OF[packet_name]) == original
    assert reader.rest() == b"more"


def test_order_is_that_of_the_table_and_user_properties_keep_theirs() -> None:
    given_order = Properties(user_properties=[("z", ""), ("a", "")], topic_alias=1, content_type="t")
    assert encode_properties(given_order, PUBLISH).hex(" ") == (
        "13 03 00 01 74 23 00 01 26 00 01 7a 00 00 26 00 01 61 00 00"
    )
    assert encode_properties(replace(given_order), PUBLISH) == encode_properties(given_order, PUBLISH)


def test_nothing_is_one_zero_byte() -> None:  # [MQTT-2.2.2-1]
    assert encode_properties(None, PUBLISH) == encode_properties(Properties(), PUBLISH) == b"\0"
    assert read("", PUBLISH) is None
