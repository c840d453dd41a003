"""Subscription identifiers and overlapping subscriptions (MQTT 5.0, 3.3.4 and 3.8.2.1.2)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import pytest

from . import build
from .marks import both_versions, clause, clause311, deviates
from .peer import Peer, Publication, Target, connected


def copies(sub: Peer, end: str) -> list[Publication]:
    """All PUBLISH packets before one of the topic `end`, which `sub` is subscribed to and publishes itself."""
    sub.send(build.publish(end, version=sub.version))
    return list(itertools.takewhile(lambda got: got.topic != end, iter(sub.publication, None)))


@clause("MQTT-3.3.4-3", "MQTT-3.3.4-4")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("identifier", [1, 127, 128, 16_384, 268_435_455])
def test_the_identifier_comes_back_with_each_message(target: Target, name: str, identifier: int, qos: int) -> None:
    """A message carries the identifier of the subscription that it matched, small or as large as can be."""
    sub = connected(target, f"{name}s")
    sub.subscribe(f"{name}/+", qos=qos, subscription_identifier=identifier)
    connected(target, f"{name}p").publish(f"{name}/a", b"x", qos)
    got = sub.publication()
    assert (got.payload, got.qos, got.properties) == (b"x", qos, {"subscription_identifier": [identifier]})


@clause("MQTT-3.3.4-3")
def test_each_subscriber_gets_its_own_identifier(target: Target, name: str) -> None:
    """One publication to three clients: with identifier 1, with 2, and without."""
    one, two, none = (connected(target, f"{name}{each}") for each in range(3))
    one.subscribe(name, subscription_identifier=1)
    two.subscribe(name, subscription_identifier=2)
    none.subscribe(name)
    connected(target, f"{name}p").publish(name, b"x")
    one.expect(build.publish(name, b"x", subscription_identifier=1))
    two.expect(build.publish(name, b"x", subscription_identifier=2))
    none.expect(build.publish(name, b"x"))


@clause("MQTT-3.3.4-3")
def test_an_identifier_is_for_all_filters_of_its_subscribe(target: Target, name: str) -> None:
    """Each filter of the packet has it, and a later SUBSCRIBE has its own."""
    peer = connected(target, name)
    peer.subscribe(f"{name}/a", f"{name}/b", subscription_identifier=7)
    peer.subscribe(f"{name}/c", pid=2, subscription_identifier=8)
    for topic, identifier in (("a", 7), ("b", 7), ("c", 8)):
        peer.send(build.publish(f"{name}/{topic}"))
        peer.expect(build.publish(f"{name}/{topic}", subscription_identifier=identifier))


@clause("MQTT-3.8.4-3", "MQTT-3.3.4-3")
def test_subscribing_again_replaces_the_identifier(target: Target, name: str) -> None:
    """The new subscription's identifier counts, also when it has none."""
    peer = connected(target, name)
    for block in (build.props(subscription_identifier=5), build.props(subscription_identifier=6), build.props()):
        peer.subscribe(name, properties=block)
        peer.send(build.publish(name, b"x"))
        peer.expect(build.publish(name, b"x", properties=block))


@clause("MQTT-3.3.4-2", "MQTT-3.3.4-3", "MQTT-3.3.4-4", "MQTT-3.3.4-5")
def test_overlapping_subscriptions_name_all_identifiers(target: Target, name: str) -> None:
    """Either one copy with every identifier and the highest QoS, or a copy for each with its own; ours sends one."""
    peer = connected(target, f"{name}s")
    peer.subscribe(f"{name}/#", qos=0, pid=1, subscription_identifier=1)
    peer.subscribe(f"{name}/+", qos=2, pid=2, subscription_identifier=2)
    peer.subscribe(f"{name}/a", qos=1, pid=3)
    peer.subscribe(f"{name}end", pid=4)
    connected(target, f"{name}p").publish(f"{name}/a", b"x", 2)
    got = copies(peer, f"{name}end")
    if len(got) == 1 or target.ours:
        assert len(got) == 1
        assert got[0].qos == 2
        assert Counter(got[0].properties["subscription_identifier"]) == Counter([1, 2])
    else:
        assert max(each.qos for each in got) == 2
        named = Counter(str(each.properties.get("subscription_identifier", [])) for each in got)
        assert named == Counter(["[1]", "[2]", "[]"])


@clause("MQTT-3.3.4-4", "MQTT-3.3.4-5")
def test_equal_identifiers_of_overlapping_subscriptions_are_all_sent(target: Target, name: str) -> None:
    """Two subscriptions may have the same identifier: it comes once per subscription."""
    peer = connected(target, f"{name}s")
    peer.subscribe(f"{name}/#", f"{name}/+", subscription_identifier=9)
    peer.subscribe(f"{name}end", pid=2)
    connected(target, f"{name}p").publish(f"{name}/a", b"x")
    got = copies(peer, f"{name}end")
    assert [identifier for each in got for identifier in each.properties["subscription_identifier"]] == [9, 9]
    assert len(got) == 1 or not target.ours


