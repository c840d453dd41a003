"""CONNECT: protocol name and version, flags, and a payload that fits them (section 3.1)."""

from __future__ import annotations

from typing import Any

import pytest

from . import build
from .build import connect, publish, subscribe, will
from .marks import V5, V311, both_versions, clause, clause311
from .peer import Peer, Target, connected

MALFORMED = 0x81


def attempt(target: Target, packet: bytes, version: int = 5) -> Peer:
    """A fresh connection on which `packet` has been sent."""
    peer = Peer.connect(target, version=version)
    peer.send(packet)
    return peer


# --- the first packet ---


@clause("MQTT-3.1.4-5", "MQTT-3.1.0-1")
def test_connect_is_acknowledged(target: Target, name: str) -> None:
    """A CONNECT of 5.0 is answered by a CONNACK of success."""
    peer = attempt(target, connect(name))
    first, body = peer.packet()
    assert (first, body[:2]) == (build.CONNACK, b"\x00\x00")


@clause311("MQTT-3.1.4-4", "MQTT-3.2.0-1")
def test_connect_is_acknowledged_311(target: Target, name: str) -> None:
    """A CONNECT of 3.1.1 is answered by the four bytes of a CONNACK of success."""
    attempt(target, connect(name, version=V311), V311).expect(b"\x20\x02\x00\x00")


NOT_CONNECT = {
    "CONNACK": build.connack(),
    "PUBLISH": publish("first/packet", b"x"),
    "PUBACK": build.puback(),
    "PUBREC": build.pubrec(),
    "PUBREL": build.pubrel(),
    "PUBCOMP": build.pubcomp(),
    "SUBSCRIBE": subscribe("first/packet"),
    "SUBACK": build.suback(0),
    "UNSUBSCRIBE": build.unsubscribe("first/packet"),
    "UNSUBACK": build.unsuback(0),
    "PINGREQ": build.PINGREQ,
    "PINGRESP": build.PINGRESP,
    "DISCONNECT": build.disconnect(),
    "AUTH": build.auth(0x18, auth_method="x"),
    "reserved type 0": b"\x00\x00",
    "an HTTP request": b"GET / HTTP/1.1\r\n\r\n",
    "a TLS hello": bytes.fromhex("16030100a5010000a1"),
}


@clause("MQTT-3.1.0-1", "MQTT-3.14.0-1", "MQTT-4.13.1-1")
@clause311("MQTT-3.1.0-1")
@pytest.mark.parametrize("kind", NOT_CONNECT)
def test_first_packet_is_not_connect(target: Target, kind: str) -> None:
    """Whatever comes before CONNECT ends the connection without a word: nothing may be sent before a CONNACK."""
    attempt(target, NOT_CONNECT[kind]).expect_eof()


@clause("MQTT-3.1.0-2")
@clause311("MQTT-3.1.0-2")
@both_versions
def test_second_connect(target: Target, name: str, version: int) -> None:
    """A second CONNECT on a connection is a protocol error."""
    peer = connected(target, name, version)
    peer.send(connect(name, version=version))
    peer.expect_closed(0x82)


@clause("MQTT-3.2.0-2", "MQTT-3.1.0-2")
@clause311("MQTT-3.1.0-2")
@both_versions
def test_two_connects_at_once(target: Target, name: str, version: int) -> None:
    """Also when both arrive in one segment, only the first is acknowledged."""
    peer = attempt(target, connect(name, version=version) * 2, version)
    assert peer.packet()[0] == build.CONNACK
    peer.expect_closed(0x82)


@both_versions
def test_connect_byte_by_byte(target: Target, name: str, version: int) -> None:
    """A CONNECT may arrive in any number of pieces."""
    peer = Peer.connect(target, version=version)
    for byte in connect(name, version=version, username="u", password=b"p"):
        peer.send(bytes([byte]))
    first, body = peer.packet()
    assert (first, body[:2]) == (build.CONNACK, b"\x00\x00")
    peer.expect_nothing()


@clause("MQTT-3.2.0-1")
@clause311("MQTT-3.2.0-1")
@both_versions
def test_packets_right_behind_connect(target: Target, name: str, version: int) -> None:
    """A client need not wait for the CONNACK; it is still the first packet to come back."""
    peer = attempt(
        target,
        connect(name, version=version)
        + subscribe(name, version=version)
        + publish(name, b"early", version=version)
        + build.PINGREQ,
        version,
    )
    first, body = peer.packet()
    assert (first, body[:2]) == (build.CONNACK, b"\x00\x00")
    peer.expect(build.suback(0, version=version))
    peer.expect_unordered(publish(name, b"early", version=version), build.PINGRESP)


# --- protocol name and version ---


