"""Shared subscriptions (MQTT 5.0, 4.8.2). How a member is chosen is the broker's; that it is one, is not."""

from __future__ import annotations

import itertools

import pytest

from . import build
from .marks import V5, V311, both_versions, clause, clause311, deviates
from .peer import Peer, Target, connected
from .test_31_subscribe import expect_filter_refused
from .test_41_redelivery import lasting


def drain(sub: Peer, end: str) -> list[bytes]:
    """Payloads of all messages up to one of the topic `end`, which the peer is subscribed to and publishes itself."""
    sub.send(build.publish(end))
    found = []
    while (got := sub.publication()).topic != end:
        if got.pid is not None:
            sub.send(build.puback(got.pid))
        found.append(got.payload)
    return found


def group(target: Target, name: str, size: int, filter: str, qos: int = 0) -> list[Peer]:
    """Members that share a filter; each is also subscribed to the topic f"{name}end{number}", for `drain`."""
    members = [connected(target, f"{name}m{number}") for number in range(size)]
    for number, member in enumerate(members):
        member.subscribe((filter, qos), (f"{name}end{number}", 0))
    return members


@clause("MQTT-4.8.2-1")
@both_versions
@pytest.mark.parametrize("qos", [0, 1])
def test_each_message_goes_to_one_member(target: Target, name: str, version: int, qos: int) -> None:
    """Three members together get every message once, each in the order of publication."""
    members = group(target, name, 3, f"$share/{name}/{name}/+", qos)
    pub = connected(target, f"{name}p", version)
    for number in range(30):
        pub.publish(f"{name}/{number % 2}", b"%02d" % number, qos)
    shares = [drain(member, f"{name}end{number}") for number, member in enumerate(members)]
    assert sorted(itertools.chain(*shares)) == [b"%02d" % number for number in range(30)]
    assert all(share == sorted(share) for share in shares)


def test_groups_are_independent(target: Target, name: str) -> None:
    """Two groups and an ordinary subscriber each get every message; one client may be in several groups."""
    one = group(target, f"{name}1", 2, f"$share/{name}1/{name}")
    two = group(target, f"{name}2", 2, f"$share/{name}2/{name}")
    plain = connected(target, f"{name}s")
    plain.subscribe(name)
    pub = connected(target, f"{name}p")
    payloads = [b"%d" % number for number in range(10)]
    for payload in payloads:
        pub.publish(name, payload)
    for key, members in ((f"{name}1", one), (f"{name}2", two)):
        assert sorted(itertools.chain(*(drain(each, f"{key}end{n}") for n, each in enumerate(members)))) == payloads
    plain.expect(*(build.publish(name, payload) for payload in payloads))


def test_the_same_name_with_another_filter_is_another_group(target: Target, name: str) -> None:
    """A group is the pair of share name and filter."""
    exact, wild = connected(target, f"{name}e"), connected(target, f"{name}w")
    exact.subscribe(f"$share/{name}/{name}/a")
    wild.subscribe(f"$share/{name}/{name}/+")
    connected(target, f"{name}p").publish(f"{name}/a", b"x")
    exact.expect(build.publish(f"{name}/a", b"x"))
    wild.expect(build.publish(f"{name}/a", b"x"))


def test_a_member_may_subscribe_ordinarily_as_well(target: Target, name: str) -> None:
    """The ordinary subscription and the shared one are two: the only member gets the message by each of them."""
    peer = connected(target, name)
    peer.subscribe(name, subscription_identifier=1)
    peer.subscribe(f"$share/g{name}/{name}", pid=2, subscription_identifier=2)
    peer.send(build.publish(name, b"x"))
    peer.expect_unordered(
        build.publish(name, b"x", subscription_identifier=1), build.publish(name, b"x", subscription_identifier=2)
    )
    peer.expect_nothing()


@deviates("mosquitto 2.0: sends retained messages to shared subscriptions")
@pytest.mark.parametrize("handling", [0, 1])
def test_shared_subscriptions_get_no_retained_messages(target: Target, name: str, handling: int) -> None:
    """Retained messages are not sent at the time of a shared subscription; new ones are shared, with RETAIN 0."""
    peer = connected(target, name)
    peer.publish(name, b"kept", retain=True)
    peer.subscribe((f"$share/g{name}/{name}", build.options(retain_handling=handling)))
    peer.expect_nothing()
    peer.send(build.publish(name, b"new", retain=True))
    peer.expect(build.publish(name, b"new"))


