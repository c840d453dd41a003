from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.wire import V5, V31, V311, LocalProtocolError, encode, encode_properties, encode_publish
from headwater.wire.packets import (
    PUBLISH,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
    Will,
)

from .strategies import packet_ids, properties, topics
from .vectors import GOOD, Good

LONG = "x" * 65536
PROPERTIES = Properties(user_properties=[("k", "v")])


@pytest.mark.parametrize("vector", [v for v in GOOD if v.shortest], ids=lambda vector: vector.name)
def test_packet_is_written_in_its_shortest_form(vector: Good) -> None:
    assert encode(vector.packet, vector.version).hex() == vector.hex.replace(" ", "")


@pytest.mark.parametrize("vector", [v for v in GOOD if not v.shortest], ids=lambda vector: vector.name)
def test_longer_or_reordered_forms_are_not_written(vector: Good) -> None:
    written = encode(vector.packet, vector.version)
    assert written != bytes.fromhex(vector.hex)
    assert len(written) <= len(bytes.fromhex(vector.hex))


@pytest.mark.parametrize(
    ("packet", "version"),
    [
        # strings and sizes [MQTT-1.5.4-1] [MQTT-1.5.4-2]
        (Publish(LONG), V311),
        (Publish("a\0b"), V311),
        (Publish("\ud800"), V5),
        (Connect(LONG), V311),
        (Connect("c", username="u", password=b"x" * 65536), V311),
        (Connect("c", keep_alive=65536), V311),
        (Connect("c", keep_alive=-1), V311),
        (Connect("c", will=Will("w", b"x" * 65536)), V311),
        (Publish("a", properties=Properties(content_type=LONG)), V5),
        (Publish("a", properties=Properties(correlation_data=LONG.encode())), V5),
        (Publish("a", properties=Properties(user_properties=[("k", LONG)])), V5),
        # packet identifiers [MQTT-2.2.1-2] [MQTT-2.2.1-3]
        (Publish("a", qos=1), V311),
        (Publish("a", qos=2, packet_id=65536), V5),
        (Publish("a", packet_id=1), V311),
        (Puback(0), V5),
        (Pubrec(0), V5),
        (Pubrel(-1), V5),
        (Pubcomp(65536), V5),
        (Subscribe(0, [SubscribeRequest("a")]), V5),
        (Suback(0, [0]), V5),
        (Unsubscribe(0, ["a"]), V5),
        (Unsuback(0, [0]), V5),
        # QoS and flags [MQTT-3.3.1-2] [MQTT-3.3.1-4] [MQTT-3.1.2-12]
        (Publish("a", qos=3, packet_id=1), V5),
        (Publish("a", qos=-1, packet_id=1), V5),
        (Publish("a", dup=True), V5),
        (Connect("c", will=Will("w", qos=3)), V311),
        (Subscribe(1, [SubscribeRequest("a", 3)]), V5),
        (Subscribe(1, [SubscribeRequest("a", retain_handling=3)]), V5),
        (Subscribe(1, [SubscribeRequest("$share/g/a", no_local=True)]), V5),
        (Connack(True, 0x87), V5),
        # topics [MQTT-3.3.2-2] [MQTT-4.7.1-1] [MQTT-4.7.3-1]
        (Publish("a/#"), V5),
        (Publish("a/+", properties=Properties(topic_alias=1)), V5),
        (Publish(""), V311),
        (Publish(""), V5),
        (Publish("", properties=PROPERTIES), V5),
        (Connect("c", will=Will("")), V311),
        (Connect("c", will=Will("w/+")), V311),
        (Publish("a", properties=Properties(response_topic="r/#")), V5),
        (Publish("a", properties=Properties(response_topic="")), V5),
        (Subscribe(1, [SubscribeRequest("")]), V5),
        (Unsubscribe(1, [""]), V5),
        # empty payloads [MQTT-3.8.3-2] [MQTT-3.10.3-2]
        (Subscribe(1), V5),
        (Unsubscribe(1), V311),
        (Suback(1), V311),
        (Unsuback(1), V5),
        # reason codes
        (Connack(reason=0x87), V311),
        (Connack(reason=5), V5),
        (Puback(1, 0x92), V5),
        (Pubrec(1, 0x92), V5),
        (Pubrel(1, 0x10), V5),
        (Pubcomp(1, 0x10), V5),
        (Suback(1, [3]), V5),
        (Suback(1, [0x87]), V311),
        (Unsuback(1, [1]), V5),
        (Disconnect(1), V5),
        (Auth(1, Properties(authentication_method="M")), V5),
        (Auth(0x18), V5),
        (Auth(0x18, PROPERTIES), V5),
        (Auth(0, PROPERTIES), V5),
        # what 3.1.1 does not have
        (Connect("c", V311, password=b"p"), V311),
        (Connect("c", 2), V311),
        (Connect("c", V5, bridge=True), V5),
        (Connect("c", V31, password=b"p"), V311),
        (Connect("c", V311, properties=PROPERTIES), V311),
        (Connect("c", V311, will=Will("w", properties=PROPERTIES)), V311),
        (Connack(properties=PROPERTIES), V311),
        (Publish("a", properties=PROPERTIES), V311),
        (Publish("", properties=Properties(topic_alias=1)), V311),
        (Puback(1, 0x10), V311),
        (Puback(1, properties=PROPERTIES), V311),
        (Subscribe(1, [SubscribeRequest("a", no_local=True)]), V311),
        (Subscribe(1, [SubscribeRequest("a")], PROPERTIES), V311),
        (Suback(1, [0], PROPERTIES), V311),
        (Unsubscribe(1, ["a"], PROPERTIES), V311),
        (Unsuback(1, [0]), V311),
        (Disconnect(4), V311),
        (Disconnect(properties=PROPERTIES), V311),
        (Auth(), V311),
        # no packet at all
        (Packet(), V5),
    ],
    ids=lambda value: repr(value)[:60].split(" object at")[0],
)
def test_what_the_standard_forbids_is_not_written(packet: Packet, version: int) -> None:
    with pytest.raises(LocalProtocolError):
        encode(packet, version)


