"""UTF-8 encoded strings, wherever one can stand (sections 1.5.4 and 1.5.7)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .build import (
    auth,
    connect,
    disconnect,
    puback,
    publish,
    pubrec,
    subscribe,
    unsubscribe,
    will,
)
from .marks import V5, V311, both_versions, clause, clause311
from .peer import Peer, Target, connected

Field = Callable[[bytes], bytes]

ILL_FORMED = {
    "a stray byte": b"a\xffb",
    "a stray continuation": b"a\x80b",
    "a cut sequence": b"a\xe2\x82",
    "an overlong slash": b"a\xc0\xafb",
    "an overlong NUL": b"a\xc0\x80b",
    "a low surrogate": b"a\xed\xa0\x80b",
    "a high surrogate": b"a\xed\xbf\xbfb",
    "a surrogate pair": b"a\xed\xa0\xbd\xed\xb8\x80b",
    "beyond U+10FFFF": b"a\xf4\x90\x80\x80b",
    "five bytes": b"a\xf8\x88\x80\x80\x80b",
}
NUL = {"NUL": b"a\x00b"}

IN_CONNECT: dict[str, Field] = {
    "client id": connect,
    "user name": lambda bad: connect("s1", username=bad, password=b"p"),
    "will topic": lambda bad: connect("s1", will=will(bad)),
    "authentication method": lambda bad: connect("s1", auth_method=bad),
    "user property name": lambda bad: connect("s1", user_property=(bad, "v")),
    "user property value": lambda bad: connect("s1", user_property=("k", bad)),
    "will content type": lambda bad: connect("s1", will=will("t", content_type=bad)),
    "will response topic": lambda bad: connect("s1", will=will("t", response_topic=bad)),
    "will user property name": lambda bad: connect("s1", will=will("t", user_property=(bad, "v"))),
    "will user property value": lambda bad: connect("s1", will=will("t", user_property=("k", bad))),
}
IN_CONNECT_311: dict[str, Field] = {
    "client id": lambda bad: connect(bad, version=V311),
    "user name": lambda bad: connect("s1", version=V311, username=bad, password=b"p"),
    "will topic": lambda bad: connect("s1", version=V311, will=will(bad)),
}
AFTERWARDS: dict[str, Field] = {
    "topic": lambda bad: publish(bad, b"x"),
    "topic of QoS 1": lambda bad: publish(bad, b"x", 1),
    "retained topic": lambda bad: publish(bad, b"x", retain=True),
    "content type": lambda bad: publish("t", b"x", content_type=bad),
    "response topic": lambda bad: publish("t", b"x", response_topic=bad),
    "user property name": lambda bad: publish("t", b"x", user_property=(bad, "v")),
    "user property value": lambda bad: publish("t", b"x", user_property=("k", bad)),
    "filter": subscribe,
    "second filter": lambda bad: subscribe("t", bad),
    "SUBSCRIBE's user property": lambda bad: subscribe("t", user_property=("k", bad)),
    "filter to leave": unsubscribe,
    "UNSUBSCRIBE's user property": lambda bad: unsubscribe("t", user_property=(bad, "v")),
    "PUBACK's reason string": lambda bad: puback(1, 0, reason_string=bad),
    "PUBREC's user property": lambda bad: pubrec(1, 0, user_property=("k", bad)),
    "DISCONNECT's reason string": lambda bad: disconnect(0, reason_string=bad),
    "AUTH's method": lambda bad: auth(0x19, auth_method=bad),
}
AFTERWARDS_311: dict[str, Field] = {
    "topic": lambda bad: publish(bad, b"x", version=V311),
    "topic of QoS 1": lambda bad: publish(bad, b"x", 1, version=V311),
    "filter": lambda bad: subscribe(bad, version=V311),
    "filter to leave": lambda bad: unsubscribe(bad, version=V311),
}


def _every(field: dict[str, Field], bad: dict[str, bytes]) -> pytest.MarkDecorator:
    cases = [
        pytest.param(make(raw), id=f"{where}-{what}") for where, make in field.items() for what, raw in bad.items()
    ]
    return pytest.mark.parametrize("packet", cases)


def _refused(target: Target, packet: bytes, version: int) -> None:
    peer = Peer.connect(target, version=version)
    peer.send(packet)
    peer.expect_refused(0x81)


def _ended(target: Target, name: str, packet: bytes, version: int) -> None:
    peer = connected(target, name, version)
    peer.send(packet)
    peer.expect_closed(0x81)


@clause("MQTT-1.5.4-1", "MQTT-1.5.7-1", "MQTT-3.1.3-4", "MQTT-3.1.3-11", "MQTT-3.1.3-12")
@_every(IN_CONNECT, ILL_FORMED)
def test_ill_formed_in_connect(target: Target, packet: bytes) -> None:
    """A CONNECT with a string that is not UTF-8 is malformed."""
    _refused(target, packet, V5)


@clause("MQTT-1.5.4-2", "MQTT-1.5.7-1")
@_every(IN_CONNECT, NUL)
def test_nul_in_connect(target: Target, packet: bytes) -> None:
    """No string of a CONNECT may hold U+0000."""
    _refused(target, packet, V5)


@clause311("MQTT-1.5.3-1", "MQTT-1.5.3-2", "MQTT-3.1.3-4", "MQTT-3.1.3-10", "MQTT-3.1.3-11")
@_every(IN_CONNECT_311, ILL_FORMED | NUL)
def test_bad_string_in_connect_311(target: Target, packet: bytes) -> None:
    """In 3.1.1 such a CONNECT ends the connection."""
    _refused(target, packet, V311)


@clause("MQTT-1.5.4-1", "MQTT-1.5.7-1")
@_every(AFTERWARDS, ILL_FORMED)
def test_ill_formed(target: Target, name: str, packet: bytes) -> None:
    """A packet with a string that is not UTF-8 is malformed."""
    _ended(target, name, packet, V5)


@clause("MQTT-1.5.4-2", "MQTT-1.5.7-1")
@_every(AFTERWARDS, NUL)
def test_nul(target: Target, name: str, packet: bytes) -> None:
    """No string of any packet may hold U+0000."""
    _ended(target, name, packet, V5)


@clause311("MQTT-1.5.3-1", "MQTT-1.5.3-2")
@_every(AFTERWARDS_311, ILL_FORMED | NUL)
def test_bad_string_311(target: Target, name: str, packet: bytes) -> None:
    """In 3.1.1 such a packet ends the connection."""
    _ended(target, name, packet, V311)


@clause("MQTT-1.5.4-3")
@clause311("MQTT-1.5.3-3")
@both_versions
def test_byte_order_mark_is_a_character(target: Target, name: str, version: int) -> None:
    """EF BB BF is U+FEFF, a character like others: never stripped, and a different topic."""
    peer = connected(target, name, version)
    peer.subscribe(f"\ufeff{name}")
    peer.publish(name, b"without")
    peer.send(publish(f"\ufeff{name}", b"with", version=version))
    peer.expect(publish(b"\xef\xbb\xbf" + name.encode(), b"with", version=version))


@clause("MQTT-1.5.4-1")
@both_versions
def test_every_width_of_character(target: Target, name: str, version: int) -> None:
    """Characters of one to four bytes pass through unchanged, the edges of every width included."""
    topic = f"{name}/ ~\u00a0\u07ff\u0800\ud7ff\ue000\ufffd\U00010000\U0010fffd"
    peer = connected(target, name, version)
    peer.subscribe(topic)
    peer.send(publish(topic, b"x", version=version))
    peer.expect(publish(topic, b"x", version=version))


@clause("MQTT-1.5.7-1")
def test_user_properties_pass_unchanged(target: Target, name: str) -> None:
    """Names and values of user properties may be empty, repeated or as long as a string can be."""
    pairs = [("", ""), ("k", "é水🙂"), ("k", "again"), ("long", "v" * 65535)]
    peer = connected(target, name)
    peer.subscribe(name)
    peer.send(publish(name, b"x", user_property=pairs))
    peer.expect(publish(name, b"x", user_property=pairs))


def test_binary_data_is_no_string(target: Target, name: str) -> None:
    """Payload and correlation data may hold any bytes."""
    raw = bytes(range(256))
    peer = connected(target, name, password=raw, username="u", will=will(name, raw, correlation_data=raw))
    peer.subscribe(name)
    peer.send(publish(name, raw, correlation_data=raw))
    peer.expect(publish(name, raw, correlation_data=raw))
