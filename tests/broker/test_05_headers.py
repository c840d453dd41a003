"""Fixed headers, variable byte integers, packet identifiers and sizes (sections 1.5.5, 2.1 and 2.2.1)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from . import build
from .build import PINGREQ, packet, publish, subscribe, two, unsubscribe, varint
from .marks import V5, V311, both_versions, clause, clause311, deviates
from .peer import Peer, Target, connected

Start = Callable[[str], Target]

MALFORMED = 0x81


def ends(target: Target, name: str, raw: bytes, reason: int | set[int], version: int = 5) -> None:
    """Sending `raw` on a fresh connection ends it."""
    peer = connected(target, name, version)
    peer.send(raw)
    peer.expect_closed(reason)


# --- types and flags ---

LENIENT = deviates("mosquitto 2.0: does not look at the flags of PUBACK, PUBREC, PUBCOMP and PINGREQ")


@clause("MQTT-2.1.3-1", "MQTT-4.13.1-1")
@clause311("MQTT-2.2.2-1", "MQTT-2.2.2-2", "MQTT-4.8.0-1")
@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(build.puback(), id="PUBACK", marks=LENIENT),
        pytest.param(build.pubrec(), id="PUBREC", marks=LENIENT),
        pytest.param(build.pubrel(), id="PUBREL"),
        pytest.param(build.pubcomp(), id="PUBCOMP", marks=LENIENT),
        pytest.param(PINGREQ, id="PINGREQ", marks=LENIENT),
        pytest.param(build.disconnect(), id="DISCONNECT"),
    ],
)
@both_versions
def test_reserved_flags(target: Target, name: str, version: int, raw: bytes) -> None:
    """The flags of most packets have one right value; any other is malformed."""
    for flags in set(range(16)) - {raw[0] & 0x0F}:
        ends(target, name, bytes([raw[0] & 0xF0 | flags]) + raw[1:], MALFORMED, version)


@clause("MQTT-2.1.3-1")
@clause311("MQTT-2.2.2-1", "MQTT-2.2.2-2")
@pytest.mark.parametrize("flags", [0x0, 0x1, 0x3, 0x6, 0xA, 0xF])
@both_versions
def test_reserved_flags_of_requests(target: Target, name: str, version: int, flags: int) -> None:
    """SUBSCRIBE and UNSUBSCRIBE carry the flags 0010."""
    for raw in (subscribe(name, version=version), unsubscribe(name, version=version)):
        ends(target, name, bytes([raw[0] & 0xF0 | flags]) + raw[1:], MALFORMED, version)


@clause("MQTT-2.1.3-1", "MQTT-3.15.1-1")
@pytest.mark.parametrize("flags", [1, 2, 4, 8, 15])
def test_reserved_flags_of_auth(target: Target, name: str, flags: int) -> None:
    """AUTH carries the flags 0000."""
    raw = build.auth(0x19, auth_method="m")
    ends(target, name, bytes([raw[0] | flags]) + raw[1:], MALFORMED)


@clause("MQTT-4.13.1-1")
@clause311("MQTT-4.8.0-1")
@pytest.mark.parametrize("kind", ["CONNACK", "type 0"])
@both_versions
def test_packets_only_servers_send(target: Target, name: str, version: int, kind: str) -> None:
    """A client that sends a server's packet, or one of type 0, breaks the protocol."""
    raw = build.connack(version=version) if kind == "CONNACK" else b"\x00\x00"
    ends(target, name, raw, {0x81, 0x82}, version)


@clause("MQTT-4.13.1-1")
@clause311("MQTT-4.8.0-1")
@pytest.mark.parametrize("kind", ["SUBACK", "UNSUBACK", "PINGRESP"])
@deviates("mosquitto 2.0: ignores them")
@both_versions
def test_answers_only_servers_give(target: Target, name: str, version: int, kind: str) -> None:
    """So does one that answers what a server does not ask."""
    raw = {
        "SUBACK": build.suback(0, version=version),
        "UNSUBACK": build.unsuback(0, version=version),
        "PINGRESP": build.PINGRESP,
    }[kind]
    ends(target, name, raw, {0x81, 0x82}, version)


@clause311("MQTT-4.8.0-1")
def test_auth_does_not_exist_311(target: Target, name: str) -> None:
    """Type 15 is reserved in 3.1.1."""
    ends(target, name, b"\xf0\x00", MALFORMED, V311)


