"""Attacks by what packets say: long, deep, wild, many, and never finished."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from itertools import count, islice, product
from typing import Final

from headwater.wire.packets import Packet, Properties, Publish, Subscribe, SubscribeRequest, Unsubscribe
from headwater_lab.hostile_field import Attack, Field, drained, encoded

MIB: Final = 1 << 20
SUBSCRIPTIONS: Final = 100_000
PROPERTIES: Final = 100_000
"""In one packet: nearly half a megabyte of them, each of five bytes."""


def long_topics(field: Field) -> None:
    """Topics of 65,535 bytes, each another one, subscribed to and published to."""
    _again_and_again(field, lambda number: _with_topic(f"{number}" + "x" * (65_535 - len(f"{number}")), number))


def deep_topics(field: Field) -> None:
    """Topics of 30,000 levels."""
    _again_and_again(field, lambda number: _with_topic(f"{number % 10}/" * 30_000 + "x", number))


def deep_as_allowed(field: Field) -> None:
    """Topics of 128 levels, as many as are allowed, each another one."""
    _again_and_again(field, lambda number: _with_topic(f"{number}/" + "x/" * 126 + "y", number))


def _with_topic(topic: str, number: int) -> list[Packet]:
    packet_id = number % 60_000 + 1
    return [
        Subscribe(packet_id, [SubscribeRequest(topic, 1)]),
        Publish(topic, b"x"),
        Unsubscribe(packet_id, [topic]),
    ]


def _again_and_again(field: Field, packets: Callable[[int], list[Packet]]) -> None:
    """Send what `packets` makes of a number, on a connection that is made anew whenever it ends."""
    client: socket.socket | None = None
    for number in count():
        if field.over():
            break
        if client is None:
            with field.struggling():
                client = field.client()
            continue
        try:
            field.send(client, *(encoded(each) for each in packets(number)))
            alive = drained(client)
        except OSError:
            alive = False
        if not alive:
            field.counts["ends"] += 1
            client.close()
            client = None
    if client is not None:
        client.close()


def wildcards(field: Field) -> None:
    """4096 filters of `+` and a name at each of twelve levels, and topics that match them all."""
    filters = ["/".join(levels) for levels in product("+a", repeat=12)]
    _subscribed(field, filters, "/".join("a" * 12))


def hashes(field: Field) -> None:
    """`#` at each of 127 levels under each of 30 beginnings, and topics that match many of them."""
    filters = [
        f"{'+/' * depth}#" if first == 0 else f"h{first}/{'+/' * depth}#" for first in range(30) for depth in range(126)
    ]
    _subscribed(field, filters, "h7/" + "/".join("x" * 126))


def _subscribed(field: Field, filters: list[str], topic: str) -> None:
    """Subscribe to all filters and publish to one topic after another that many of them match."""
    with field.struggling():
        client = field.client("wild")
        for number, some in enumerate(_portions(filters, 500), 1):
            field.send(client, encoded(Subscribe(number, [SubscribeRequest(each, 0) for each in some])))
            drained(client)
        for number in count():
            if field.over():
                break
            field.send(client, *[encoded(Publish(topic, b"x" * (number % 10)))] * 10)
            drained(client)
        client.close()


def many_subscriptions(field: Field) -> None:
    """100,000 subscriptions of one client, and messages to them."""
    with field.struggling():
        client = field.client("many")
        _subscribe_to_many(field, client)
        for number in count():
            if field.over():
                break
            field.send(client, encoded(Publish(f"many/{number % SUBSCRIPTIONS}/x", b"x")))
            drained(client)
        client.close()


def subscription_churn(field: Field) -> None:
    """The same number, taken back and made again all the time."""
    while not field.over():
        with field.struggling():
            client = field.client("many")
            _subscribe_to_many(field, client)
            client.close()


def _subscribe_to_many(field: Field, client: socket.socket) -> None:
    for number, some in enumerate(_portions([f"many/{n}/+" for n in range(SUBSCRIPTIONS + 500)], 500), 1):
        if field.over():
            break
        field.send(client, encoded(Subscribe(number, [SubscribeRequest(each, 1) for each in some])))
        drained(client)


def packet_ids(field: Field) -> None:
    """QoS 2 with every packet id, and no PUBREL ever; by 3.1.1's number, and beyond what 5.0 clients may."""
    head, _, tail = encoded(Publish("ids/x", b"x", 2, packet_id=0xFFFE)).partition(b"\xff\xfe")
    packets = [head + number.to_bytes(2, "big") + tail for number in range(1, 65_536)]
    while not field.over():
        with field.struggling():
            client = field.client("ids", session_expiry_interval=60)
            for at in range(0, len(packets), 100):
                if field.over():
                    break
                field.send(client, *packets[at : at + 100])
                if not drained(client):
                    field.counts["ends"] += 1
                    break
            client.close()