@clause("MQTT-4.8.2-1", "MQTT-4.8.2-2", "MQTT-4.13.1-1")
@deviates("mosquitto 2.0: grants a shared subscription without name or without filter")
@pytest.mark.parametrize(
    "filter",
    [
        "$share/",
        "$share/g",
        "$share/g/",
        "$share//a",
        "$share/+/a",
        "$share/#",
        "$share/g+/a",
        "$share/g#/a",
        "$share/g/a#",
    ],
)
def test_misshapen_shared_filters_end_the_connection(target: Target, name: str, filter: str) -> None:
    """`$share/`, a name of at least one character without wildcards, `/`, and a topic filter."""
    for packet in (build.subscribe, build.unsubscribe):
        peer = connected(target, name)
        peer.send(packet(filter))
        expect_filter_refused(peer, target)


@clause311("MQTT-3.9.3-2")
@deviates("mosquitto 2.0: grants a shared subscription without name or without filter")
@pytest.mark.parametrize("filter", ["$share/", "$share/g", "$share/g/", "$share//a"])
def test_in_311_misshapen_shared_filters_are_refused(target: Target, name: str, filter: str) -> None:
    """3.1.1 knows no shared subscriptions: such a filter is well formed there, and a server may refuse it."""
    peer = connected(target, name, V311)
    peer.send(build.subscribe(filter, version=V311))
    peer.expect(build.suback(0x80, version=V311))
    peer.send(build.unsubscribe(filter, version=V311))
    peer.expect(build.unsuback(0x11, version=V311))


@clause("MQTT-4.8.2-1")
@pytest.mark.parametrize(
    "word",
    ["share", "$Share", pytest.param("$shared", marks=deviates("mosquitto 2.0: nobody may publish to `$share…`"))],
)
def test_another_first_level_is_not_shared(target: Target, name: str, word: str) -> None:
    """Only `$share/` with exactly these letters makes a shared subscription."""
    peer = connected(target, name)
    topic = f"{word}/g/{name}"
    peer.subscribe(topic)
    peer.send(build.publish(topic, b"x"), build.publish(name, b"x"))
    peer.expect(build.publish(topic, b"x"))
    peer.expect_nothing()


@clause("MQTT-4.8.2-3")
def test_each_member_gets_its_granted_qos(target: Target, name: str) -> None:
    """Members of one group may have different QoS; each is sent no more than it was granted."""
    members = [connected(target, f"{name}{qos}") for qos in range(3)]
    for qos, member in enumerate(members):
        member.subscribe((f"$share/g{name}/{name}", qos), (f"{name}end", qos))
    pub = connected(target, f"{name}p")
    for _ in range(9):
        pub.publish(name, b"x", 2)
    pub.publish(f"{name}end", b"", 2)
    total = 0
    for qos, member in enumerate(members):
        while (got := member.publication()).topic != f"{name}end":
            assert got.qos == qos
            total += 1
    assert total == 9


@clause("MQTT-3.10.4-1")
def test_a_member_that_leaves_gets_no_more(target: Target, name: str) -> None:
    """Those who unsubscribe or disconnect leave the whole stream to the others; the last takes all."""
    members = group(target, name, 3, f"$share/g{name}/{name}")
    pub = connected(target, f"{name}p")
    members[0].send(build.unsubscribe(f"$share/g{name}/{name}", pid=2))
    members[0].expect(build.unsuback(0, pid=2))
    members[1].close()
    for number in range(5):
        pub.publish(name, b"%d" % number)
    assert drain(members[0], f"{name}end0") == []
    assert drain(members[2], f"{name}end2") == [b"0", b"1", b"2", b"3", b"4"]


def test_subscribing_again_does_not_make_a_second_member(target: Target, name: str) -> None:
    """The only member that subscribes twice gets each message once, with its new QoS."""
    peer = connected(target, f"{name}s")
    peer.subscribe((f"$share/g{name}/{name}", 0))
    peer.subscribe((f"$share/g{name}/{name}", 1), pid=2)
    connected(target, f"{name}p").publish(name, b"x", 2)
    assert peer.publication().qos == 1
    peer.expect_nothing()


@clause("MQTT-4.5.0-1")
def test_an_absent_member_and_a_present_one_share(target: Target, name: str) -> None:
    """Each message is delivered once: to the one that is there, or to the absent one when it comes back."""
    away = lasting(target, f"{name}a", V5)
    away.subscribe((f"$share/g{name}/{name}", 1), (f"{name}enda", 0))
    away.close()
    here = connected(target, f"{name}h")
    here.subscribe((f"$share/g{name}/{name}", 1), (f"{name}endh", 0))
    pub = connected(target, f"{name}p")
    payloads = [b"%d" % number for number in range(8)]
    for payload in payloads:
        pub.publish(name, payload, 1)
    got = drain(here, f"{name}endh")
    away = lasting(target, f"{name}a", V5)
    assert sorted(got + drain(away, f"{name}enda")) == payloads


