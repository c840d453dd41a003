"""Retained messages: kept, replaced, cleared, and to whom they go when (MQTT 5.0, 3.3.1.3 and 3.8.3.1)."""

from __future__ import annotations

from typing import Any

import pytest

from . import build
from .marks import V311, both_versions, clause, clause311
from .peer import Target, connected


@clause("MQTT-3.3.1-5", "MQTT-3.3.1-9")
@clause311("MQTT-3.3.1-5", "MQTT-3.3.1-6", "MQTT-3.3.1-8")
@both_versions
def test_a_retained_message_waits_for_later_subscribers(target: Target, name: str, version: int) -> None:
    """A new subscription gets the topic's retained message with RETAIN 1."""
    connected(target, f"{name}p", version).publish(name, b"kept", retain=True)
    sub = connected(target, f"{name}s", version)
    sub.subscribe(name)
    sub.expect(build.publish(name, b"kept", retain=True, version=version))


@clause("MQTT-3.3.1-5")
@clause311("MQTT-3.3.1-5", "MQTT-3.3.1-7")
@both_versions
def test_the_last_retained_message_replaces_the_one_before(target: Target, name: str, version: int) -> None:
    """Only the newest retained message is kept, whatever its QoS and that of the one before."""
    pub = connected(target, f"{name}p", version)
    for qos, payload in ((2, b"first"), (1, b"second"), (0, b"third")):
        pub.publish(name, payload, qos, retain=True)
    sub = connected(target, f"{name}s", version)
    sub.subscribe(name, qos=2)
    sub.expect(build.publish(name, b"third", retain=True, version=version))
    sub.expect_nothing()


@clause("MQTT-3.3.1-5", "MQTT-3.8.4-8")
@clause311("MQTT-3.3.1-5")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_retained_message_keeps_its_qos(target: Target, name: str, qos: int, granted: int) -> None:
    """It is delivered with the smaller of its own QoS and the one granted."""
    connected(target, f"{name}p").publish(name, b"kept", qos, retain=True)
    sub = connected(target, f"{name}s")
    sub.subscribe(name, qos=granted)
    got = sub.publication()
    assert (got.payload, got.qos, got.retain) == (b"kept", min(qos, granted), True)


@clause("MQTT-3.3.1-6", "MQTT-3.3.1-7")
@clause311("MQTT-3.3.1-10", "MQTT-3.3.1-11")
@both_versions
def test_an_empty_retained_message_clears_the_topic(target: Target, name: str, version: int) -> None:
    """Subscribers of the moment get the empty message; later ones get nothing at all."""
    pub = connected(target, f"{name}p", version)
    pub.publish(name, b"kept", retain=True)
    early = connected(target, f"{name}e", version)
    early.subscribe(name)
    early.expect(build.publish(name, b"kept", retain=True, version=version))
    pub.publish(name, b"", retain=True)
    early.expect(build.publish(name, b"", version=version))
    late = connected(target, f"{name}l", version)
    late.subscribe(name)
    late.expect_nothing()


@clause("MQTT-3.3.1-8")
@clause311("MQTT-3.3.1-12")
@both_versions
def test_a_message_without_retain_leaves_the_retained_one(target: Target, name: str, version: int) -> None:
    """RETAIN 0 neither stores nor replaces nor removes, with a payload or without."""
    pub = connected(target, f"{name}p", version)
    pub.publish(name, b"kept", retain=True)
    pub.publish(name, b"passing")
    pub.publish(name, b"")
    pub.publish(f"{name}/other", b"passing")
    sub = connected(target, f"{name}s", version)
    sub.subscribe(name, f"{name}/other")
    sub.expect(build.publish(name, b"kept", retain=True, version=version))
    sub.expect_nothing()


