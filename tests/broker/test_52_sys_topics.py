"""The broker's own topics below $SYS, by the names that Mosquitto gave them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from . import build
from .marks import V5, V311, both_versions, clause, clause311, deviates
from .peer import Target, connected

COUNTERS = [
    "uptime",
    "clients/total",
    "clients/connected",
    "clients/disconnected",
    pytest.param("clients/maximum", marks=deviates("mosquitto 2.0: sends it when it changes and does not retain it")),
    "messages/received",
    "messages/sent",
    "publish/messages/received",
    "publish/messages/sent",
    "bytes/received",
    "bytes/sent",
    "subscriptions/count",
    "retained messages/count",
]


@both_versions
def test_the_version_is_retained(target: Target, name: str, version: int) -> None:
    """A new subscriber learns the broker's version at once."""
    peer = connected(target, name, version)
    peer.subscribe("$SYS/broker/version")
    got = peer.publication()
    assert (got.topic, got.retain) == ("$SYS/broker/version", True)
    assert got.payload.decode()


@pytest.mark.parametrize("counter", COUNTERS)
def test_counters_are_numbers(target: Target, name: str, counter: str) -> None:
    """Each of them is retained and begins with a number."""
    peer = connected(target, name)
    peer.subscribe(f"$SYS/broker/{counter}")
    got = peer.publication()
    assert (got.topic, got.retain) == (f"$SYS/broker/{counter}", True)
    assert float(got.payload.split()[0]) >= 0


def test_counters_are_renewed(broker_with: Callable[[str], Target], name: str) -> None:
    """They follow what happens: connected clients and published messages are counted at the next interval."""
    target = broker_with("sys_interval = 0.1")
    peer = connected(target, name)
    peer.subscribe("$SYS/broker/clients/connected", "$SYS/broker/publish/messages/received")
    others = [connected(target, f"{name}{number}") for number in range(3)]
    for other in others:
        other.publish(name, b"x", 1)
    latest: dict[str, int] = {}
    while latest.get("connected", 0) < 4 or latest.get("received", 0) < 3:
        got = peer.publication()
        latest[got.topic.rpartition("/")[2]] = int(got.payload)
    assert latest["connected"] == 4


def test_the_tree_can_be_turned_off(broker_with: Callable[[str], Target], name: str) -> None:
    """With an interval of 0 there is nothing below $SYS."""
    peer = connected(broker_with("sys_interval = 0"), name)
    peer.subscribe("$SYS/#")
    peer.expect_nothing()


@clause311("MQTT-3.3.5-2")
@both_versions
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_clients_may_not_publish_there(target: Target, name: str, version: int, qos: int) -> None:
    """Nobody sees what a client publishes below $SYS; a 5.0 publisher is told by 0x87, of QoS 0 nothing."""
    sub = connected(target, f"{name}s", version)
    sub.subscribe(f"$SYS/{name}/#")
    pub = connected(target, f"{name}p", version)
    pub.send(build.publish(f"$SYS/{name}/x", b"x", qos, version=version))
    if qos and version == V5:
        pub.expect_ack(build.PUBACK if qos == 1 else build.PUBREC, 1, 0x87)
    elif qos and (target.ours or not pub.ended()):
        pub.expect_ack(build.PUBACK if qos == 1 else build.PUBREC, 1)
    if target.ours:
        pub.expect_nothing()
    sub.expect_nothing()


@both_versions
def test_bridges_may_say_how_they_are(target: Target, name: str, version: int) -> None:
    """The state of a bridge, which Mosquitto's publish themselves and leave as their will, is the exception."""
    topic = f"$SYS/broker/connection/{name}/state"
    sub = connected(target, f"{name}s", version)
    sub.subscribe(topic)
    bridge = connected(target, name, version, will=build.will(topic, b"0", retain=True))
    bridge.publish(topic, b"1", 1, retain=True)
    assert sub.publication().payload == b"1"
    bridge.abort()
    assert sub.publication().payload == b"0"
    sub.send(build.publish(topic, b"", retain=True, version=version))


def test_nobody_publishes_to_a_shared_group(target: Target, name: str) -> None:
    """Nobody could subscribe to such a topic."""
    pub = connected(target, name)
    pub.send(build.publish(f"$share/{name}/x", b"x", 1))
    pub.expect_ack(build.PUBACK, 1, 0x87)


@clause("MQTT-4.7.2-1")
@clause311("MQTT-4.7.2-1")
@pytest.mark.parametrize("filter", ["#", "+/broker/version", "+/#"])
def test_leading_wildcards_do_not_bring_them(target: Target, name: str, filter: str) -> None:
    """Who subscribes to everything does not get the broker's own topics."""
    for version in (V311, V5):
        peer = connected(target, f"{name}{version}", version)
        peer.subscribe(filter)
        peer.send(build.publish(f"{name}/broker/version", b"end", version=version))
        while (got := peer.publication()).payload != b"end":
            assert not got.topic.startswith("$SYS")