@clause("MQTT-4.5.0-1")
def test_messages_wait_for_the_only_member(target: Target, name: str) -> None:
    """A group whose members are all away keeps QoS 1 and 2 messages in a member's session."""
    away = lasting(target, f"{name}a", V5)
    away.subscribe(f"$share/g{name}/{name}", qos=2)
    away.close()
    pub = connected(target, f"{name}p")
    for qos in (1, 2):
        pub.publish(name, b"%d" % qos, qos)
    away = lasting(target, f"{name}a", V5)
    assert [(got.payload, got.qos) for got in (away.publication(), away.publication())] == [(b"1", 1), (b"2", 2)]


def begun(target: Target, name: str, qos: int) -> tuple[Peer, Peer, int]:
    """A message that was sent to the first member, which then vanished, and a second member that joined meanwhile."""
    first = lasting(target, f"{name}1", V5)
    first.subscribe((f"$share/g{name}/{name}", qos))
    connected(target, f"{name}p").publish(name, b"x", qos)
    pid = first.publication().pid
    assert pid is not None
    second = connected(target, f"{name}2")
    second.subscribe((f"$share/g{name}/{name}", qos))
    return first, second, pid


@clause("MQTT-4.8.2-4", "MQTT-4.4.0-1")
def test_a_qos_2_delivery_stays_with_its_member(target: Target, name: str) -> None:
    """When the member reconnects the delivery is completed with it, and no other member is sent the message."""
    first, second, pid = begun(target, name, 2)
    first.drop()
    second.expect_nothing()
    first = lasting(target, f"{name}1", V5)
    first.expect(build.publish(name, b"x", 2, pid, dup=True))
    first.send(build.pubrec(pid))
    first.expect(build.pubrel(pid))
    first.send(build.pubcomp(pid))
    second.expect_nothing()


@clause("MQTT-4.8.2-5")
@pytest.mark.parametrize("released", [False, True])
def test_a_qos_2_delivery_ends_with_its_members_session(target: Target, name: str, released: bool) -> None:
    """If the session ends before the delivery, nobody else gets the message."""
    first, second, pid = begun(target, name, 2)
    if released:
        first.send(build.pubrec(pid))
        first.expect(build.pubrel(pid))
    first.drop()
    connected(target, f"{name}1", clean=True).expect_nothing()
    second.expect_nothing()


@clause("MQTT-4.8.2-6", "MQTT-4.4.0-2")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_refused_message_is_not_offered_to_others(target: Target, name: str, qos: int) -> None:
    """PUBACK or PUBREC of 0x80 or more is the end of the message for the whole group."""
    first, second, pid = begun(target, name, qos)
    first.send(build.puback(pid, 0x80) if qos == 1 else build.pubrec(pid, 0x80))
    first.expect_nothing()
    second.expect_nothing()
    first.drop()
    connected(target, f"{name}1", clean=True).expect_nothing()
    second.expect_nothing()


def test_a_qos_1_message_is_not_lost_with_its_members_connection(target: Target, name: str) -> None:
    """An unacknowledged QoS 1 message is sent to another member at once, or again to the same when it is back."""
    first, second, _ = begun(target, name, 1)
    second.subscribe((f"{name}end", 0), pid=2)
    first.drop()
    first = lasting(target, f"{name}1", V5)
    got = drain(second, f"{name}end") or [first.publication().payload]
    assert got == [b"x"]


@deviates("mosquitto 2.0: drops unacknowledged messages of a shared subscription with the member's session")
def test_a_qos_1_message_passes_to_another_member_when_the_session_ends(target: Target, name: str) -> None:
    """The standard says SHOULD; we do: a message that a member took away unacknowledged is sent to another."""
    first, second, _ = begun(target, name, 1)
    first.drop()
    connected(target, f"{name}1", clean=True).expect_nothing()
    got = second.publication()
    assert (got.payload, got.qos) == (b"x", 1)
    second.expect_nothing()


def test_receive_maximum_of_a_member_is_respected(target: Target, name: str) -> None:
    """What a member cannot take now waits for it or goes to another, and each message arrives once."""
    slow = connected(target, f"{name}s", receive_maximum=1)
    slow.subscribe(f"$share/g{name}/{name}", qos=1)
    pub = connected(target, f"{name}p")
    for number in range(4):
        pub.publish(name, b"%d" % number, 1)
    for number in range(4):
        got = slow.publication()
        assert got.payload == b"%d" % number and got.pid is not None
        slow.expect_nothing()
        slow.send(build.puback(got.pid))