@clause("MQTT-3.3.4-2")
@clause311("MQTT-3.3.5-1")
@deviates("mosquitto 2.0: to 3.1.1 clients, delivers with the QoS of one of the subscriptions, not the highest")
@both_versions
@pytest.mark.parametrize("granted", list(itertools.permutations(range(3))), ids=lambda each: "".join(map(str, each)))
def test_overlapping_subscriptions_deliver_with_the_highest_qos(
    target: Target, name: str, version: int, granted: tuple[int, int, int]
) -> None:
    """Of the copies, or the one copy, that a client gets, one has the highest QoS of all matching subscriptions."""
    peer = connected(target, f"{name}s", version)
    peer.subscribe(*zip((f"{name}/#", f"{name}/+", f"{name}/a"), granted, strict=True), (f"{name}end", 0))
    connected(target, f"{name}p", version).publish(f"{name}/a", b"x", 2)
    got = copies(peer, f"{name}end")
    assert max(each.qos for each in got) == 2
    assert len(got) == 1 or (len(got) <= 3 and not target.ours)


@clause("MQTT-3.3.4-5")
def test_separate_copies_have_each_its_identifier_and_qos(broker_with: Callable[[str], Target], name: str) -> None:
    """Configured so, the broker sends a copy for each matching subscription."""
    target = broker_with('overlapping = "separate"')
    peer = connected(target, f"{name}s")
    peer.subscribe(f"{name}/#", qos=0, pid=1, subscription_identifier=1)
    peer.subscribe(f"{name}/+", qos=2, pid=2, subscription_identifier=2)
    peer.subscribe(f"{name}/a", qos=1, pid=3)
    peer.subscribe(f"{name}end", pid=4)
    pub = connected(target, f"{name}p")
    pub.publish(f"{name}/a", b"x", 2)
    got = {(each.qos, str(each.properties.get("subscription_identifier"))) for each in copies(peer, f"{name}end")}
    assert got == {(0, "[1]"), (2, "[2]"), (1, "None")}
    pub.publish(f"{name}/b/c", b"y")
    peer.expect(build.publish(f"{name}/b/c", b"y", subscription_identifier=1))
    peer.expect_nothing()


@clause("MQTT-3.3.4-3")
def test_retained_messages_carry_the_identifier(target: Target, name: str) -> None:
    """What is sent because of a SUBSCRIBE has that SUBSCRIBE's identifier."""
    peer = connected(target, name)
    peer.publish(name, b"kept", retain=True)
    peer.subscribe(name, subscription_identifier=3)
    peer.expect(build.publish(name, b"kept", retain=True, subscription_identifier=3))


@clause("MQTT-3.3.4-3")
def test_identifiers_survive_the_queue_and_redelivery(target: Target, name: str) -> None:
    """They are part of the session: queued messages have them, and so has what is sent again."""
    sub = connected(target, f"{name}s", session_expiry=60)
    sub.subscribe(name, qos=1, subscription_identifier=300)
    sub.close()
    connected(target, f"{name}p").publish(name, b"x", 1)
    for again in (False, True):
        sub = connected(target, f"{name}s", clean=False, session_expiry=60)
        got = sub.publication()
        assert (got.payload, got.dup, got.properties) == (b"x", again, {"subscription_identifier": [300]})
        sub.drop()


@clause("MQTT-3.3.4-6")
@deviates("mosquitto 2.0: takes a PUBLISH with a subscription identifier")
@pytest.mark.parametrize("qos", [0, 1])
def test_a_client_that_publishes_an_identifier_is_cut_off(target: Target, name: str, qos: int) -> None:
    """Subscription identifiers are for PUBLISH packets to clients only."""
    peer = connected(target, name)
    peer.send(build.publish(name, b"x", qos, subscription_identifier=1))
    peer.expect_closed(0x82)


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (build.props(subscription_identifier=0), 0x82),
        (build.props(subscription_identifier=[1, 2]), 0x82),
        (b"\x06\x0b\x80\x80\x80\x80\x01", 0x81),
    ],
    ids=["zero", "two", "large"],
)
def test_wrong_identifiers_end_the_connection(target: Target, name: str, block: bytes, reason: int) -> None:
    """A SUBSCRIBE has at most one identifier, from 1 to 268,435,455."""
    peer = connected(target, name)
    peer.send(build.subscribe(name, properties=block))
    peer.expect_closed(reason)