@clause("MQTT-4.13.1-1")
@clause311("MQTT-4.8.0-1")
@pytest.mark.parametrize("raw", [b"\xc0\x01\x00", b"\xc0\x02\x00\x00"], ids=["one byte", "two bytes"])
@deviates("mosquitto 2.0: answers it")
@both_versions
def test_pingreq_with_a_body(target: Target, name: str, version: int, raw: bytes) -> None:
    """A PINGREQ is two bytes long."""
    ends(target, name, raw, MALFORMED, version)


CUT_SHORT = {
    "PUBLISH without topic": packet(0x30, b""),
    "PUBLISH with half a topic length": packet(0x30, b"\x00"),
    "PUBLISH with half a topic": packet(0x30, b"\x00\x04ab"),
    "PUBLISH without packet id": packet(0x32, b"\x00\x01a"),
    "PUBLISH with half a packet id": packet(0x32, b"\x00\x01a\x00"),
    "PUBACK without packet id": packet(0x40, b""),
    "PUBACK with half a packet id": packet(0x40, b"\x00"),
    "PUBREC without packet id": packet(0x50, b""),
    "PUBREL without packet id": packet(0x62, b""),
    "PUBCOMP with half a packet id": packet(0x70, b"\x01"),
    "SUBSCRIBE without packet id": packet(0x82, b""),
    "SUBSCRIBE with half a packet id": packet(0x82, b"\x01"),
    "UNSUBSCRIBE without packet id": packet(0xA2, b""),
}


@clause("MQTT-4.13.1-1")
@clause311("MQTT-4.8.0-1")
@pytest.mark.parametrize("what", CUT_SHORT)
@both_versions
def test_packet_cut_short(target: Target, name: str, version: int, what: str) -> None:
    """A packet whose length leaves no room for its fields is malformed."""
    ends(target, name, CUT_SHORT[what], {0x81, 0x82}, version)


# --- variable byte integers ---

LONG = deviates("mosquitto 2.0: takes a remaining length that is longer than need be")


@clause("MQTT-1.5.5-1")
@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"\xc0\x80\x00", id="PINGREQ", marks=LONG),
        pytest.param(b"\xc0\x80\x80\x80\x00", id="PINGREQ, four bytes", marks=LONG),
        pytest.param(b"\x62\x83\x00\x00\x01\x00", id="PUBREL", marks=LONG),
        pytest.param(subscribe("t", properties=b"\x80\x00"), id="property length"),
        pytest.param(subscribe("t", properties=b"\x03\x0b\x81\x00"), id="subscription identifier"),
        pytest.param(publish("t", b"x", properties=b"\x80\x80\x00"), id="property length of PUBLISH"),
    ],
)
def test_integer_longer_than_need_be(target: Target, name: str, raw: bytes) -> None:
    """A variable byte integer uses as few bytes as it can; a longer form is malformed."""
    ends(target, name, raw, MALFORMED)


@clause("MQTT-1.5.5-1")
@LONG
def test_integer_longer_than_need_be_in_connect(target: Target, name: str) -> None:
    """The same holds for the lengths in a CONNECT."""
    whole = build.connect(name)
    for raw in (
        bytes([whole[0], whole[1] | 0x80, 0]) + whole[2:],
        build.connect(name, properties=b"\x80\x00"),
    ):
        peer = Peer.connect(target)
        peer.send(raw)
        peer.expect_refused(MALFORMED, close_will_do=True)


@clause("MQTT-1.5.5-1", "MQTT-4.13.1-1")
@clause311("MQTT-4.8.0-1")
@pytest.mark.parametrize("first", [0x30, 0x82, 0xC0])
@both_versions
def test_integer_of_five_bytes(target: Target, name: str, version: int, first: int) -> None:
    """A remaining length of more than four bytes is malformed."""
    ends(target, name, bytes([first, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]), {MALFORMED, 0x95}, version)


@pytest.mark.parametrize("size", [127, 128, 16383, 16384])
@both_versions
def test_integer_widths(target: Target, name: str, version: int, size: int) -> None:
    """Packets on both sides of every width of the remaining length pass."""
    rest = size - len(publish(name, b"", version=version)) + 2
    peer = connected(target, name, version)
    peer.subscribe(name)
    message = publish(name, b"." * rest, version=version)
    assert message[1:].startswith(varint(size))
    peer.send(message)
    peer.expect(message)


# --- packet identifiers ---


@clause("MQTT-2.2.1-2")
@clause311("MQTT-2.3.1-5")
@both_versions
def test_qos_0_has_no_packet_id(target: Target, name: str, version: int) -> None:
    """A PUBLISH of QoS 0 goes from topic to payload without a packet id."""
    peer = connected(target, name, version)
    peer.subscribe(name, qos=2)
    raw = b"\x30" + varint(2 + len(name) + (version == V5) + 4)
    raw += two(len(name)) + name.encode() + (b"\x00" if version == V5 else b"") + b"body"
    peer.send(raw)
    peer.expect(raw)


