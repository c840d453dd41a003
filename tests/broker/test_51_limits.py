"""Limits of our own broker that clients notice: queues, subscriptions, topics, retained messages."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from . import build
from .marks import V5, V311, both_versions, clause
from .peer import Peer, Target, connected
from .test_41_redelivery import lasting

Broker = Callable[[str], Target]


def payloads(sub: Peer, end: str) -> list[bytes]:
    """What has waited for this client, up to a message of the topic `end`, which it publishes itself."""
    sub.send(build.publish(end, version=sub.version))
    found = []
    while (got := sub.publication()).topic != end:
        assert got.pid is not None
        found.append(got.payload)
    return found


@both_versions
@pytest.mark.parametrize(("policy", "kept"), [("drop_newest", b"123"), ("drop_oldest", b"345")])
def test_a_full_queue_drops_by_its_policy(
    broker_with: Broker, name: str, version: int, policy: str, kept: bytes
) -> None:
    """Of five messages for an absent client with room for three, the first or the last three are delivered."""
    target = broker_with(f'max_queued_messages = 3\nqueue_full = "{policy}"')
    sub = lasting(target, f"{name}s", version)
    sub.subscribe((name, 2), (f"{name}end", 0))
    sub.close()
    pub = connected(target, f"{name}p", version)
    for number in range(1, 6):
        pub.publish(name, b"%d" % number, 1 + number % 2)
    sub = lasting(target, f"{name}s", version)
    assert b"".join(payloads(sub, f"{name}end")) == kept


@pytest.mark.parametrize(("policy", "kept"), [("drop_newest", b"234"), ("drop_oldest", b"456")])
def test_a_full_queue_behind_the_quota_drops_by_its_policy(
    broker_with: Broker, name: str, policy: str, kept: bytes
) -> None:
    """The same holds for a client that is there but does not acknowledge; what it was sent already stays."""
    target = broker_with(f'max_queued_messages = 3\nqueue_full = "{policy}"')
    sub = connected(target, f"{name}s", receive_maximum=1)
    sub.subscribe(name, qos=1)
    pub = connected(target, f"{name}p")
    for number in range(1, 7):
        pub.publish(name, b"%d" % number, 1)
    got = b""
    for _ in range(4):
        each = sub.publication()
        assert each.pid is not None
        got += each.payload
        sub.send(build.puback(each.pid))
    assert got == b"1" + kept
    sub.expect_nothing()


def test_a_full_queue_may_cost_the_connection(broker_with: Broker, name: str) -> None:
    """With the policy "disconnect" a client whose queue is full is cut off with 0x97; others are served on."""
    target = broker_with('max_queued_messages = 3\nqueue_full = "disconnect"')
    slow, quick = connected(target, f"{name}s", receive_maximum=1), connected(target, f"{name}q")
    slow.subscribe(name, qos=1)
    quick.subscribe(name)
    pub = connected(target, f"{name}p")
    for number in range(6):
        pub.publish(name, b"%d" % number, 1)
    assert slow.publication().payload == b"0"
    slow.expect_closed(0x97)
    quick.expect(*(build.publish(name, b"%d" % number) for number in range(6)))


def test_a_queue_is_bounded_in_bytes(broker_with: Broker, name: str) -> None:
    """Large messages fill a queue before their number does."""
    target = broker_with("max_queued_bytes = 100000")
    sub = lasting(target, f"{name}s", V5)
    sub.subscribe((name, 1), (f"{name}end", 0))
    sub.close()
    pub = connected(target, f"{name}p")
    for number in range(10):
        pub.publish(name, b"%d" % number * 30_000, 1)
    sub = lasting(target, f"{name}s", V5)
    assert [payload[:1] for payload in payloads(sub, f"{name}end")] == [b"0", b"1", b"2"]


def test_all_queues_together_are_bounded(broker_with: Broker, name: str) -> None:
    """Two absent clients share the memory for queues; what does not fit is refused, and room comes back."""
    target = broker_with("max_queue_memory = 200000")
    for number in range(2):
        sub = lasting(target, f"{name}{number}", V5)
        sub.subscribe((f"{name}/{number}", 1), (f"{name}end{number}", 0))
        sub.close()
    pub = connected(target, f"{name}p")
    refused = 0
    for number in range(2):
        for pid in range(1, 5):
            pub.send(build.publish(f"{name}/{number}", b"x" * 40_000, 1, pid=pid))
            refused += pub.packet()[1][2:3] == b"\x97"
    counts = [len(payloads(lasting(target, f"{name}{number}", V5), f"{name}end{number}")) for number in range(2)]
    assert counts[0] == 4 and counts[1] == 4 - refused < 4
    for number in range(2):
        connected(target, f"{name}{number}", V5).close()
    sub = lasting(target, f"{name}2", V5)
    sub.subscribe((name, 1), (f"{name}end2", 0))
    sub.close()
    for _ in range(4):
        pub.publish(name, b"x" * 40_000, 1)
    assert len(payloads(lasting(target, f"{name}2", V5), f"{name}end2")) == 4


def test_messages_in_flight_are_bounded_by_us_too(broker_with: Broker, name: str) -> None:
    """A client with a large Receive Maximum, or none, is sent no more than our own maximum at a time."""
    target = broker_with("max_inflight = 2")
    for version in (V311, V5):
        sub = connected(target, f"{name}{version}", version)
        sub.subscribe(name, qos=1)
        pub = connected(target, f"{name}p", version)
        for number in range(3):
            pub.publish(name, b"%d" % number, 1)
        first = sub.publication()
        assert sub.publication().payload == b"1"
        sub.expect_nothing()
        assert first.pid is not None
        sub.send(build.puback(first.pid))
        assert sub.publication().payload == b"2"


def test_subscriptions_of_a_client_are_bounded(broker_with: Broker, name: str) -> None:
    """One too many is refused with 0x97 (3.1.1: 0x80); replacing one of those there are is not one more."""
    target = broker_with("max_subscriptions = 2")
    for version, refused in ((V5, 0x97), (V311, 0x80)):
        peer = connected(target, f"{name}{version}", version)
        peer.send(build.subscribe(f"{name}/a", f"{name}/b", f"{name}/c", version=version))
        first, body = peer.packet()
        assert (first, body[-3:]) == (build.SUBACK, bytes([0, 0, refused]))
        peer.subscribe((f"{name}/a", 1), pid=2)
        peer.send(build.unsubscribe(f"{name}/b", pid=3, version=version))
        peer.expect(build.unsuback(0, pid=3, version=version))
        peer.subscribe(f"{name}/c", pid=4)


@clause("MQTT-3.9.3-2")
@pytest.mark.parametrize(
    ("settings", "good", "bad"),
    [("max_topic_levels = 3", "a/b/c", "a/b/c/d"), ("max_topic_length = 20", "x" * 20, "x" * 21)],
    ids=["levels", "length"],
)
def test_topics_are_bounded_in_levels_and_length(
    broker_with: Broker, name: str, settings: str, good: str, bad: str
) -> None:
    """A filter beyond is refused with 0x8F (3.1.1: 0x80), a message with 0x90; 3.1.1 publishers are cut off."""
    target = broker_with(settings)
    peer = connected(target, name)
    peer.send(build.subscribe(good, bad))
    first, body = peer.packet()
    assert (first, body[-2:]) == (build.SUBACK, bytes([0, 0x8F]))
    peer.send(build.publish(good, b"x"))
    peer.expect(build.publish(good, b"x"))
    old = connected(target, f"{name}o", V311)
    old.send(build.subscribe(good, bad, version=V311))
    old.expect(build.suback(0, 0x80, version=V311))
    old.send(build.publish(bad, b"x", version=V311))
    old.expect_closed()
    peer.send(build.publish(bad, b"x", 1))
    first, body = peer.packet()
    if first == build.DISCONNECT:
        assert body[0] == 0x90
    else:
        assert (first, body[:3]) == (build.PUBACK, b"\x00\x01\x90")


def test_retained_messages_are_bounded(broker_with: Broker, name: str) -> None:
    """One too many is delivered but not kept; those that are kept can be replaced and cleared."""
    target = broker_with("max_retained = 2\nsys_interval = 0")
    peer = connected(target, f"{name}p")
    peer.subscribe(f"{name}/#")
    for topic in "abc":
        peer.send(build.publish(f"{name}/{topic}", b"1", retain=True))
        peer.expect(build.publish(f"{name}/{topic}", b"1"))
    peer.send(build.publish(f"{name}/a", b"2", retain=True))
    peer.expect(build.publish(f"{name}/a", b"2"))
    late = connected(target, f"{name}l")
    late.subscribe(f"{name}/#")
    kept = [build.publish(f"{name}/a", b"2", retain=True), build.publish(f"{name}/b", b"1", retain=True)]
    late.expect_unordered(*kept)
    late.expect_nothing()
    peer.send(build.publish(f"{name}/a", b"", retain=True), build.publish(f"{name}/c", b"3", retain=True))
    peer.expect(build.publish(f"{name}/a"), build.publish(f"{name}/c", b"3"))
    later = connected(target, f"{name}m")
    later.subscribe(f"{name}/#")
    later.expect_unordered(build.publish(f"{name}/b", b"1", retain=True), build.publish(f"{name}/c", b"3", retain=True))
