"""SUBSCRIBE and SUBACK (MQTT 5.0, 3.8 and 3.9)."""

from __future__ import annotations

import pytest

from . import build
from .marks import V5, V311, both_versions, clause, clause311, deviates
from .peer import Peer, Target, connected


def expect_filter_refused(peer: Peer, target: Target) -> None:
    """A filter that is not correctly formed ends the connection; 0x8F is for those that are."""
    peer.expect_closed(0x82 if target.ours else {0x81, 0x82, 0x8F})


@clause("MQTT-3.8.4-1", "MQTT-3.8.4-2", "MQTT-3.8.4-7", "MQTT-3.9.3-2")
@clause311("MQTT-3.8.4-1", "MQTT-3.8.4-2", "MQTT-3.8.4-5")
@both_versions
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_subscribe_is_answered_with_its_identifier_and_the_granted_qos(
    target: Target, name: str, version: int, qos: int
) -> None:
    """SUBACK has the packet identifier of the SUBSCRIBE and grants the QoS asked for."""
    peer = connected(target, name, version)
    for pid in (1, 0x1234, 0xFFFF):
        peer.send(build.subscribe(name, qos=qos, pid=pid, version=version))
        peer.expect(build.suback(qos, pid=pid, version=version))


@clause("MQTT-3.8.4-5", "MQTT-3.8.4-6", "MQTT-3.9.3-1")
@clause311("MQTT-3.8.4-4", "MQTT-3.8.4-5", "MQTT-3.9.3-1")
@both_versions
def test_many_filters_are_answered_in_their_order(target: Target, name: str, version: int) -> None:
    """One reason for each filter, in the order of the filters, and all of them are subscribed."""
    peer = connected(target, name, version)
    asked = [(f"{name}/{number}", number % 3) for number in range(200)]
    peer.subscribe(*asked)
    pub = connected(target, f"{name}p", version)
    for filter, qos in (asked[0], asked[100], asked[199]):
        pub.publish(filter, b"x", 2)
        got = peer.publication()
        assert (got.topic, got.qos) == (filter, qos)


@clause("MQTT-3.8.4-6", "MQTT-3.9.3-1", "MQTT-3.9.3-2")
@clause311("MQTT-3.9.3-2")
@deviates("mosquitto 2.0: ends the connection when one of the filters has too many levels")
@both_versions
def test_a_refused_filter_does_not_concern_the_others(target: Target, name: str, version: int) -> None:
    """In the middle of others, a filter that is correctly formed but has too many levels gets its own reason."""
    refused = 0x8F if version == V5 else 0x80
    peer = connected(target, name, version)
    peer.send(build.subscribe((f"{name}/a", 1), (name + "/x" * 1000, 0), (f"{name}/b", 2), version=version))
    first, body = peer.packet()
    assert (first, body[:2], body[-3:]) == (build.SUBACK, build.two(1), bytes([1, refused, 2]))
    for topic in ("a", "b"):
        peer.send(build.publish(f"{name}/{topic}", b"x", version=version))
        peer.expect(build.publish(f"{name}/{topic}", b"x", version=version))


@clause("MQTT-4.7.1-1", "MQTT-4.7.1-2", "MQTT-4.13.1-1")
@clause311("MQTT-4.7.1-2", "MQTT-4.7.1-3", "MQTT-4.8.0-1")
@both_versions
@pytest.mark.parametrize(
    "filter", ["a/#/b", "a#", "#a", "##", "#/", "#/x", "a/b#", "a+", "+a", "a+/b", "a/+b/c", "a/b+", "++", "a/#+"]
)
def test_misplaced_wildcards_end_the_connection(target: Target, name: str, version: int, filter: str) -> None:
    """`#` is the last level and both wildcards fill theirs, whoever stands beside them."""
    for packet in (build.subscribe, build.unsubscribe):
        peer = connected(target, name, version)
        peer.send(packet(f"{name}/a", filter, version=version))
        expect_filter_refused(peer, target)


@clause("MQTT-4.7.3-1")
@clause311("MQTT-4.7.3-1")
@both_versions
def test_an_empty_filter_ends_the_connection(target: Target, name: str, version: int) -> None:
    """A topic filter has at least one character."""
    peer = connected(target, name, version)
    peer.send(build.subscribe("", version=version))
    peer.expect_closed({0x81, 0x82, 0x8F})