@clause("MQTT-3.1.2-1")
@clause311("MQTT-3.1.2-1")
@pytest.mark.parametrize("protocol", ["mqtt", "MQTX", "MQT", "MQTTT", "", "HTTP", b"\xff\xff\xff\xff"])
@both_versions
def test_protocol_name(target: Target, name: str, version: int, protocol: str | bytes) -> None:
    """What does not call itself MQTT, letter by letter, is not answered."""
    peer = attempt(target, connect(name, version=version, protocol=protocol), version)
    if target.ours:
        peer.expect_eof()
    else:
        peer.expect_refused({0x84, 0x81})


@clause("MQTT-3.1.2-2", "MQTT-4.13.2-1")
@pytest.mark.parametrize("level", [6, 7, 0x7F, 0x80 | 5, 0xFF])
def test_version_of_the_future(target: Target, name: str, level: int) -> None:
    """A higher protocol version is refused with 0x84 (an older server says 0x01 in its own format)."""
    peer = attempt(target, connect(name, level=level))
    if target.ours:
        # The highest bit is that of Mosquitto's bridges, which understand 3.1.1.
        peer.expect(b"\x20\x03\x00\x84\x00" if level < 0x80 else b"\x20\x02\x00\x01")
    elif not peer.ended():
        first, body = peer.packet()
        assert first == build.CONNACK and body in (b"\x00\x84\x00", b"\x00\x01")
    peer.expect_eof()


@clause("MQTT-3.1.2-2")
@clause311("MQTT-3.1.2-2", "MQTT-3.2.2-5")
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_version_of_the_past(target: Target, name: str, level: int) -> None:
    """A version below 4 under the name MQTT never existed and is refused."""
    peer = attempt(target, connect(name, version=V311, level=level), V311)
    if target.ours or not peer.ended():
        first, body = peer.packet()
        assert first == build.CONNACK and body in (b"\x00\x84\x00", b"\x00\x01")
    peer.expect_eof()


def of_31(target: Target, client_id: str, level: int = 3) -> Peer:
    peer = attempt(target, connect(client_id, version=V311, protocol="MQIsdp", level=level), V311)
    peer.expect(b"\x20\x02\x00\x00")
    return peer


def test_mqtt_31(target: Target, name: str) -> None:
    """A client of MQTT 3.1, whose packets are those of 3.1.1 but for CONNECT, is served."""
    peer = of_31(target, f"{name} may have more than 23 characters")
    peer.subscribe(name, qos=2)
    connected(target, f"{name}p").publish(name, b"new", 1)
    publication = peer.publication()
    assert (publication.topic, publication.payload, publication.qos) == (name, b"new", 1)
    peer.send(publish(name, b"old", version=V311))
    assert peer.publication().payload == b"old"


def test_mqtt_31_marks_more_as_sent_again(target: Target, name: str) -> None:
    """In MQTT 3.1 also SUBSCRIBE and PUBREL may be duplicates; there is no session present."""
    first = connected(target, name, V311, clean=False)
    first.drop()
    peer = attempt(target, connect(name, version=V311, protocol="MQIsdp", level=3, clean=False), V311)
    peer.expect(b"\x20\x02\x00\x00")
    peer.send(b"\x8a" + subscribe(name, version=V311)[1:])
    assert peer.packet()[0] == build.SUBACK
    peer.send(publish(f"{name}/other", b"x", 2, 7, version=V311))
    peer.expect(b"\x50\x02\x00\x07")
    peer.send(b"\x6a\x02\x00\x07")
    peer.expect(b"\x70\x02\x00\x07")


def test_mqtt_31_without_an_id(target: Target) -> None:
    """MQTT 3.1 has no empty client id: identifier rejected."""
    peer = attempt(target, connect("", version=V311, protocol="MQIsdp", level=3), V311)
    peer.expect(b"\x20\x02\x00\x02")
    peer.expect_eof()


@pytest.mark.parametrize(("protocol", "level"), [("MQIsdp", 4), ("MQIsdp", 5), ("MQIsdp", 2)])
@pytest.mark.own_settings
def test_other_levels_of_mqtt_31(target: Target, name: str, protocol: str, level: int) -> None:
    """Its name has one level."""
    peer = attempt(target, connect(name, version=V311, protocol=protocol, level=level), V311)
    peer.expect(b"\x20\x02\x00\x01")
    peer.expect_eof()