def receive_maximum(field: Field) -> None:
    """Clients that may be sent 65,535 messages, subscribe to what another publishes, and never acknowledge."""
    with field.struggling():
        readers = [field.client(f"greedy-{n}", receive_maximum=65_535, session_expiry_interval=60) for n in range(10)]
        for reader in readers:
            field.send(reader, encoded(Subscribe(1, [SubscribeRequest("greedy/#", 2)])))
        writer = field.client("generous")
        ids = count()
        while not field.over():
            some = [Publish("greedy/x", b"x" * 100, 1, packet_id=next(ids) % 60_000 + 1) for _ in range(20)]
            field.send(writer, *(encoded(each) for each in some))
            for each in (writer, *readers):
                drained(each)
            field.pause(0.002)
        for each in (writer, *readers):
            each.close()


def user_properties(field: Field) -> None:
    """A hundred thousand empty user properties in each packet: half a megabyte that becomes many times as much."""
    properties = Properties(user_properties=[("", "")] * PROPERTIES)
    packet = encoded(Publish("bomb/x", b"x", properties=properties))
    reading = field.client("reads")
    field.send(reading, encoded(Subscribe(1, [SubscribeRequest("bomb/#", 0)])))
    while not field.over():
        with field.struggling():
            client = field.client("bombs")
            while not field.over():
                field.send(client, packet)
                if not (drained(client) and drained(reading)):
                    break
            client.close()
    reading.close()


def retained(field: Field) -> None:
    """Twenty thousand retained messages, and `#` subscribed to again and again."""
    with field.struggling():
        client = field.client("retains")
        for number in range(20_000):
            field.send(client, encoded(Publish(f"kept/{number}", b"x" * 20, retain=True)))
        while not field.over():
            field.send(client, encoded(Subscribe(1, [SubscribeRequest("kept/#", 0)])))
            drained(client)
        for number in range(20_000):
            field.send(client, encoded(Publish(f"kept/{number}", b"", retain=True)))
        client.close()


def _portions(items: list[str], size: int) -> Iterator[list[str]]:
    waiting = iter(items)
    while some := list(islice(waiting, size)):
        yield some


ATTACKS: Final = (
    Attack(
        "long-topics",
        "topics of 65,535 bytes, subscribed to and published to, each another one",
        "served; topics above 512 bytes are not remembered",
        "`max_topic_length`",
        long_topics,
        30 * MIB,
    ),
    Attack(
        "deep-topics",
        "topics of 30,000 levels",
        "the filter is refused (0x8F), the topic ends the connection (0x90)",
        "`max_topic_levels`",
        deep_topics,
        20 * MIB,
    ),
    Attack(
        "deep-as-allowed",
        "topics of 128 levels, the most that is allowed, each another one",
        "served",
        "`max_topic_levels`",
        deep_as_allowed,
        40 * MIB,
    ),
    Attack(
        "plus-bomb",
        "4096 filters of `+` and a name at each of 12 levels, and topics that match all of them",
        "served; the recipients of a topic are found once and remembered",
        "`max_subscriptions`, `max_topic_levels`",
        wildcards,
        40 * MIB,
    ),
    Attack(
        "hash-bomb",
        "`#` at each of 126 levels, 3780 filters, and topics that match many of them",
        "served; the recipients of a topic are found once and remembered",
        "`max_subscriptions`, `max_topic_levels`",
        hashes,
        60 * MIB,
    ),
    Attack(
        "many-subscriptions",
        "100,500 subscriptions of one client, and a message to one after another",
        "the first 100,000 are granted, others get 0x97",
        "`max_subscriptions`, `max_session_memory`",
        many_subscriptions,
        40 * MIB,
        keeps=("max_session_memory",),
    ),
    Attack(
        "subscription-churn",
        "as many subscriptions, made and taken back all the time",
        "as above; tables that grow to 100,000 entries take a millisecond or two for each time they double",
        "`max_subscriptions`, `max_session_memory`",
        subscription_churn,
        40 * MIB,
        keeps=("max_session_memory",),
    ),
    Attack(
        "packet-ids",
        "QoS 2 with every packet id, and no PUBREL",
        "the connection ends (0x93) at the receive maximum",
        "`receive_maximum`",
        packet_ids,
        20 * MIB,
    ),
    Attack(
        "receive-maximum",
        "10 readers that may be sent 65,535 messages and never acknowledge",
        "1024 are in flight to each, 10,000 wait, others are dropped and counted",
        "`max_inflight`, `max_queued_messages`, `max_queued_bytes`",
        receive_maximum,
        150 * MIB,
    ),
    Attack(
        "user-properties",
        "100,000 empty user properties in each PUBLISH",
        "the connection ends (0x97) at once: more than 128 KiB of properties",
        "",
        user_properties,
        100 * MIB,
    ),
    Attack(
        "retained",
        "20,000 retained messages, all asked for again and again",
        "sent in slices, and no faster than the client reads",
        "`outbound_buffer`, `max_retained`",
        retained,
        60 * MIB,
    ),
)