@clause("MQTT-3.3.1-12")
@clause311("MQTT-3.3.1-9")
@both_versions
def test_existing_subscribers_get_retain_0(target: Target, name: str, version: int) -> None:
    """A retained message that is just being published goes out with RETAIN 0."""
    sub = connected(target, f"{name}s", version)
    sub.subscribe(name)
    connected(target, f"{name}p", version).publish(name, b"now", retain=True)
    sub.expect(build.publish(name, b"now", version=version))


@clause("MQTT-3.3.1-13", "MQTT-3.3.1-12")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_retain_as_published_keeps_the_flag(target: Target, name: str, qos: int) -> None:
    """With Retain As Published the flag is the publisher's, without it is 0; one topic, both kinds of subscriber."""
    keeps, clears = connected(target, f"{name}k"), connected(target, f"{name}c")
    keeps.subscribe((name, build.options(qos, retain_as_published=True)))
    clears.subscribe((name, build.options(qos)))
    pub = connected(target, f"{name}p")
    pub.publish(name, b"yes", qos, retain=True)
    pub.publish(name, b"no", qos)
    for sub, flag in ((keeps, True), (clears, False)):
        first, second = sub.publication(), sub.publication()
        assert (first.payload, first.qos, first.retain) == (b"yes", qos, flag)
        assert (second.payload, second.qos, second.retain) == (b"no", qos, False)


@clause("MQTT-3.3.1-9")
def test_retain_as_published_0_does_not_concern_new_subscriptions(target: Target, name: str) -> None:
    """What is sent because of the subscription has RETAIN 1 whether Retain As Published is set or not."""
    connected(target, f"{name}p").publish(name, b"kept", retain=True)
    for keep in (False, True):
        sub = connected(target, f"{name}{keep:d}")
        sub.subscribe((name, build.options(retain_as_published=keep)))
        sub.expect(build.publish(name, b"kept", retain=True))


@clause("MQTT-3.3.1-9", "MQTT-3.8.4-4")
@clause311("MQTT-3.8.4-3")
@both_versions
def test_subscribing_again_sends_retained_messages_again(target: Target, name: str, version: int) -> None:
    """Retain Handling 0, which is all that 3.1.1 has, sends them for every SUBSCRIBE."""
    peer = connected(target, name, version)
    peer.publish(name, b"kept", retain=True)
    for pid in (1, 2):
        peer.subscribe(name, pid=pid)
        peer.expect(build.publish(name, b"kept", retain=True, version=version))


@clause("MQTT-3.3.1-10")
def test_retain_handling_1_sends_them_to_new_subscriptions_only(target: Target, name: str) -> None:
    """A filter the session already had gets none; once unsubscribed it is new again."""
    peer = connected(target, name)
    peer.publish(name, b"kept", retain=True)
    only_new = build.options(retain_handling=1)
    peer.subscribe((name, only_new))
    peer.expect(build.publish(name, b"kept", retain=True))
    peer.subscribe((name, only_new | 1), pid=2)
    peer.expect_nothing()
    peer.send(build.unsubscribe(name, pid=3))
    peer.expect(build.unsuback(0, pid=3))
    peer.subscribe((name, only_new), pid=4)
    peer.expect(build.publish(name, b"kept", retain=True))


@clause("MQTT-3.3.1-11")
def test_retain_handling_2_sends_none(target: Target, name: str) -> None:
    """Neither the first nor a later subscription gets retained messages, but new ones are delivered."""
    peer = connected(target, name)
    peer.publish(name, b"kept", retain=True)
    for pid in (1, 2):
        peer.subscribe((name, build.options(retain_handling=2)), pid=pid)
        peer.expect_nothing()
    peer.send(build.publish(name, b"new", retain=True))
    peer.expect(build.publish(name, b"new"))