@clause("MQTT-3.8.3-1", "MQTT-4.7.3-2")
@clause311("MQTT-3.8.3-1", "MQTT-4.7.3-2")
@both_versions
@pytest.mark.parametrize("raw", [b"\xff", b"\xed\xa0\x80", b"a\x00"], ids=["byte", "surrogate", "null"])
def test_a_filter_that_is_not_utf8_ends_the_connection(target: Target, name: str, version: int, raw: bytes) -> None:
    """A topic filter is a UTF-8 encoded string without U+0000."""
    peer = connected(target, name, version)
    peer.send(build.subscribe(raw, version=version))
    peer.expect_closed(0x81)


@clause("MQTT-3.8.1-1")
@clause311("MQTT-3.8.1-1")
@both_versions
@pytest.mark.parametrize("flags", [0x0, 0x1, 0x3, 0x6, 0xA])
def test_subscribe_with_wrong_flags_ends_the_connection(target: Target, name: str, version: int, flags: int) -> None:
    """The lower four bits of SUBSCRIBE are 0010 and nothing else."""
    peer = connected(target, name, version)
    peer.send(bytes([0x80 | flags]) + build.subscribe(name, version=version)[1:])
    peer.expect_closed(0x81)


@clause("MQTT-3.8.3-2")
@clause311("MQTT-3.8.3-3")
@both_versions
def test_subscribe_without_filters_ends_the_connection(target: Target, name: str, version: int) -> None:
    """There is at least one filter in a SUBSCRIBE."""
    peer = connected(target, name, version)
    peer.send(build.subscribe(version=version))
    peer.expect_closed(0x82)


@clause("MQTT-3.8.3-5")
@pytest.mark.parametrize("byte", [0x40, 0x80, 0xC1])
def test_reserved_option_bits_end_the_connection(target: Target, name: str, byte: int) -> None:
    """The two upper bits of the subscription options are 0."""
    peer = connected(target, name)
    peer.send(build.subscribe((name, byte)))
    peer.expect_closed(0x81)


@clause311("MQTT-3-8.3-4")
@pytest.mark.parametrize("byte", [0x03, 0x04, 0x08, 0x10, 0x80])
def test_in_311_the_requested_qos_is_0_1_or_2(target: Target, name: str, byte: int) -> None:
    """The upper six bits are reserved in 3.1.1, and QoS 3 does not exist."""
    peer = connected(target, name, V311)
    peer.send(build.subscribe((name, byte), version=V311))
    peer.expect_closed()


@pytest.mark.parametrize("byte", [0x03, 0x30], ids=["qos", "retain_handling"])
def test_options_without_meaning_end_the_connection(target: Target, name: str, byte: int) -> None:
    """QoS 3 and Retain Handling 3 are protocol errors."""
    peer = connected(target, name)
    peer.send(build.subscribe((name, byte)))
    peer.expect_closed(0x82)


@both_versions
def test_a_filter_without_options_ends_the_connection(target: Target, name: str, version: int) -> None:
    """Each filter is followed by its options byte."""
    peer = connected(target, name, version)
    peer.send(build.packet(build.SUBSCRIBE, build.subscribe(name, version=version)[2:-1]))
    peer.expect_closed(0x81)


@clause("MQTT-3.8.4-3")
@clause311("MQTT-3.8.4-3")
@both_versions
def test_the_same_filter_replaces_the_subscription(target: Target, name: str, version: int) -> None:
    """Subscribing again changes the QoS; there is one subscription, not two."""
    peer = connected(target, f"{name}s", version)
    pub = connected(target, f"{name}p", version)
    for pid, qos in enumerate((1, 0, 2), 1):
        peer.subscribe(f"{name}/+", qos=qos, pid=pid)
        pub.publish(f"{name}/a", b"x", 2)
        got = peer.publication()
        assert (got.payload, got.qos) == (b"x", qos)
        peer.expect_nothing()
    peer.send(build.unsubscribe(f"{name}/+", pid=9, version=version))
    peer.expect(build.unsuback(0, pid=9, version=version))
    pub.publish(f"{name}/a", b"x")
    peer.expect_nothing()


@clause("MQTT-3.8.4-3", "MQTT-3.8.4-5")
@clause311("MQTT-3.8.4-3", "MQTT-3.8.4-4")
@both_versions
def test_of_the_same_filter_twice_in_one_packet_the_last_counts(target: Target, name: str, version: int) -> None:
    """Several filters in a SUBSCRIBE are as several SUBSCRIBE packets."""
    peer = connected(target, f"{name}s", version)
    peer.subscribe((name, 2), (name, 0))
    connected(target, f"{name}p", version).publish(name, b"x", 2)
    peer.expect(build.publish(name, b"x", version=version))
    peer.expect_nothing()


