"""Attacks by what retained messages cost: many to look through, and many to send to who hardly acknowledges."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from itertools import count
from typing import Final

from headwater.wire.packets import Puback, Publish, Subscribe, SubscribeRequest
from headwater_lab.hostile_field import PATIENCE, Attack, Field, drained, encoded

MIB: Final = 1 << 20
TOPICS: Final = 20_000
PORTION: Final = 100
FILTERS: Final = 10_000
"""In one SUBSCRIBE: as many as are allowed."""


def retained_filters(field: Field) -> None:
    """Filters of which each has to look at every topic, and finds nothing."""
    packet = encoded(Subscribe(1, [SubscribeRequest(f"kept/+/zz{number}", 1) for number in range(FILTERS)]))
    with _kept(field):
        clients = [field.client() for _ in range(5)]
        for client in clients:
            field.send(client, packet)
        field.pause(PATIENCE)
        for client in clients:
            client.close()  # which has not read anything: the broker sees it at once


def retained_qos1(field: Field) -> None:
    """Readers of everything that is kept, who acknowledge one message at a time, and subscribe again."""
    with _kept(field):
        readers = [field.client(f"slow-{number}") for number in range(20)]
        for reader in readers:
            field.send(reader, encoded(Subscribe(1, [SubscribeRequest("kept/#", 1)])))
        for packet_id in count(1):
            if field.over():
                break
            for reader in readers:
                field.send(reader, encoded(Puback(packet_id % 65_535 + 1)))
                if packet_id % 1000 == 0:
                    field.send(
                        reader, encoded(Subscribe(1, [SubscribeRequest("kept/#", 1), SubscribeRequest("kept/+/x", 2)]))
                    )
                drained(reader)
        for reader in readers:
            reader.close()


@contextlib.contextmanager
def _kept(field: Field) -> Iterator[None]:
    """There are retained messages, which are taken back at the end."""
    with field.struggling():
        keeper = field.client("keeps")
        try:
            _publish(field, keeper, b"x" * 20)
            yield
        finally:
            _publish(field, keeper, b"")
            keeper.close()


def _publish(field: Field, client: socket.socket, payload: bytes) -> None:
    for start in range(0, TOPICS, PORTION):
        field.send(
            client,
            *(
                encoded(Publish(f"kept/{number}/x", payload, 1, True, packet_id=number % PORTION + 1))
                for number in range(start, start + PORTION)
            ),
        )
        drained(client)


ATTACKS: Final = (
    Attack(
        "retained-filters",
        f"5 SUBSCRIBEs of {FILTERS:,} filters that each have to look at all of {TOPICS:,} retained messages",
        "looked for in slices, behind others; the client is not read from meanwhile",
        "`max_retained`, `max_subscriptions`",
        retained_filters,
        100 * MIB,
    ),
    Attack(
        "retained-qos1",
        f"20 readers of {TOPICS:,} retained messages, with QoS 1, who acknowledge one at a time",
        "sent as they are acknowledged; nothing is copied for a reader that waits",
        "`max_inflight`, `max_retained`",
        retained_qos1,
        200 * MIB,
    ),
)