@clause("MQTT-2.2.1-3")
@clause311("MQTT-2.3.1-1")
@pytest.mark.parametrize("kind", ["SUBSCRIBE", "UNSUBSCRIBE", "PUBLISH of QoS 1", "PUBLISH of QoS 2"])
@both_versions
def test_packet_id_0(target: Target, name: str, version: int, kind: str) -> None:
    """0 is no packet id."""
    raw = {
        "SUBSCRIBE": subscribe(name, pid=0, version=version),
        "UNSUBSCRIBE": unsubscribe(name, pid=0, version=version),
        "PUBLISH of QoS 1": publish(name, b"x", 1, 0, version=version),
        "PUBLISH of QoS 2": publish(name, b"x", 2, 0, version=version),
    }[kind]
    ends(target, name, raw, {0x81, 0x82}, version)


@clause("MQTT-2.2.1-4")
@clause311("MQTT-2.3.1-4")
@both_versions
def test_packet_ids_of_the_server(target: Target, name: str, version: int) -> None:
    """The server's packet ids are not 0 and not in use: unacknowledged messages have different ones."""
    reader, writer = connected(target, name, version), connected(target, f"{name}p", version)
    reader.subscribe(name, qos=2)
    for number in range(1, 11):
        writer.publish(name, b"x", 1 + number % 2, number)
    ids = [reader.publication().pid for _ in range(10)]
    assert None not in ids and 0 not in ids and len(set(ids)) == 10


@clause("MQTT-2.2.1-5", "MQTT-2.2.1-6", "MQTT-2.2.2-1")
@clause311("MQTT-2.3.1-6", "MQTT-2.3.1-7")
@pytest.mark.parametrize("pid", [1, 255, 256, 65535])
@both_versions
def test_acknowledgements_carry_the_packet_id(target: Target, name: str, version: int, pid: int) -> None:
    """An acknowledgement names the packet it is for; one without properties says so with a length of 0."""
    peer = connected(target, name, version)
    peer.send(subscribe(name, qos=2, pid=pid, version=version))
    peer.expect(b"\x90\x04" + two(pid) + b"\x00\x02" if version == V5 else b"\x90\x03" + two(pid) + b"\x02")
    peer.send(unsubscribe(name, pid=pid, version=version))
    peer.expect(b"\xb0\x04" + two(pid) + b"\x00\x00" if version == V5 else b"\xb0\x02" + two(pid))
    peer.publish(name, b"x", 1, pid)
    peer.publish(name, b"x", 2, pid)


@both_versions
def test_each_side_has_its_own_packet_ids(target: Target, name: str, version: int) -> None:
    """Client and server may use the same packet id at the same time."""
    peer = connected(target, name, version)
    peer.subscribe(name, qos=1)
    peer.send(publish(name, b"to myself", 1, 1, version=version))
    seen = {peer.packet()[0] & 0xF0 for _ in range(2)}
    assert seen == {build.PUBLISH, build.PUBACK}
    peer.send(build.puback(1))
    peer.expect_nothing()


# --- sizes ---


@clause("MQTT-3.2.2-15", "MQTT-4.13.1-1")
@both_versions
def test_packet_too_large(broker_with: Start, name: str, version: int) -> None:
    """A packet of the largest size is taken; one byte more ends the connection."""
    peer = connected(broker_with("max_packet_size = 2000"), name, version)
    if version == V5:
        assert peer.properties["maximum_packet_size"] == [2000]
    room = 2000 - len(publish(name, b"." * 1000, version=version)) + 1000
    largest = publish(name, b"." * room, version=version)
    assert len(largest) == 2000
    peer.subscribe(name)
    peer.send(largest)
    peer.expect(largest)
    peer.send(publish(name, b"." * (room + 1), version=version))
    peer.expect_closed(0x95)


@clause("MQTT-3.2.2-15")
@both_versions
def test_packet_announced_too_large(broker_with: Start, name: str, version: int) -> None:
    """The header alone is enough to refuse: nobody makes the broker wait for 256 MB."""
    peer = connected(broker_with("max_packet_size = 2000"), name, version)
    peer.send(b"\x30\xff\xff\xff\x7f")
    peer.expect_closed(0x95)


@both_versions
def test_connect_too_large(broker_with: Start, name: str, version: int) -> None:
    """A CONNECT may be refused by its size before its version is known."""
    peer = Peer.connect(broker_with("max_packet_size = 2000"), version=version)
    peer.send(build.connect("x" * 2000, version=version))
    peer.expect_refused(0x95, close_will_do=True)