@clause("MQTT-3.8.4-4")
@clause311("MQTT-3.8.4-3")
@both_versions
def test_replacing_a_subscription_loses_and_doubles_nothing(target: Target, name: str, version: int) -> None:
    """Messages before, between and after SUBSCRIBE packets in one stream arrive once each."""
    peer = connected(target, name, version)
    peer.subscribe(name)
    stream = b""
    for number in range(20):
        stream += build.publish(name, b"%d" % number, version=version)
        stream += build.subscribe(name, pid=number + 1, version=version)
    peer.send(stream, build.PINGREQ)
    received = []
    while (packet := peer.packet())[0] != build.PINGRESP[0]:
        if packet[0] == build.PUBLISH:
            received.append(build.packet(*packet))
        else:
            assert packet[0] == build.SUBACK
    assert received == [build.publish(name, b"%d" % number, version=version) for number in range(20)]


@clause("MQTT-3.8.4-8")
@clause311("MQTT-3.8.4-6")
@both_versions
@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("published", [0, 1, 2])
def test_a_message_is_delivered_with_the_smaller_qos(
    target: Target, name: str, version: int, published: int, granted: int
) -> None:
    """The QoS of a delivery is the smaller of the message's and the subscription's."""
    sub = connected(target, f"{name}s", version)
    sub.subscribe(name, qos=granted)
    connected(target, f"{name}p", version).publish(name, b"x", published)
    got = sub.publication()
    assert (got.payload, got.qos, got.dup, got.retain) == (b"x", min(published, granted), False, False)
    assert (got.pid is None) == (got.qos == 0)


@clause("MQTT-3.8.3-3")
def test_no_local_keeps_a_clients_own_messages_from_it(target: Target, name: str) -> None:
    """With No Local a client does not get what it published itself, at any QoS; others do, and it gets theirs."""
    peer, other = connected(target, f"{name}a"), connected(target, f"{name}b")
    peer.subscribe((f"{name}/+", build.options(2, no_local=True)))
    other.subscribe(f"{name}/+")
    for qos in (0, 1, 2):
        peer.publish(f"{name}/x", b"mine", qos)
        other.expect(build.publish(f"{name}/x", b"mine"))
    peer.expect_nothing()
    other.send(build.publish(f"{name}/x", b"others"))
    peer.expect(build.publish(f"{name}/x", b"others"))


@clause("MQTT-3.8.3-3")
def test_no_local_is_each_subscriptions_own(target: Target, name: str) -> None:
    """Another subscription of the same client without No Local still brings its own messages, once."""
    peer = connected(target, name)
    peer.subscribe((f"{name}/+", build.options(no_local=True)), (f"{name}/x", build.options()))
    peer.send(build.publish(f"{name}/x", b"mine"), build.publish(f"{name}/y", b"mine"))
    peer.expect(build.publish(f"{name}/x", b"mine"))
    peer.expect_nothing()


@clause("MQTT-3.8.3-3", "MQTT-3.8.4-3")
@deviates("mosquitto 2.0: keeps No Local of the subscription that is replaced")
def test_no_local_goes_when_the_subscription_is_replaced(target: Target, name: str) -> None:
    """A SUBSCRIBE without it brings the client's own messages."""
    peer = connected(target, name)
    peer.subscribe((name, build.options(no_local=True)))
    peer.subscribe((name, build.options()), pid=2)
    peer.send(build.publish(name, b"mine"))
    peer.expect(build.publish(name, b"mine"))


@clause("MQTT-3.8.3-4")
@deviates("mosquitto 2.0: takes No Local on a shared subscription")
def test_no_local_on_a_shared_subscription_ends_the_connection(target: Target, name: str) -> None:
    """No Local has no meaning for a group and is a protocol error."""
    peer = connected(target, name)
    peer.send(build.subscribe((f"$share/g/{name}", build.options(no_local=True))))
    peer.expect_closed(0x82)


@pytest.mark.parametrize(
    "block",
    [build.props(message_expiry=1), build.props(reason_string="x"), b"\x7f"],
    ids=["expiry", "reason", "length"],
)
def test_wrong_properties_of_subscribe_end_the_connection(target: Target, name: str, block: bytes) -> None:
    """SUBSCRIBE has a subscription identifier and user properties."""
    peer = connected(target, name)
    peer.send(build.subscribe(name, properties=block))
    peer.expect_closed({0x81, 0x82})


def test_user_properties_of_subscribe_are_taken(target: Target, name: str) -> None:
    """They mean nothing to the broker and do no harm."""
    peer = connected(target, name)
    peer.subscribe(name, user_property=[("a", "b"), ("a", "c")])