def test_empty_properties_are_no_properties() -> None:
    assert encode(Puback(1, properties=Properties(user_properties=[])), V5) == encode(Puback(1), V5)
    assert encode(Publish("a", properties=Properties()), V5) == encode(Publish("a"), V5)
    assert encode(Auth(properties=Properties()), V5) == b"\xf0\x00"


def test_connect_goes_by_its_own_version() -> None:
    packet = Connect("c", V5)
    assert encode(packet, V311) == encode(packet, V5)


def test_payload_beyond_the_largest_remaining_length_is_not_written() -> None:
    # All zero, so that the memory is never touched.
    with pytest.raises(LocalProtocolError):
        encode(Publish("a", bytes(268_435_456)), V311)


def test_ping_is_two_bytes() -> None:
    assert encode(Pingreq(), V5) == b"\xc0\x00"


@pytest.mark.parametrize("size", [0, 122, 123, 124, 16_378, 16_379, 16_380, 2_097_146, 2_097_147, 2_097_148])
def test_remaining_length_counts_what_follows_it(size: int) -> None:
    written = encode(Publish("abc", b"x" * size), V311)
    length_bytes = len(written) - 1 - (size + 5)
    remaining = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(written[1 : 1 + length_bytes]))
    assert remaining == size + 5
    assert length_bytes == (1 if remaining < 128 else 2 if remaining < 16_384 else 3 if remaining < 2_097_152 else 4)


@given(topics, st.binary(max_size=300), st.integers(0, 2), st.booleans(), packet_ids, properties("PUBLISH"))
def test_encode_publish_writes_the_same_as_encode(
    topic: str, payload: bytes, qos: int, retain: bool, packet_id: int, own: Properties | None
) -> None:
    flags = qos << 1 | retain
    block = encode_properties(own, PUBLISH)
    packet = Publish(topic, payload, qos, retain, packet_id=packet_id if qos else 0, properties=own)
    assert encode_publish(topic.encode(), payload, flags, packet_id, block) == encode(packet, V5)
    packet.properties = None
    assert encode_publish(topic.encode(), payload, flags, packet_id, None) == encode(packet, V311)


def test_encode_publish_checks_what_would_break_the_stream() -> None:
    with pytest.raises(LocalProtocolError):
        encode_publish(b"x" * 65536, b"", 0, 0, None)
    with pytest.raises(LocalProtocolError):
        encode_publish(b"a", b"", 2, 0, None)
    with pytest.raises(LocalProtocolError):
        encode_publish(b"a", b"", 4, 65536, None)
