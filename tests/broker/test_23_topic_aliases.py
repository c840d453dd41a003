"""Topic aliases, from the client and to it (MQTT 5.0, 3.3.2.3.4)."""

from __future__ import annotations

import pytest

from . import build
from .marks import clause
from .peer import Peer, Target, connected


def granted(peer: Peer) -> int:
    """How many aliases the broker takes; the scenarios need at least one."""
    return build.number(peer.properties, "topic_alias_maximum", 0)


@clause("MQTT-3.3.2-12")
def test_an_alias_stands_for_the_topic_it_was_set_with(target: Target, name: str) -> None:
    """After a PUBLISH with topic and alias the alias alone is enough; the subscriber sees no alias."""
    sub = connected(target, f"{name}s")
    sub.subscribe(f"{name}/#")
    pub = connected(target, f"{name}p")
    pub.publish(f"{name}/a", b"1", topic_alias=1)
    pub.publish("", b"2", topic_alias=1)
    pub.publish("", b"3", 1, topic_alias=1)
    pub.publish("", b"4", 2, topic_alias=1)
    sub.expect(*(build.publish(f"{name}/a", payload) for payload in (b"1", b"2", b"3", b"4")))


@clause("MQTT-3.3.2-12")
def test_every_alias_up_to_the_maximum_is_taken(target: Target, name: str) -> None:
    """Aliases 1 to Topic Alias Maximum can all be in use at once."""
    peer = connected(target, name)
    last = granted(peer)
    assert last > 0, "the broker takes no topic aliases"
    chosen = sorted({1, 2, last // 2 or 1, last})
    peer.subscribe(f"{name}/#")
    for alias in chosen:
        peer.send(build.publish(f"{name}/{alias}", b"set", topic_alias=alias))
        peer.expect(build.publish(f"{name}/{alias}", b"set"))
    for alias in reversed(chosen):
        peer.send(build.publish("", b"use", topic_alias=alias))
        peer.expect(build.publish(f"{name}/{alias}", b"use"))


@clause("MQTT-3.3.2-12")
def test_an_alias_can_be_set_anew(target: Target, name: str) -> None:
    """A topic with an alias in use moves that alias to the new topic."""
    peer = connected(target, name)
    peer.subscribe(f"{name}/#")
    peer.send(
        build.publish(f"{name}/a", b"1", topic_alias=1),
        build.publish(f"{name}/b", b"2", topic_alias=1),
        build.publish("", b"3", topic_alias=1),
    )
    peer.expect(build.publish(f"{name}/a", b"1"), build.publish(f"{name}/b", b"2"), build.publish(f"{name}/b", b"3"))


@clause("MQTT-3.3.2-12")
def test_one_topic_may_have_two_aliases(target: Target, name: str) -> None:
    """Several aliases may stand for the same topic."""
    peer = connected(target, name)
    assert granted(peer) >= 2
    peer.subscribe(name)
    peer.send(build.publish(name, b"1", topic_alias=1), build.publish(name, b"2", topic_alias=2))
    peer.send(build.publish("", b"3", topic_alias=1), build.publish("", b"4", topic_alias=2))
    peer.expect(*(build.publish(name, payload) for payload in (b"1", b"2", b"3", b"4")))


@clause("MQTT-3.3.2-8")
def test_alias_0_ends_the_connection(target: Target, name: str) -> None:
    """0 is not an alias, with a topic name or without."""
    for topic in (name, ""):
        peer = connected(target, name)
        peer.send(build.publish(topic, b"x", topic_alias=0))
        peer.expect_closed({0x82, 0x94})


@clause("MQTT-3.3.2-9")
def test_an_alias_above_the_maximum_ends_the_connection(target: Target, name: str) -> None:
    """A client may use no more aliases than CONNACK granted."""
    for above in (1, None):
        peer = connected(target, name)
        alias = 65_535 if above is None else granted(peer) + above
        peer.send(build.publish(name, b"x", topic_alias=alias))
        peer.expect_closed(0x94)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_alias_that_was_never_set_ends_the_connection(target: Target, name: str, qos: int) -> None:
    """An alias without topic name must have been set before on this connection."""
    peer = connected(target, name)
    peer.send(build.publish("", b"x", qos, topic_alias=1))
    peer.expect_closed({0x82, 0x94})


@clause("MQTT-3.3.2-7")
def test_aliases_end_with_the_connection(target: Target, name: str) -> None:
    """A resumed session does not bring its client's aliases back."""
    peer = connected(target, name, session_expiry=60)
    peer.publish(name, b"x", topic_alias=1)
    peer.close()
    peer = connected(target, name, clean=False, session_expiry=60)
    assert peer.session_present
    peer.send(build.publish("", b"x", topic_alias=1))
    peer.expect_closed({0x82, 0x94})


@clause("MQTT-3.3.2-7")
def test_aliases_are_each_connections_own(target: Target, name: str) -> None:
    """The same alias stands for different topics on two connections."""
    sub = connected(target, f"{name}s")
    sub.subscribe(f"{name}/#")
    one, two = connected(target, f"{name}1"), connected(target, f"{name}2")
    one.publish(f"{name}/one", b"", topic_alias=1)
    two.publish(f"{name}/two", b"", topic_alias=1)
    one.publish("", b"x", topic_alias=1)
    sub.expect(build.publish(f"{name}/one"), build.publish(f"{name}/two"), build.publish(f"{name}/one", b"x"))


@clause("MQTT-3.3.2-11")
def test_without_a_grant_no_alias_is_sent(target: Target, name: str) -> None:
    """A client that states no Topic Alias Maximum, or 0, gets every topic in full."""
    for number, grant in enumerate(({}, {"topic_alias_maximum": 0})):
        sub = connected(target, f"{name}{number}", **grant)
        sub.subscribe(name)
        pub = connected(target, f"{name}p")
        for _ in range(3):
            pub.publish(name, b"x")
        sub.expect(*[build.publish(name, b"x")] * 3)


def resolve(sub: Peer, count: int, maximum: int) -> tuple[list[tuple[str, bytes]], int]:
    """The next messages with their aliases resolved as a client does, and how many came by alias alone."""
    known: dict[int, str] = {}
    messages, bare = [], 0
    for _ in range(count):
        got = sub.publication()
        topic = got.topic
        if "topic_alias" in got.properties:
            alias = build.number(got.properties, "topic_alias")
            assert 1 <= alias <= maximum, f"alias {alias}, granted {maximum}"
            if topic:
                known[alias] = topic
            else:
                bare += 1
                topic = known[alias]
        assert topic, "neither topic nor alias"
        messages.append((topic, got.payload))
    return messages, bare


@clause("MQTT-3.3.2-11")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_aliases_to_the_client_stay_within_its_grant(target: Target, name: str, qos: int) -> None:
    """More topics than aliases granted: each message still says its topic, by name or by an alias set before."""
    sub = connected(target, f"{name}s", topic_alias_maximum=2)
    sub.subscribe(f"{name}/#", qos=qos)
    pub = connected(target, f"{name}p")
    sent = []
    for turn in range(3):
        for level in ("a", "b", "c"):
            payload = f"{level}{turn}".encode()
            pub.publish(f"{name}/{level}", payload, qos)
            sent.append((f"{name}/{level}", payload))
    messages, bare = resolve(sub, len(sent), 2)
    assert messages == sent
    if target.ours:
        assert bare > 0, "our broker is to use the aliases that the client granted"


@clause("MQTT-3.3.2-11")
def test_redelivery_does_not_rely_on_aliases_of_the_connection_before(target: Target, name: str) -> None:
    """Messages that went out by alias say their topic again when they are sent again on a new connection."""
    sub = connected(target, f"{name}s", clean=True, session_expiry=60, topic_alias_maximum=5)
    sub.subscribe(name, qos=1)
    pub = connected(target, f"{name}p")
    for payload in (b"1", b"2"):
        pub.publish(name, payload, 1)
    resolve(sub, 2, 5)
    sub.drop()
    sub = connected(target, f"{name}s", clean=False, session_expiry=60, topic_alias_maximum=5)
    assert resolve(sub, 2, 5)[0] == [(name, b"1"), (name, b"2")]
    sub.drop()
    sub = connected(target, f"{name}s", clean=False)
    assert resolve(sub, 2, 0)[0] == [(name, b"1"), (name, b"2")]