@pytest.mark.parametrize(("protocol", "level"), [("MQIsdp", 0x83), ("MQTT", 0x84)])
def test_bridges_of_mosquitto(target: Target, name: str, protocol: str, level: int) -> None:
    """A level with the highest bit: another broker, which does not get back what it sent, and sees what is retained."""
    bridge = attempt(target, connect(name, version=V311, protocol=protocol, level=level), V311)
    bridge.expect(b"\x20\x02\x00\x00")
    bridge.subscribe(f"{name}/#", qos=1)
    bridge.publish(f"{name}/a", b"own", 1)
    connected(target, f"{name}p").publish(f"{name}/b", b"other", 1, retain=True)
    publication = bridge.publication()
    assert (publication.topic, publication.payload, publication.retain) == (f"{name}/b", b"other", True)
    bridge.expect_nothing()


# --- flags ---


@clause("MQTT-3.1.2-3")
@clause311("MQTT-3.1.2-3")
@both_versions
def test_reserved_connect_flag(target: Target, name: str, version: int) -> None:
    """The reserved bit of the connect flags must be 0."""
    attempt(target, connect(name, version=version, flags=0x03), version).expect_refused(MALFORMED)


@clause("MQTT-3.1.2-12")
@clause311("MQTT-3.1.2-14")
@both_versions
def test_will_qos_3(target: Target, name: str, version: int) -> None:
    """A Will QoS of 3 is malformed."""
    attempt(target, connect(name, version=version, will=will(name, qos=3)), version).expect_refused(MALFORMED)


@clause("MQTT-3.1.2-11")
@clause311("MQTT-3.1.2-11", "MQTT-3.1.2-13")
@pytest.mark.parametrize("qos", [1, 2, 3])
@both_versions
def test_will_qos_without_will(target: Target, name: str, version: int, qos: int) -> None:
    """Without a will the Will QoS must be 0."""
    attempt(target, connect(name, version=version, flags=0x02 | qos << 3), version).expect_refused({0x81, 0x82})


@clause("MQTT-3.1.2-13")
@clause311("MQTT-3.1.2-11", "MQTT-3.1.2-15")
@both_versions
def test_will_retain_without_will(target: Target, name: str, version: int) -> None:
    """Without a will the Will Retain must be 0."""
    attempt(target, connect(name, version=version, flags=0x22), version).expect_refused({0x81, 0x82})


@clause("MQTT-3.1.2-17", "MQTT-3.1.4-1")
@clause311("MQTT-3.1.2-19", "MQTT-3.1.4-1")
@both_versions
def test_user_name_missing(target: Target, name: str, version: int) -> None:
    """With the user name flag there must be a user name."""
    attempt(target, connect(name, version=version, flags=0x82), version).expect_refused({0x81, 0x82})


@clause("MQTT-3.1.2-16", "MQTT-3.1.4-1")
@clause311("MQTT-3.1.2-18", "MQTT-3.1.4-1")
@both_versions
def test_user_name_not_announced(target: Target, name: str, version: int) -> None:
    """Without the user name flag there must be no user name."""
    attempt(target, connect(name, version=version, username="u", flags=0x02), version).expect_refused({0x81, 0x82})


@clause("MQTT-3.1.2-19", "MQTT-3.1.4-1")
@clause311("MQTT-3.1.2-21", "MQTT-3.1.4-1")
@both_versions
def test_password_missing(target: Target, name: str, version: int) -> None:
    """With the password flag there must be a password."""
    attempt(target, connect(name, version=version, username="u", flags=0xC2), version).expect_refused({0x81, 0x82})


@clause("MQTT-3.1.2-18", "MQTT-3.1.4-1")
@clause311("MQTT-3.1.2-20", "MQTT-3.1.4-1")
@both_versions
def test_password_not_announced(target: Target, name: str, version: int) -> None:
    """Without the password flag there must be no password."""
    packet = connect(name, version=version, username="u", password=b"p", flags=0x82)
    attempt(target, packet, version).expect_refused({0x81, 0x82})


@clause("MQTT-3.1.2-19")
def test_password_alone(target: Target, name: str) -> None:
    """In 5.0 a password needs no user name."""
    connected(target, name, password=b"\x00\xff token").expect_nothing()


@clause311("MQTT-3.1.2-22")
def test_password_alone_311(target: Target, name: str) -> None:
    """In 3.1.1 a password without a user name is a violation."""
    attempt(target, connect(name, version=V311, password=b"p"), V311).expect_refused(MALFORMED)


@clause("MQTT-3.1.2-17", "MQTT-3.1.2-19")
@clause311("MQTT-3.1.2-19", "MQTT-3.1.2-21")
@both_versions
def test_user_name_and_password(target: Target, name: str, version: int) -> None:
    """User name and password are read where an open broker does not care who they belong to."""
    connected(target, name, version, username="usér", password=b"\x00\x01\xff").expect_nothing()


# --- payload ---


