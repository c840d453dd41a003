"""The properties of a message: passed on unaltered, and what they may not be (MQTT 5.0, 3.3.2.3)."""

from __future__ import annotations

from typing import Any

import pytest

from . import build
from .marks import V311, clause, deviates
from .peer import Target, connected

ALL: dict[str, list[Any]] = {
    "payload_format": [1],
    "content_type": ["text/plain; é"],
    "response_topic": ["answers/here/€"],
    "correlation_data": [b"\x00\x01\xff"],
    "user_property": [("b", "2"), ("a", "1"), ("b", "2"), ("", ""), ("a", "3")],
}


def named(properties: dict[str, list[Any]]) -> dict[str, Any]:
    return {key: values if len(values) > 1 else values[0] for key, values in properties.items()}


@clause("MQTT-3.3.2-4", "MQTT-3.3.2-15", "MQTT-3.3.2-16", "MQTT-3.3.2-17", "MQTT-3.3.2-18", "MQTT-3.3.2-20")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_all_properties_are_passed_on(target: Target, name: str, qos: int) -> None:
    """Every subscriber gets every property as it was sent, user properties in their order, repeated names included."""
    subs = [connected(target, f"{name}{each}") for each in range(2)]
    subs[0].subscribe(name, qos=qos)
    subs[1].subscribe(f"{name}/#", qos=qos)
    connected(target, f"{name}p").publish(name, b"text", qos, **named(ALL))
    for sub in subs:
        got = sub.publication()
        assert (got.payload, got.qos, got.properties) == (b"text", qos, ALL)


@clause("MQTT-3.3.2-4", "MQTT-3.3.2-15", "MQTT-3.3.2-16", "MQTT-3.3.2-17", "MQTT-3.3.2-20")
@pytest.mark.parametrize("key", ALL)
def test_each_property_is_passed_on_alone(target: Target, name: str, key: str) -> None:
    """Nothing is added to a message that carries one property only."""
    peer = connected(target, name)
    peer.subscribe(name)
    properties = build.props(**named({key: ALL[key]}))
    peer.send(build.publish(name, b"x", properties=properties))
    peer.expect(build.publish(name, b"x", properties=properties))


@clause("MQTT-3.3.2-4")
@pytest.mark.parametrize("indicator", [0, 1])
def test_the_payload_format_indicator_is_passed_on(target: Target, name: str, indicator: int) -> None:
    """0 (bytes) is not the same as absent."""
    peer = connected(target, name)
    peer.subscribe(name)
    peer.send(build.publish(name, b"text", payload_format=indicator))
    peer.expect(build.publish(name, b"text", payload_format=indicator))


@clause("MQTT-3.3.2-16", "MQTT-3.3.2-17", "MQTT-3.3.2-20", "MQTT-3.3.2-15")
def test_properties_survive_the_queue(target: Target, name: str) -> None:
    """An absent client gets them when it comes back."""
    sub = connected(target, f"{name}s", session_expiry=60)
    sub.subscribe(name, qos=1)
    sub.close()
    connected(target, f"{name}p").publish(name, b"text", 1, **named(ALL))
    sub = connected(target, f"{name}s", clean=False)
    got = sub.publication()
    assert (got.payload, got.dup, got.properties) == (b"text", False, ALL)


@clause("MQTT-3.3.2-17")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_versions_meet(target: Target, name: str, qos: int) -> None:
    """A 3.1.1 subscriber gets no property block, a 5.0 subscriber of a 3.1.1 publisher an empty one."""
    new, old = connected(target, f"{name}n"), connected(target, f"{name}o", V311)
    for peer in (new, old):
        peer.subscribe(name, qos=qos)
    connected(target, f"{name}p").publish(name, b"from5", qos, **named(ALL))
    connected(target, f"{name}q", V311).publish(name, b"from4", qos)
    for peer, properties in ((new, ALL), (old, {})):
        first, second = peer.publication(), peer.publication()
        assert (first.payload, first.qos, first.properties) == (b"from5", qos, properties)
        assert (second.payload, second.qos, second.properties) == (b"from4", qos, {})


