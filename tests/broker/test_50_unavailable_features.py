"""Features that a broker may do without: CONNACK says so, and who uses them is told (MQTT 5.0, 3.2.2.3)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from . import build
from .marks import V311, clause, clause311
from .peer import Peer, Target, connected

Broker = Callable[[str], Target]


@clause("MQTT-3.2.2-9", "MQTT-3.2.2-11")
@pytest.mark.parametrize("highest", [0, 1])
def test_publishing_above_the_maximum_qos_ends_the_connection(broker_with: Broker, name: str, highest: int) -> None:
    """CONNACK states Maximum QoS; a PUBLISH above it is answered with DISCONNECT 0x9B."""
    target = broker_with(f"max_qos = {highest}")
    for qos in range(highest + 1, 3):
        peer = connected(target, name)
        assert peer.properties["maximum_qos"] == [highest]
        peer.publish(name, b"x", highest)
        peer.send(build.publish(name, b"x", qos))
        peer.expect_closed(0x9B)


@clause("MQTT-3.2.2-10", "MQTT-3.8.4-7")
@pytest.mark.parametrize("highest", [0, 1])
def test_subscribing_above_the_maximum_qos_grants_less(broker_with: Broker, name: str, highest: int) -> None:
    """A SUBSCRIBE of any QoS is accepted; SUBACK tells the QoS granted, in both versions."""
    target = broker_with(f"max_qos = {highest}")
    for version in (V311, 5):
        peer = connected(target, f"{name}{version}", version)
        peer.send(build.subscribe((name, 0), (f"{name}/1", 1), (f"{name}/2", 2), version=version))
        peer.expect(build.suback(0, min(1, highest), highest, version=version))


@clause311("MQTT-3.3.5-2")
def test_publishing_above_the_maximum_qos_ends_a_311_connection(broker_with: Broker, name: str) -> None:
    """3.1.1 has no word for it, so the connection is closed."""
    peer = connected(broker_with("max_qos = 1"), name, V311)
    peer.send(build.publish(name, b"x", 2, version=V311))
    peer.expect_closed()


@clause("MQTT-3.2.2-12", "MQTT-3.2.2-13")
def test_a_will_above_what_is_supported_is_refused(broker_with: Broker, name: str) -> None:
    """A will with a QoS or RETAIN that the broker does not support is refused with 0x9B or 0x9A."""
    target = broker_with("max_qos = 1\nretain_available = false")
    for will, reason in ((build.will(name, qos=2), 0x9B), (build.will(name, retain=True), 0x9A)):
        peer = Peer.connect(target)
        peer.send(build.connect(name, will=will))
        peer.expect_refused(reason)


@clause("MQTT-3.2.2-14")
def test_retained_messages_can_be_unavailable(broker_with: Broker, name: str) -> None:
    """CONNACK says so; a PUBLISH with RETAIN is answered with DISCONNECT 0x9A, others are served."""
    target = broker_with("retain_available = false")
    peer = connected(target, name)
    assert peer.properties["retain_available"] == [0]
    peer.subscribe(name)
    peer.send(build.publish(name, b"x"))
    peer.expect(build.publish(name, b"x"))
    peer.send(build.publish(name, b"x", retain=True))
    peer.expect_closed(0x9A)
    old = connected(target, name, V311)
    old.send(build.publish(name, b"x", retain=True, version=V311))
    old.expect_closed()


@clause311("MQTT-3.8.3-2", "MQTT-3.9.3-2")
def test_wildcards_can_be_unavailable(broker_with: Broker, name: str) -> None:
    """CONNACK says so; who uses one all the same is cut off with 0xA2. 3.1.1 clients cannot know and get 0x80."""
    target = broker_with("wildcard_subscription_available = false")
    for filter in (f"{name}/+", f"{name}/#", "#", f"$share/g/{name}/+"):
        peer = connected(target, name)
        assert peer.properties["wildcard_available"] == [0]
        peer.subscribe(name)
        peer.send(build.subscribe(filter, pid=2))
        peer.expect_closed(0xA2)
    old = connected(target, name, V311)
    old.send(build.subscribe(f"{name}/+", name, f"{name}/#", version=V311))
    old.expect(build.suback(0x80, 0, 0x80, version=V311))


def test_shared_subscriptions_can_be_unavailable(broker_with: Broker, name: str) -> None:
    """CONNACK says so; `$share/…` all the same is answered with DISCONNECT 0x9E, or 0x80 in 3.1.1."""
    target = broker_with("shared_subscription_available = false")
    peer = connected(target, name)
    assert peer.properties["shared_available"] == [0]
    peer.subscribe(name)
    peer.send(build.subscribe(f"$share/g/{name}", pid=2))
    peer.expect_closed(0x9E)
    old = connected(target, name, V311)
    old.send(build.subscribe(f"$share/g/{name}", name, version=V311))
    old.expect(build.suback(0x80, 0, version=V311))


def test_subscription_identifiers_can_be_unavailable(broker_with: Broker, name: str) -> None:
    """CONNACK says so; a SUBSCRIBE with one is answered with DISCONNECT 0xA1."""
    peer = connected(broker_with("subscription_identifier_available = false"), name)
    assert peer.properties["subscription_identifier_available"] == [0]
    peer.subscribe(name)
    peer.send(build.subscribe(name, pid=2, subscription_identifier=1))
    peer.expect_closed(0xA1)


@clause("MQTT-3.2.2-9")
def test_everything_is_available_by_default(target: Target, name: str) -> None:
    """CONNACK of a broker with all features says nothing, or says that they are there."""
    peer = connected(target, name)
    for key in ("retain_available", "wildcard_available", "shared_available", "subscription_identifier_available"):
        assert build.number(peer.properties, key, 1) == 1
    assert "maximum_qos" not in peer.properties


@clause("MQTT-3.3.2-9", "MQTT-3.2.2-18")
def test_topic_aliases_can_be_unavailable(broker_with: Broker, name: str) -> None:
    """With Topic Alias Maximum 0 any alias ends the connection with 0x94."""
    peer = connected(broker_with("topic_alias_maximum = 0"), name)
    assert build.number(peer.properties, "topic_alias_maximum", 0) == 0
    peer.send(build.publish(name, b"x", topic_alias=1))
    peer.expect_closed(0x94)