@clause("MQTT-3.3.1-9")
@clause311("MQTT-3.3.1-6")
@both_versions
def test_a_wildcard_gets_every_matching_retained_message(target: Target, name: str, version: int) -> None:
    """All retained messages below a wildcard are sent, and no others."""
    pub = connected(target, f"{name}p", version)
    topics = [name, f"{name}/a", f"{name}/a/b", f"{name}/", f"{name}//x", f"{name}x"]
    for topic in topics:
        pub.publish(topic, topic.encode(), retain=True)
    expected = {
        f"{name}/#": topics[:5],
        f"{name}/+": [f"{name}/a", f"{name}/"],
        f"{name}/+/b": [f"{name}/a/b"],
        f"{name}//+": [f"{name}//x"],
        f"{name}/+/+": [f"{name}/a/b", f"{name}//x"],
        f"+/{name}": [],
    }
    for number, (filter, matching) in enumerate(expected.items()):
        sub = connected(target, f"{name}{number}", version)
        sub.subscribe(filter)
        kept = [build.publish(topic, topic.encode(), retain=True, version=version) for topic in matching]
        sub.expect_unordered(*kept)
        sub.expect_nothing()


@clause("MQTT-3.3.1-9", "MQTT-3.8.4-5")
def test_each_filter_of_a_subscribe_gets_its_retained_messages(target: Target, name: str) -> None:
    """A SUBSCRIBE with several filters counts as several: each gets retained messages by its own options."""
    peer = connected(target, name)
    for topic in ("a", "b", "c"):
        peer.publish(f"{name}/{topic}", topic.encode(), 1, retain=True)
    none = build.options(1, retain_handling=2)
    peer.subscribe((f"{name}/a", 0), (f"{name}/b", none), (f"{name}/c", 1))
    got = {(p.topic, p.qos) for p in (peer.publication(), peer.publication())}
    assert got == {(f"{name}/a", 0), (f"{name}/c", 1)}
    peer.expect_nothing()


@clause("MQTT-3.3.2-17", "MQTT-3.3.2-20")
def test_a_retained_message_keeps_its_properties(target: Target, name: str) -> None:
    """Later subscribers get the properties too; an alias is not one of them, as it belongs to the connection."""
    properties: dict[str, list[Any]] = {
        "payload_format": [1],
        "content_type": ["text/plain"],
        "response_topic": [f"{name}/answer"],
        "correlation_data": [b"\x00\xff"],
        "user_property": [("k", "1"), ("k", "2")],
    }
    named: dict[str, Any] = {key: values if key == "user_property" else values[0] for key, values in properties.items()}
    connected(target, f"{name}p").publish(name, b"kept", retain=True, topic_alias=1, **named)
    sub = connected(target, f"{name}s")
    sub.subscribe(name)
    assert sub.publication().properties == properties


@clause("MQTT-3.3.1-5")
def test_retained_messages_cross_versions(target: Target, name: str) -> None:
    """What a 5.0 client retained a 3.1.1 client gets without properties, and the other way round."""
    connected(target, f"{name}a").publish(f"{name}/5", b"new", retain=True, user_property=("k", "v"))
    connected(target, f"{name}b", V311).publish(f"{name}/4", b"old", retain=True)
    old = connected(target, f"{name}c", V311)
    old.subscribe(f"{name}/5")
    old.expect(build.publish(f"{name}/5", b"new", retain=True, version=V311))
    new = connected(target, f"{name}d")
    new.subscribe(f"{name}/4")
    new.expect(build.publish(f"{name}/4", b"old", retain=True))


@clause("MQTT-3.3.1-5")
@clause311("MQTT-3.3.1-5")
@both_versions
def test_a_retained_message_outlives_its_publisher(target: Target, name: str, version: int) -> None:
    """Retained messages are not part of a session: they stay when the publisher's session has ended."""
    pub = connected(target, f"{name}p", version)
    pub.publish(name, b"kept", 1, retain=True)
    pub.close()
    connected(target, f"{name}p", version).close()
    sub = connected(target, f"{name}s", version)
    sub.subscribe(name)
    sub.expect(build.publish(name, b"kept", retain=True, version=version))
