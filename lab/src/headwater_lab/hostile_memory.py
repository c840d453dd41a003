"""Attacks on memory: whatever a client can have the broker keep, as much of it as it takes.

Each one goes on until it is refused, and then asks for more. At its end it takes away what it left, so that a later
round shows whether memory came back.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from itertools import count
from typing import Any, Final

from headwater.wire import FROM_SERVER, PacketReader, decode
from headwater.wire.encode import encode
from headwater.wire.packets import (
    Connect,
    Disconnect,
    Packet,
    Properties,
    Puback,
    Publish,
    Subscribe,
    SubscribeRequest,
    Will,
)
from headwater_lab.hostile_field import PATIENCE, PIECE, Attack, Crowd, Field, drained, encoded

MIB: Final = 1 << 20
BESIDE: Final = 40 * MIB
"""Bytes for connections, for packets that are being dealt with, and for free memory that is kept."""
V5: Final = 5
LONG: Final = "x" * 65_000
HEAVY: Final = Properties(user_properties=[("k", LONG), ("k", LONG)])
HOURS: Final = 10_000
QUOTAS: Final = "[access]\nmax_retained_per_user = 20000\nmax_subscriptions_per_user = 2000\n"
"""Settings of the ground `quotas`."""
RETAINED_QUOTA: Final = 20_000
SUBSCRIPTION_QUOTA: Final = 2_000


class Talk:
    """A connection whose answers are read."""

    def __init__(self, field: Field, packet: Connect) -> None:
        self._field = field
        self._reader = PacketReader()
        self.connection = field.open()
        self.send(packet)

    def send(self, *packets: Packet) -> None:
        self._field.send(self.connection, *(encode(packet, V5) for packet in packets))

    def answers(self) -> Iterator[Packet]:
        """Packets that come, one after the other; ConnectionError: nothing comes any more."""
        while True:
            for first, body in self._reader:
                yield decode(first, body, V5, FROM_SERVER)
            data = self.connection.recv(PIECE)
            if not data:
                raise ConnectionError("the broker has ended it")
            self._reader.feed(data)

    def answer(self) -> Any:
        return next(self.answers())

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.close()


def _connect(client_id: str, **fields: Any) -> Connect:
    return Connect(client_id, V5, **fields)


def _kept(client_id: str, **fields: Any) -> Connect:
    return _connect(client_id, properties=Properties(session_expiry_interval=HOURS), **fields)


def _forget(field: Field, client_ids: list[str]) -> None:
    """End sessions that are away: a clean start, and a normal end."""
    for client_id in client_ids:
        with field.struggling():
            talk = Talk(field, _connect(client_id))
            talk.answer()
            talk.send(Disconnect())
            talk.close()


# ---- strangers ---------------------------------------------------------------------------------------------------


def half_connects(field: Field) -> None:
    """A crowd of which each has sent all but the end of a CONNECT of half a megabyte, while a session that is away is
    owed messages: each that was acknowledged has to arrive."""
    half = encode(_connect("half", will=Will("w", bytes(65_000)), properties=HEAVY, username=LONG), V5)[:-10]
    owed = Talk(field, _kept("owed"))
    owed.send(Subscribe(1, [SubscribeRequest("owed", 1)]))
    owed.answer(), owed.answer()
    owed.close()
    publisher = Talk(field, _connect("owing"))
    publisher.answer()
    acknowledged: list[bytes] = []

    def opened() -> socket.socket:
        connection = field.open()
        field.send(connection, half)
        return connection

    crowd = Crowd(field, 1000, opened)
    for number in count():
        if field.over():
            break
        crowd.fill(10)
        crowd.tend()
        payload = b"%d" % number + bytes(1000)
        publisher.send(Publish("owed", payload, 1, packet_id=1))
        answer = publisher.answer()
        if isinstance(answer, Puback) and answer.reason < 0x80:
            acknowledged.append(payload)
    crowd.close()
    publisher.close()
    _take_all(field, acknowledged)


def _take_all(field: Field, acknowledged: list[bytes]) -> None:
    """RuntimeError: something that was acknowledged does not arrive."""
    owed = Talk(field, _connect("owed", clean_start=False))
    found: list[bytes] = []
    owed.connection.settimeout(PATIENCE)
    with field.struggling():
        for packet in owed.answers():
            if isinstance(packet, Publish):
                found.append(packet.payload)
                owed.send(Puback(packet.packet_id))
            if len(found) == len(acknowledged):
                break
    owed.close()
    if found != acknowledged:
        raise RuntimeError(f"{len(acknowledged)} messages were acknowledged, {len(found)} arrived")


# ---- clients -----------------------------------------------------------------------------------------------------


def retained_properties(field: Field) -> None:
    """Retained messages with a byte of payload and 130,000 of properties, each of another topic."""
    talk = Talk(field, _connect("retainer"))
    talk.answer()
    number = 0
    while not field.over():
        number += 1
        talk.send(Publish(f"heavy/{number}", b"x", 1, True, packet_id=1, properties=HEAVY))
        if talk.answer().reason >= 0x80:
            field.counts["refused"] += 1
    for each in range(1, number + 1):
        talk.send(Publish(f"heavy/{each}", b"", 0, True))
    talk.send(Publish("done", b"", 1, packet_id=2))
    talk.answer()
    talk.close()


def away_wills(field: Field) -> None:
    """Sessions whose clients go and leave wills of 200,000 bytes that are to be published in some hours."""
    delayed = Properties(will_delay_interval=HOURS, user_properties=HEAVY.user_properties)
    left: list[str] = []
    for number in count():
        if field.over():
            break
        with field.struggling():
            talk = Talk(field, _kept(f"testator-{number}", will=Will("w", bytes(65_000), properties=delayed)))
            if talk.answer().reason >= 0x80:
                field.counts["refused"] += 1
            else:
                left.append(f"testator-{number}")
            talk.close()
    _forget(field, left)


def long_client_ids(field: Field) -> None:
    """Sessions with ids and user names of 65,000 bytes, that are kept."""
    left: list[str] = []
    for number in count():
        if field.over():
            break
        client_id = f"{number}{LONG}"
        with field.struggling():
            talk = Talk(field, _kept(client_id, username=client_id))
            if talk.answer().reason >= 0x80:
                field.counts["refused"] += 1
            else:
                left.append(client_id)
            talk.close()
    _forget(field, left)


def long_filters(field: Field) -> None:
    """Subscriptions with filters of 65,000 bytes, half of them shared."""
    talk = Talk(field, _connect("subscriber"))
    talk.answer()
    for number in count():
        if field.over():
            break
        name = f"{'$share/g/' if number % 2 else ''}{number}{LONG}"
        talk.send(Subscribe(1, [SubscribeRequest(name, 1)]))
        field.counts["refused"] += talk.answer().reasons[0] >= 0x80
    talk.close()


def filter_lists(field: Field) -> None:
    """Ten clients at a time send SUBSCRIBE packets of 6.5 MB, a hundred filters of 65,000 bytes each."""
    packet = encode(Subscribe(1, [SubscribeRequest(f"{number}{LONG}") for number in range(100)]), V5)
    with field.struggling():
        sent = {field.client(): 0 for _ in range(10)}
        while not field.over():
            if not sum(_send_on(field, client, sent, packet) for client in sent):
                field.pause(0.0005)
        for client in sent:
            client.close()


def _send_on(field: Field, client: socket.socket, sent: dict[socket.socket, int], packet: bytes) -> bool:
    """A piece of a packet, or the next one; False: the broker does not read from this client now."""
    drained(client)
    client.setblocking(False)
    try:
        size = client.send(packet[sent[client] : sent[client] + PIECE])
    except BlockingIOError:
        return False
    sent[client] += size
    field.counts["bytes"] += size
    if sent[client] == len(packet):
        sent[client] = 0
        field.counts["packets"] += 1
    return True


def topic_aliases(field: Field) -> None:
    """Clients that use all their aliases for topics of 65,000 bytes; one in ten takes as many as it can."""
    numbers = count()
    clients = count()

    def opened() -> socket.socket:
        talk = Talk(field, _connect("", properties=Properties(topic_alias_maximum=65_535)))
        talk.answer()
        if next(clients) % 10 == 0:
            talk.send(Subscribe(1, [SubscribeRequest("alias/#", 0)]))
        return talk.connection

    def publish(member: socket.socket) -> None:
        number = next(numbers)
        topic = f"alias/{number}{LONG}"
        alias = Properties(topic_alias=1 + number % 64)
        field.send(member, encoded(Publish(topic, b"x", properties=alias)))
        drained(member)

    crowd = Crowd(field, 100, opened)
    while not field.over():
        crowd.fill(10)
        crowd.each(publish)
        crowd.tend()
    crowd.close()


# ---- quotas ------------------------------------------------------------------------------------------------------


def retained_quota(field: Field) -> None:
    """A user that has as many retained messages as it may have, and publishes more of them."""
    talk = Talk(field, _connect("keeper", username="greedy"))
    talk.answer()
    for start in range(0, RETAINED_QUOTA, 500):
        talk.send(*(Publish(f"quota/{number}", b"x", 0, True) for number in range(start, start + 500)))
    _refused(field, talk, [Publish(f"more/{number}", b"x", 1, True, packet_id=number) for number in range(1, 51)])
    talk.close()


def subscription_quota(field: Field) -> None:
    """A user that has as many subscriptions as it may have, in as many sessions, and subscribes to more."""
    for number in range(SUBSCRIPTION_QUOTA):
        if field.over():
            break
        with field.struggling():
            talk = Talk(field, _kept(f"member-{number}", username="greedy", clean_start=False))
            talk.send(Subscribe(1, [SubscribeRequest(f"quota/{number}")]))
            talk.answer()
            talk.close()
    talk = Talk(field, _connect("asking", username="greedy"))
    talk.answer()
    requests = [SubscribeRequest(f"more/{number}") for number in range(50)]
    _refused(field, talk, [Subscribe(1, requests)])
    talk.close()


def _refused(field: Field, talk: Talk, packets: list[Packet]) -> None:
    """The same again and again, as fast as it is answered."""
    while not field.over():
        talk.send(*packets)
        for _ in packets:
            talk.answer()
            field.counts["refused"] += 1


ATTACKS: Final = (
    Attack(
        "half-connects",
        "1000 connections with all but the end of a CONNECT of 260 KB, while a session that is away is owed QoS 1",
        "the oldest of them give way; what was acknowledged for the session arrives",
        "`max_unauthenticated_memory`, `max_unauthenticated_per_address`, `connect_timeout`",
        half_connects,
        BESIDE,
        keeps=("max_unauthenticated_memory",),
    ),
    Attack(
        "retained-properties",
        "retained messages with 130 KB of properties each",
        "0x97 when there is no room",
        "`max_retained_bytes`, `access.max_retained_bytes_per_user`",
        retained_properties,
        BESIDE,
        keeps=("max_retained_bytes",),
    ),
    Attack(
        "away-wills",
        "sessions that are away, with wills of 200 KB each",
        "CONNECT is refused with 0x97 when there is no room",
        "`max_session_memory`, `access.max_session_memory_per_user`",
        away_wills,
        BESIDE,
        keeps=("max_session_memory",),
    ),
    Attack(
        "long-client-ids",
        "sessions with client ids and user names of 65 KB",
        "CONNECT is refused with 0x97 when there is no room",
        "`max_session_memory`, `max_sessions`",
        long_client_ids,
        BESIDE,
        keeps=("max_session_memory", "max_unauthenticated_memory"),
    ),
    Attack(
        "long-filters",
        "subscriptions with filters of 65 KB, half of them shared",
        "0x97 when there is no room",
        "`max_session_memory`, `max_subscriptions`",
        long_filters,
        BESIDE,
        keeps=("max_session_memory",),
    ),
    Attack(
        "filter-lists",
        "10 clients send SUBSCRIBE packets of 100 filters of 65 KB each",
        "decoded and dealt with one filter at a time; 0x97 when there is no room",
        "`max_session_memory`, `max_queue_memory`, `max_packet_size`",
        filter_lists,
        BESIDE,
        keeps=("max_session_memory", "max_queue_memory"),
    ),
    Attack(
        "topic-aliases",
        "100 clients with topic aliases for topics of 65 KB, ten of them both ways",
        "without room, we use none, and who makes more is disconnected (0x97)",
        "`max_session_memory`, `topic_alias_maximum`",
        topic_aliases,
        BESIDE,
        keeps=("max_session_memory", "max_queue_memory"),
    ),
    Attack(
        "retained-quota",
        "a user with 20,000 retained messages, as many as it may have, publishes more",
        "0x97; sums are kept by user",
        "`access.max_retained_per_user`",
        retained_quota,
        60 * MIB,
        ("quotas",),
    ),
    Attack(
        "subscription-quota",
        "a user with 2,000 sessions and as many subscriptions as it may have asks for more",
        "0x97; sums are kept by user",
        "`access.max_subscriptions_per_user`",
        subscription_quota,
        60 * MIB,
        ("quotas",),
    ),
)
