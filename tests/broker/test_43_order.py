"""Order: what one client publishes arrives in that order, also across topics and QoS (MQTT 5.0, 4.6).

The standard asks for order per topic and QoS. People rely on more, and batching must not lose it: from one publisher
to one subscriber everything stays in order, whatever topic, QoS and subscription it went by. Of other brokers only the
standard's order is asked where a scenario mixes QoS.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from . import build
from .marks import V311, both_versions, clause, clause311, deviates
from .peer import Peer, Publication, Target, connected

COUNT = 400


def receive(sub: Peer, count: int) -> list[Publication]:
    """The next messages, each acknowledged as it comes; PUBREL is answered in passing."""
    got: list[Publication] = []
    while len(got) < count:
        first, body = sub.packet()
        if first == build.PUBREL:
            sub.send(build.packet(build.PUBCOMP, body[:2]))
            continue
        each = parse(first, body, sub.version)
        if each.pid is not None:
            sub.send((build.puback if each.qos == 1 else build.pubrec)(each.pid))
        got.append(each)
    return got


def expect_no_more(sub: Peer) -> None:
    """No further message is on its way; the last PUBREL packets are answered in passing."""
    sub.send(build.PINGREQ)
    while (packet := sub.packet())[0] == build.PUBREL:
        sub.send(build.packet(build.PUBCOMP, packet[1][:2]))
    assert packet[0] == build.PINGRESP[0], f"expected nothing more, got {packet[0]:#04x} {packet[1].hex(' ')}"


def parse(first: int, body: bytes, version: int) -> Publication:
    assert first & 0xF0 == build.PUBLISH, f"expected a PUBLISH, got {first:#04x} {body.hex(' ')}"
    topic, at = build.read_text(body, 0)
    qos = first >> 1 & 3
    pid = int.from_bytes(body[at : at + 2], "big") if qos else None
    at += 2 if qos else 0
    properties: dict[str, list[object]] = {}
    if version >= 5:
        properties, at = build.read_props(body, at)
    return Publication(topic.decode(), body[at:], qos, bool(first & 1), bool(first & 8), pid, properties)


def numbers(got: list[Publication]) -> list[int]:
    return [int(each.payload) for each in got]


@clause("MQTT-4.6.0-5", "MQTT-4.6.0-6")
@clause311("MQTT-4.6.0-5", "MQTT-4.6.0-6")
@both_versions
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_one_topic_one_qos(target: Target, name: str, version: int, qos: int) -> None:
    """Messages of one topic and QoS arrive in the order in which they were published."""
    sub = connected(target, f"{name}s", version)
    sub.subscribe(name, qos=qos)
    pub = connected(target, f"{name}p", version)
    step = 10
    for start in range(0, COUNT, step):
        ids = range(1, step + 1)
        pub.send(*(build.publish(name, b"%d" % (start + n), qos, n if qos else None, version=version) for n in ids))
        for n in ids if qos else ():
            pub.expect_ack(build.PUBACK if qos == 1 else build.PUBREC, n)
        if qos == 2:
            pub.send(*(build.pubrel(n) for n in ids))
            for n in ids:
                pub.expect(build.pubcomp(n))
    assert numbers(receive(sub, COUNT)) == list(range(1, COUNT + 1))
    expect_no_more(sub)


@clause("MQTT-4.6.0-5", "MQTT-4.6.0-6")
@clause311("MQTT-4.6.0-5", "MQTT-4.6.0-6")
@both_versions
@pytest.mark.parametrize("filters", [["{}/#"], ["{}/+/x"], ["{}/0/x", "{}/+/x"], ["{}/1/x", "{}/2/x", "{}/#"]])
def test_many_topics_in_one_write(target: Target, name: str, version: int, filters: list[str]) -> None:
    """A large batch over many topics in one TCP send: every subscriber sees its share in order, once."""
    named = [filter.format(name) for filter in filters]
    subs = [connected(target, f"{name}{number}", version) for number in range(len(named))]
    for sub, filter in zip(subs, named, strict=True):
        sub.subscribe(filter)
    pub = connected(target, f"{name}p", version)
    topics = [f"{name}/{number % 7}/x" for number in range(COUNT)]
    pub.send(*(build.publish(topic, b"%d" % number, version=version) for number, topic in enumerate(topics)))
    for sub, filter in zip(subs, named, strict=True):
        wanted = [n for n, topic in enumerate(topics) if topic == filter or filter[-1] == "#" or "+" in filter]
        got = receive(sub, len(wanted))
        assert numbers(got) == wanted
        assert [each.topic for each in got] == [topics[n] for n in wanted]
        sub.expect_nothing()


@clause("MQTT-4.6.0-5")
@both_versions
def test_one_client_with_exact_and_wildcard_subscriptions(target: Target, name: str, version: int) -> None:
    """Some topics reach the client by an exact filter, some by a wildcard, and all in one order."""
    sub = connected(target, f"{name}s", version)
    sub.subscribe(f"{name}/0", f"{name}/3", f"{name}/+/deep", f"{name}/w/#")
    pub = connected(target, f"{name}p", version)
    topics = [f"{name}/{end}" for end in ("0", "3", "a/deep", "w/x", "w", "b/deep")]
    pub.send(*(build.publish(topics[n % 6], b"%d" % n, version=version) for n in range(COUNT)))
    assert numbers(receive(sub, COUNT)) == list(range(COUNT))


@clause("MQTT-4.6.0-5")
@both_versions
def test_all_qos_from_one_publisher(target: Target, name: str, version: int) -> None:
    """QoS 0, 1 and 2 mixed over several topics arrive in the order of their acceptance."""
    sub = connected(target, f"{name}s", version)
    sub.subscribe(f"{name}/#", qos=2)
    pub = connected(target, f"{name}p", version)
    dice = random.Random(4)
    expected = []
    for number in range(60):
        qos, topic = dice.randrange(3), f"{name}/{dice.randrange(4)}"
        pub.publish(topic, b"%d" % number, qos)
        expected.append((topic, number, qos))
    got = [(each.topic, int(each.payload), each.qos) for each in receive(sub, 60)]
    if target.ours:
        assert got == expected
    for qos in range(3):
        assert [each for each in got if each[2] == qos] == [each for each in expected if each[2] == qos]


@clause("MQTT-4.6.0-5")
@both_versions
def test_qos_0_and_1_mixed_in_one_write(target: Target, name: str, version: int) -> None:
    """A batch in one TCP send whose messages change QoS and topic keeps its order."""
    sub = connected(target, f"{name}s", version)
    sub.subscribe(f"{name}/#", qos=1)
    pub = connected(target, f"{name}p", version)
    pub.send(
        *(
            build.publish(f"{name}/{n % 5}", b"%d" % n, n % 2, n + 1 if n % 2 else None, version=version)
            for n in range(100)
        )
    )
    got = receive(sub, 100)
    if target.ours:
        assert numbers(got) == list(range(100))
    for qos in (0, 1):
        assert numbers([each for each in got if each.qos == qos]) == list(range(qos, 100, 2))
    for n in range(1, 100, 2):
        pub.expect_ack(build.PUBACK, n + 1)


MIXED_SUBSCRIBERS: list[tuple[int, int, str, dict[str, int]]] = [
    (5, 2, "{}/#", {}),
    (5, 1, "{}/+", {"subscription_identifier": 9}),
    (5, 0, "{}/#", {}),
    (V311, 2, "{}/+", {}),
    (V311, 0, "{}/#", {}),
]


@clause("MQTT-4.6.0-5")
@both_versions
@pytest.mark.parametrize("seed", range(3))
def test_every_form_of_message_mixed_in_one_write(target: Target, name: str, version: int, seed: int) -> None:
    """QoS, RETAIN, aliases, properties and sizes change from message to message in one TCP send; order holds."""
    subs = []
    for number, (each_version, qos, filter, options) in enumerate(MIXED_SUBSCRIBERS):
        subs.append(connected(target, f"{name}{number}", each_version))
        subs[-1].subscribe(filter.format(name), qos=qos, **options)
    pub = connected(target, f"{name}p", version)
    dice = random.Random(seed)
    stream, sent, pid = b"", [], 0
    for number in range(90):
        topic, qos = f"{name}/{dice.choice('abc')}", dice.choice([0, 0, 0, 1, 1, 2] if pid < 15 else [0])
        named: dict[str, Any] = {}
        if version == 5:
            named = dice.choice([{}, {}, {"user_property": ("k", "v")}, {"message_expiry": 60}, {"topic_alias": 1}])
        payload = b"%d" % number + b" " * dice.choice([0, 0, 8])
        pid += qos > 0
        retain = dice.random() < 0.1
        stream += build.publish(topic, payload, qos, pid if qos else None, retain=retain, version=version, **named)
        sent.append((topic, payload, qos))
    pub.send(stream)
    for _ in range(pid):
        first, body = pub.packet()
        if first == build.PUBREC:
            pub.send(build.packet(build.PUBREL, body[:2]))
    for sub, (_, granted, _, _) in zip(subs, MIXED_SUBSCRIBERS, strict=True):
        got = receive(sub, len(sent))
        if target.ours:
            assert [(each.topic, each.payload, each.qos) for each in got] == [
                (topic, payload, min(qos, granted)) for topic, payload, qos in sent
            ]
        for qos in range(3):
            for topic in {topic for topic, _, _ in sent}:
                wanted = [payload for each, payload, level in sent if (each, level) == (topic, qos)]
                assert [each.payload for each in got if each.topic == topic and each.payload in wanted] == wanted


@clause("MQTT-3.3.2-17", "MQTT-4.6.0-5")
@pytest.mark.parametrize("qos", [0, 1])
def test_messages_of_equal_size_keep_their_own_properties(target: Target, name: str, qos: int) -> None:
    """In one TCP send, packets that differ only in where properties end and payload begins are not taken for alike."""
    new, old = connected(target, f"{name}n"), connected(target, f"{name}o", V311)
    for sub in (new, old):
        sub.subscribe(name, qos=qos)
    blocks = [b"\x00", build.props(user_property=("a", "b")), build.props(user_property=("a", "c")), b"\x00"]
    sent = [(blocks[n % 4], b"%03d" % n + b"." * (20 - len(blocks[n % 4]))) for n in range(40)]
    pub = connected(target, f"{name}p")
    ids = iter(range(1, 41))
    pub.send(*(build.publish(name, text, qos, next(ids) if qos else None, properties=block) for block, text in sent))
    for got, (block, payload) in zip(receive(new, 40), sent, strict=True):
        assert (got.payload, got.properties) == (payload, build.read_props(block)[0])
    assert [got.payload for got in receive(old, 40)] == [payload for _, payload in sent]


@clause("MQTT-3.3.4-6")
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(
            b"\x02\x0b\x05", marks=deviates("mosquitto 2.0: takes a subscription identifier"), id="identifier"
        ),
        pytest.param(b"\x02\x01\x07", marks=deviates("mosquitto 2.0: takes any payload format"), id="value"),
        pytest.param(b"\x02\x7f\x01", id="unknown"),
    ],
)
def test_a_wrong_message_among_right_ones_of_its_size_is_seen(target: Target, name: str, qos: int, bad: bytes) -> None:
    """In one TCP send, what precedes it is delivered, and it ends the connection."""
    sub = connected(target, f"{name}s")
    sub.subscribe(name, qos=qos)
    pub = connected(target, f"{name}p")
    right = b"\x02\x01\x00"
    blocks = enumerate([right, right, right, bad, right], 1)
    pub.send(*(build.publish(name, b"x", qos, n if qos else None, properties=block) for n, block in blocks))
    for pid in (1, 2, 3) if qos else ():
        pub.expect_ack(build.PUBACK, pid)
    pub.expect_closed({0x81, 0x82})
    assert [got.properties for got in receive(sub, 3)] == [{"payload_format": [0]}] * 3
    expect_no_more(sub)


@clause("MQTT-4.6.0-5")
@both_versions
def test_order_holds_when_the_quota_is_small(target: Target, name: str, version: int) -> None:
    """With Receive Maximum 1, later messages do not overtake those that wait; for us QoS 0 does not either."""
    sub = connected(target, f"{name}s", receive_maximum=1)
    sub.subscribe(f"{name}/#", qos=1)
    pub = connected(target, f"{name}p", version)
    for number in range(30):
        pub.publish(f"{name}/{number % 3}", b"%d" % number, int(number % 3 < 2))
    got = receive(sub, 30)
    if target.ours:
        assert numbers(got) == list(range(30))
    assert numbers([each for each in got if each.qos]) == [n for n in range(30) if n % 3 < 2]


@clause("MQTT-4.6.0-5")
@clause311("MQTT-4.6.0-5", "MQTT-4.6.0-6")
@both_versions
def test_each_publishers_order_is_kept(target: Target, name: str, version: int) -> None:
    """Two publishers in turns: the subscriber sees each one's messages in that one's order."""
    sub = connected(target, f"{name}s", version)
    sub.subscribe(f"{name}/#")
    pubs = [connected(target, f"{name}{number}", version) for number in range(2)]
    for start in range(0, 200, 20):
        for number, pub in enumerate(pubs):
            batch = range(start, start + 20)
            pub.send(*(build.publish(f"{name}/{number}", b"%d" % n, version=version) for n in batch))
    got = receive(sub, 400)
    for number in range(2):
        assert numbers([each for each in got if each.topic == f"{name}/{number}"]) == list(range(200))


@clause("MQTT-4.6.0-5")
def test_versions_and_qos_of_subscribers_do_not_disturb_each_other(target: Target, name: str) -> None:
    """Six subscribers of both versions and all QoS share the topics; each sees everything in order."""
    subs = []
    for qos in range(3):
        for version in (V311, 5):
            subs.append(connected(target, f"{name}{qos}{version}", version))
            subs[-1].subscribe(f"{name}/+", qos=qos)
    pub = connected(target, f"{name}p")
    for number in range(40):
        pub.publish(f"{name}/{number % 3}", b"%d" % number, 2)
    for sub in subs:
        assert numbers(receive(sub, 40)) == list(range(40))


@clause("MQTT-4.6.0-5")
def test_aliases_keep_the_order(target: Target, name: str) -> None:
    """A batch that uses topic aliases and plain topics in turns arrives in order."""
    sub = connected(target, f"{name}s")
    sub.subscribe(f"{name}/#")
    pub = connected(target, f"{name}p")
    batch = [build.publish(f"{name}/{alias}", b"%d" % (alias - 1), topic_alias=alias) for alias in (1, 2, 3)]
    for number in range(3, 120):
        alias, payload = number % 3 + 1, b"%d" % number
        by_alias = build.publish("", payload, topic_alias=alias)
        batch.append(by_alias if number % 4 else build.publish(f"{name}/{alias}", payload))
    pub.send(*batch)
    got = receive(sub, 120)
    assert numbers(got) == list(range(120))
    assert [each.topic for each in got] == [f"{name}/{number % 3 + 1}" for number in range(120)]


@clause("MQTT-4.6.0-5")
@both_versions
def test_subscribe_and_publish_in_one_write_take_effect_in_order(target: Target, name: str, version: int) -> None:
    """What is published before the SUBSCRIBE in the same stream is not delivered, what is published after is."""
    peer = connected(target, name, version)
    peer.send(
        build.publish(name, b"before", version=version),
        build.subscribe(name, pid=1, version=version),
        build.publish(name, b"between", version=version),
        build.unsubscribe(name, pid=2, version=version),
        build.publish(name, b"after", version=version),
        build.PINGREQ,
    )
    peer.expect(build.suback(0, pid=1, version=version))
    peer.expect(build.publish(name, b"between", version=version))
    peer.expect(build.unsuback(0, pid=2, version=version))
    peer.expect(build.PINGRESP)


@both_versions
def test_bytes_may_come_in_any_portions(target: Target, name: str, version: int) -> None:
    """TCP keeps no packet boundaries: a stream cut anywhere means the same."""
    sub = connected(target, f"{name}s", version)
    sub.subscribe(f"{name}/#")
    pub = connected(target, f"{name}p", version)
    stream = b"".join(build.publish(f"{name}/{n}", b"%d" % n * (n + 1), version=version) for n in range(30))
    dice, at = random.Random(7), 0
    while at < len(stream):
        size = dice.choice([1, 2, 3, 50, 300])
        pub.send(stream[at : at + size])
        at += size
    assert [each.payload for each in receive(sub, 30)] == [b"%d" % n * (n + 1) for n in range(30)]
