"""The fixed header of PUBLISH: DUP, QoS, and what of them reaches subscribers (MQTT 5.0, 3.3.1)."""

from __future__ import annotations

from . import build
from .marks import both_versions, clause, clause311, deviates
from .peer import Target, connected


@clause("MQTT-3.3.1-2", "MQTT-4.3.1-1")
@clause311("MQTT-3.3.1-2", "MQTT-4.3.1-1")
@both_versions
def test_qos_0_is_delivered_with_dup_and_retain_0(target: Target, name: str, version: int) -> None:
    """A QoS 0 message arrives as a PUBLISH whose flags are all 0, and without packet identifier."""
    sub = connected(target, f"{name}s", version)
    sub.subscribe(name, qos=2)
    connected(target, f"{name}p", version).publish(name, b"x")
    sub.expect(build.publish(name, b"x", version=version))


@clause("MQTT-3.3.1-2")
@clause311("MQTT-3.3.1-2")
@deviates("mosquitto 2.0: takes DUP with QoS 0")
@both_versions
def test_dup_with_qos_0_ends_the_connection(target: Target, name: str, version: int) -> None:
    """A PUBLISH of QoS 0 must not have DUP set."""
    peer = connected(target, name, version)
    peer.send(build.publish(name, b"x", dup=True, version=version))
    peer.expect_closed({0x81, 0x82})


@clause("MQTT-3.3.1-3", "MQTT-4.3.2-2")
@clause311("MQTT-3.3.1-3", "MQTT-4.3.2-1")
@both_versions
def test_dup_of_the_publisher_is_not_passed_on(target: Target, name: str, version: int) -> None:
    """DUP tells of this hop alone: a retransmission by the publisher is a first transmission to the subscriber."""
    sub = connected(target, f"{name}s", version)
    sub.subscribe(name, qos=1)
    pub = connected(target, f"{name}p", version)
    pub.send(build.publish(name, b"x", 1, 7, dup=True, version=version))
    pub.expect_ack(build.PUBACK, 7)
    got = sub.publication()
    assert (got.payload, got.qos, got.dup) == (b"x", 1, False)


@clause("MQTT-3.3.1-4")
@clause311("MQTT-3.3.1-4")
@both_versions
def test_qos_3_ends_the_connection(target: Target, name: str, version: int) -> None:
    """Both QoS bits set is a malformed packet."""
    peer = connected(target, name, version)
    peer.send(build.publish(name, b"x", 3, 1, version=version))
    peer.expect_closed(0x81)


@clause("MQTT-3.3.4-1", "MQTT-4.3.2-4", "MQTT-4.3.3-8", "MQTT-4.3.3-11")
@clause311("MQTT-3.3.4-1", "MQTT-4.3.2-2", "MQTT-4.3.3-2")
@both_versions
def test_each_qos_has_its_answer(target: Target, name: str, version: int) -> None:
    """QoS 0 is not answered, QoS 1 with PUBACK, QoS 2 with PUBREC and its PUBREL with PUBCOMP."""
    peer = connected(target, name, version)
    peer.send(build.publish(name, b"0", 0, version=version))
    peer.expect_nothing()
    peer.send(build.publish(name, b"1", 1, 0xFFFF, version=version))
    peer.expect_ack(build.PUBACK, 0xFFFF)
    peer.send(build.publish(name, b"2", 2, 0x1234, version=version))
    peer.expect_ack(build.PUBREC, 0x1234)
    peer.send(build.pubrel(0x1234))
    peer.expect(build.pubcomp(0x1234))
    peer.expect_nothing()


@both_versions
def test_an_empty_payload_is_delivered(target: Target, name: str, version: int) -> None:
    """A PUBLISH with a payload of zero bytes is a message as any other."""
    peer = connected(target, name, version)
    peer.subscribe(name)
    peer.send(build.publish(name, b"", version=version))
    peer.expect(build.publish(name, b"", version=version))


@both_versions
def test_a_large_payload_is_delivered_whole(target: Target, name: str, version: int) -> None:
    """A payload of 300,000 bytes, whose length takes three bytes, arrives unaltered."""
    payload = bytes(range(250)) * 1200
    peer = connected(target, name, version)
    peer.subscribe(name)
    peer.send(build.publish(name, payload, version=version))
    peer.expect(build.publish(name, payload, version=version))
