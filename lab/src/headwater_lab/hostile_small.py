"""Attacks by small requests of connected clients, each of which has the broker do much more than the client does."""

from __future__ import annotations

import socket
from collections.abc import Callable
from itertools import count
from typing import Final

from headwater.wire.encode import encode
from headwater.wire.packets import Connect, Pingreq, Publish, Subscribe, SubscribeRequest, Unsubscribe, Will
from headwater_lab.hostile_field import V5, Attack, Field, drained, encoded

MIB: Final = 1 << 20
BATCH: Final = 50
GROUPS: Final = 2000
READERS: Final = 100


def filter_churn(field: Field) -> None:
    """One wildcard filter, subscribed to and unsubscribed from: what is remembered of topics is forgotten each time."""
    packets = encoded(Subscribe(1, [SubscribeRequest("churn/#", 0)]), Unsubscribe(1, ["churn/#"])) * BATCH
    _again_and_again(field, lambda client: field.send(client, packets))


def pings(field: Field) -> None:
    """PINGREQ after PINGREQ."""
    packets = encoded(Pingreq()) * 2000
    _again_and_again(field, lambda client: field.send(client, packets))


def share_names(field: Field) -> None:
    """Groups of all names for one filter, and messages that go to all of them."""
    with field.struggling():
        client = field.client("member")
        for start in range(0, GROUPS, BATCH):
            requests = [SubscribeRequest(f"$share/g{number}/shared/+", 0) for number in range(start, start + BATCH)]
            field.send(client, encoded(Subscribe(1, requests)))
            drained(client)
        for number in count():
            if field.over():
                break
            field.send(client, encoded(Publish(f"shared/{number}", b"x")))
            drained(client)
        client.close()


def wills(field: Field) -> None:
    """Clients that go without a word, each with a will for a hundred readers."""
    will = encode(Connect("", V5, will=Will("gone", b"x" * 100)), V5)
    with field.struggling():
        readers = [field.client() for _ in range(READERS)]
        for reader in readers:
            field.send(reader, encoded(Subscribe(1, [SubscribeRequest("gone", 0)])))
        while not field.over():
            with field.struggling():
                testator = field.open()
                field.send(testator, will)
                testator.recv(1024)
                testator.close()
            for reader in readers[:: READERS // 10]:
                drained(reader)
        for reader in readers:
            reader.close()


def _again_and_again(field: Field, act: Callable[[socket.socket], None]) -> None:
    with field.struggling():
        clients = [field.client() for _ in range(5)]
        while not field.over():
            for client in clients:
                act(client)
                drained(client)
        for client in clients:
            client.close()


ATTACKS: Final = (
    Attack(
        "filter-churn",
        "5 clients subscribe to a wildcard and unsubscribe from it, a filter in a packet",
        "dealt with in slices; what is remembered of topics is found again",
        "`access.limits`",
        filter_churn,
        30 * MIB,
    ),
    Attack("pings", "5 clients send PINGREQ after PINGREQ", "answered in slices", "`access.limits`", pings, 30 * MIB),
    Attack(
        "share-names",
        f"{GROUPS:,} groups with the same filter, and messages that go to all of them",
        "served; a message to one client by many groups is one piece of work",
        "`max_subscriptions`, `max_queue_memory`",
        share_names,
        300 * MIB,
    ),
    Attack(
        "wills",
        f"clients that go without a word, each with a will for {READERS} readers",
        "published as any message",
        "`access.limits`",
        wills,
        30 * MIB,
    ),
)