@clause("MQTT-3.1.2-9", "MQTT-3.1.4-1")
@clause311("MQTT-3.1.2-9", "MQTT-3.1.4-1")
@both_versions
def test_will_missing(target: Target, name: str, version: int) -> None:
    """With the will flag there must be will properties (5.0), topic and payload."""
    attempt(target, connect(name, version=version, flags=0x06), version).expect_refused({0x81, 0x82})


@clause("MQTT-3.1.2-9", "MQTT-3.1.4-1")
@clause311("MQTT-3.1.2-9", "MQTT-3.1.4-1")
@both_versions
def test_will_payload_missing(target: Target, name: str, version: int) -> None:
    """A will of a topic alone is cut short."""
    whole = connect(name, version=version, will=will(name, b""))
    cut = build.packet(build.CONNECT, whole[2:-2])
    attempt(target, cut, version).expect_refused({0x81, 0x82})


@clause("MQTT-3.1.3-1", "MQTT-3.1.3-3")
@clause311("MQTT-3.1.3-1", "MQTT-3.1.3-3")
@both_versions
def test_payload_in_order(target: Target, name: str, version: int) -> None:
    """Client id, will, user name and password are read in this order: the will that comes out is the one put in."""
    watcher = connected(target, f"{name}w", version)
    watcher.subscribe(f"{name}/will")
    peer = connected(
        target, name, version, will=will(f"{name}/will", b"last words"), username=f"{name}/user", password=b"password"
    )
    peer.drop()
    watcher.expect(publish(f"{name}/will", b"last words", version=version))


@clause("MQTT-3.1.3-3", "MQTT-3.1.4-1")
@clause311("MQTT-3.1.3-3", "MQTT-3.1.4-1")
@both_versions
def test_client_id_missing(target: Target, version: int) -> None:
    """A CONNECT without a payload has no client id."""
    whole = connect("", version=version)
    cut = build.packet(build.CONNECT, whole[2:-2])
    attempt(target, cut, version).expect_refused({0x81, 0x82})


@clause("MQTT-3.1.4-1", "MQTT-4.13.1-1")
@clause311("MQTT-3.1.4-1")
@both_versions
def test_connect_cut_short_anywhere(target: Target, name: str, version: int) -> None:
    """A CONNECT that ends early, wherever, is refused or (before its version can be read) just ended."""
    arguments: dict[str, Any] = {"session_expiry": 0, "user_property": ("k", "v")} if version == V5 else {}
    whole = connect(
        name, version=version, will=will(name, b"w", will_delay=0), username="u", password=b"p", **arguments
    )
    for end in range(2, len(whole)):
        peer = attempt(target, build.packet(build.CONNECT, whole[2:end]), version)
        peer.expect_refused({0x81, 0x82}, close_will_do=True)
        peer.drop()


@clause("MQTT-3.1.4-1")
@clause311("MQTT-3.1.4-1")
@both_versions
def test_bytes_behind_the_payload(target: Target, name: str, version: int) -> None:
    """Nothing may follow the fields that the flags announce."""
    whole = connect(name, version=version)
    attempt(target, build.packet(build.CONNECT, whole[2:] + b"\x00"), version).expect_refused({0x81, 0x82})


@clause("MQTT-2.1.3-1")
@clause311("MQTT-2.2.2-1", "MQTT-2.2.2-2")
@pytest.mark.parametrize("flags", [1, 2, 4, 8, 15])
@both_versions
def test_fixed_header_flags(target: Target, name: str, version: int, flags: int) -> None:
    """The flags in the fixed header of CONNECT are reserved."""
    packet = connect(name, version=version)
    peer = attempt(target, bytes([packet[0] | flags]) + packet[1:], version)
    peer.expect_refused(MALFORMED, close_will_do=True)


# --- what comes behind a refused CONNECT ---


@clause("MQTT-3.1.4-6", "MQTT-3.1.4-2")
def test_data_behind_a_refusal(target: Target, name: str) -> None:
    """What a client sends behind a CONNECT that is refused is not looked at."""
    watcher = connected(target, f"{name}w")
    watcher.subscribe(name)
    peer = attempt(target, connect(name, auth_method="no such method") + publish(name, b"unheard"))
    peer.expect_refused({0x8C, 0x87})
    watcher.expect_nothing()


@clause311("MQTT-3.1.4-5", "MQTT-3.1.3-8")
def test_data_behind_a_refusal_311(target: Target, name: str) -> None:
    """The same in 3.1.1, where a session that must be kept but has no name is refused."""
    watcher = connected(target, f"{name}w", V311)
    watcher.subscribe(name)
    peer = attempt(target, connect("", version=V311, clean=False) + publish(name, b"unheard", version=V311), V311)
    peer.expect(b"\x20\x02\x00\x02")
    peer.expect_eof()
    watcher.expect_nothing()