@clause("MQTT-3.3.2-17", "MQTT-3.3.2-18")
def test_many_user_properties_are_passed_on(target: Target, name: str) -> None:
    """A hundred of them make a property length of two bytes; all arrive in order."""
    peer = connected(target, name)
    peer.subscribe(name)
    block = build.props(user_property=[(f"k{each % 7}", "v" * (each % 11)) for each in range(100)])
    peer.send(build.publish(name, b"x", properties=block))
    peer.expect(build.publish(name, b"x", properties=block))


@clause("MQTT-3.3.2-14")
@deviates("mosquitto 2.0: passes on a response topic with wildcards")
@pytest.mark.parametrize("topic", ["a/#", "+", "a/+/b"])
def test_a_response_topic_with_wildcards_ends_the_connection(target: Target, name: str, topic: str) -> None:
    """The response topic is a topic name, so it has no wildcards."""
    peer = connected(target, name)
    peer.send(build.publish(name, b"x", response_topic=topic))
    peer.expect_closed({0x81, 0x82, 0x90})


@clause("MQTT-3.3.2-13", "MQTT-3.3.2-19")
@pytest.mark.parametrize("key", ["response_topic", "content_type"])
@pytest.mark.parametrize("raw", [b"\xff", b"a\x00b", b"\xed\xa0\x80"], ids=["byte", "null", "surrogate"])
def test_text_properties_that_are_not_utf8_end_the_connection(target: Target, name: str, key: str, raw: bytes) -> None:
    """Response topic and content type are UTF-8 encoded strings."""
    peer = connected(target, name)
    peer.send(build.publish(name, b"x", properties=build.props(**{key: raw})))
    peer.expect_closed(0x81)


@clause("MQTT-1.5.7-1")
@pytest.mark.parametrize("pair", [(b"\xff", b""), (b"", b"\xff"), (b"a\x00", b"")], ids=["name", "value", "null"])
def test_user_properties_that_are_not_utf8_end_the_connection(
    target: Target, name: str, pair: tuple[bytes, bytes]
) -> None:
    """Both halves of a user property are UTF-8 encoded strings."""
    peer = connected(target, name)
    peer.send(build.publish(name, b"x", user_property=pair))
    peer.expect_closed(0x81)


@pytest.mark.parametrize(
    "key", ["payload_format", "message_expiry", "topic_alias", "response_topic", "correlation_data", "content_type"]
)
def test_a_property_that_comes_twice_ends_the_connection(target: Target, name: str, key: str) -> None:
    """Only user properties may be repeated in a PUBLISH from a client."""
    value: Any = {"payload_format": 1, "message_expiry": 9, "topic_alias": 1}.get(key, "x")
    peer = connected(target, name)
    peer.send(build.publish(name, b"x", properties=build.props(**{key: [value, value]})))
    peer.expect_closed(0x82)


@pytest.mark.parametrize("key", ["session_expiry", "receive_maximum", "reason_string", "will_delay", "maximum_qos"])
def test_a_property_of_another_packet_ends_the_connection(target: Target, name: str, key: str) -> None:
    """A PUBLISH carries the properties of PUBLISH only."""
    peer = connected(target, name)
    value: Any = "x" if key == "reason_string" else 1
    peer.send(build.publish(name, b"x", properties=build.props(**{key: value})))
    peer.expect_closed({0x81, 0x82})


@clause("MQTT-3.3.2-4")
def test_a_payload_that_belies_its_format_is_refused_or_passed_on(target: Target, name: str) -> None:
    """A broker may check that a payload said to be text is UTF-8 (0x99), or leave that to the receiver."""
    sub = connected(target, f"{name}s")
    sub.subscribe(name)
    pub = connected(target, f"{name}p")
    pub.send(build.publish(name, b"\xff", 1, payload_format=1))
    first, body = pub.packet()
    if first == build.PUBACK and body[2:3] in (b"", b"\x00", b"\x10"):
        sub.expect(build.publish(name, b"\xff", payload_format=1))
    else:
        assert (first, body[2 if first == build.PUBACK else 0]) in ((build.PUBACK, 0x99), (build.DISCONNECT, 0x99))
        sub.expect_nothing()
