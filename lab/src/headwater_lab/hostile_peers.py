"""Attacks by how a connection is used: slow, half, many, over and over."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
from functools import partial
from itertools import count, cycle, islice
from typing import Final

from headwater.wire.packets import Publish, Subscribe, SubscribeRequest
from headwater_lab.hostile_field import HOST, PATIENCE, Attack, Crowd, Field, connect, encoded
from headwater_lab.hostile_http import ask

CROWD: Final = 1000
MIB: Final = 1 << 20


def slowloris(field: Field) -> None:
    """A crowd that sends its CONNECT a byte at a time, so slowly that it never ends."""
    data = connect("slow" * 20)
    crowd = Crowd(field, CROWD, field.open)
    for position in count():
        if field.over():
            break
        crowd.fill()
        byte = data[position % 10 : position % 10 + 1]  # never whole: it is not meant to be a CONNECT
        crowd.each(partial(field.send_to, byte), islice(cycle(list(crowd.members)), 50))
        crowd.tend()
        field.pause(0.01)
    crowd.close()


def half_open(field: Field) -> None:
    """A crowd that connects with a keep alive of a second, and falls silent; half of it closes its half first."""
    numbers = count()

    def opened() -> socket.socket:
        client = field.client(f"half-{next(numbers)}", keep_alive=1)
        if next(numbers) % 4 == 0:
            client.shutdown(socket.SHUT_WR)
        return client

    crowd = Crowd(field, CROWD, opened)
    while not field.over():
        crowd.fill(20)
        crowd.tend()
        field.pause(0.02)
    crowd.close()


def byte_at_a_time(field: Field) -> None:
    """A hundred clients publish, each byte in a segment of its own."""
    packet = encoded(Publish("bytes/x", b"x" * 40))
    crowd = Crowd(field, 100, field.client)
    for position in count():
        if field.over():
            break
        crowd.fill()
        byte = packet[position % len(packet) : position % len(packet) + 1]
        crowd.each(partial(field.send_to, byte))
        crowd.tend()
    crowd.close()


def take_overs(field: Field) -> None:
    """One client id, connected again and again; each connection takes the session of the one before."""
    packet = connect("victim", session_expiry_interval=60)
    taken: list[socket.socket] = []
    while not field.over():
        with field.struggling():
            taken.append(field.open())
            field.send(taken[-1], packet)
            if len(taken) > 20:
                taken.pop(0).close()
    for each in taken:
        each.close()


def connection_storm(field: Field) -> None:
    """Connections come and go as fast as they can, half of them before they have said anything."""
    packet = connect()
    for number in count():
        if field.over():
            break
        with field.struggling():
            connection = field.open()
            if number % 2:
                field.send(connection, packet)
            connection.close()


def never_reads(field: Field) -> None:
    """Clients that subscribe to what they publish and never read."""

    def opened() -> socket.socket:
        client = field.client(receive_maximum=65535)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        field.send(client, encoded(Subscribe(1, [SubscribeRequest("deaf/#", 1)])))
        client.settimeout(0.01)
        return client

    packet = encoded(*(Publish("deaf/x", b"x" * 1000, 1, packet_id=number) for number in range(1, 21)))
    crowd = Crowd(field, 20, opened)
    while not field.over():
        crowd.fill()
        crowd.each(partial(_try_to_send, field, packet))
        field.pause(0.01)
    crowd.close()


def _try_to_send(field: Field, data: bytes, member: socket.socket) -> None:
    """What the broker does not take now is left: the rest of the stream makes no sense then, so the client ends."""
    try:
        field.send(member, data)
    except TimeoutError:
        raise ConnectionError("the broker reads no more") from None


def tls_handshakes(field: Field) -> None:
    """One ClientHello, sent again and again: the broker signs, and the client leaves."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    hello = context.wrap_bio(ssl.MemoryBIO(), outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        hello.do_handshake()
    data = outgoing.read()
    left: list[socket.socket] = []
    while not field.over():
        with field.struggling():
            left.append(field.open(secure=True))
            field.send(left[-1], data)
            if len(left) > 50:
                left.pop(0).close()
    for each in left:
        each.close()


def tls_renegotiation(field: Field) -> None:
    """Ask for a new handshake (TLS 1.2) on connections that have one, with OpenSSL's own client."""
    program = shutil.which("openssl")
    if program is None:
        raise FileNotFoundError("openssl is needed to ask for a renegotiation (Debian: apt install openssl)")
    words = [program, "s_client", "-tls1_2", "-connect", f"{HOST}:{field.secure_port}"]
    while not field.over():
        asking = [
            subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for _ in range(4)
        ]
        for each in asking:
            field.counts["connections"] += 1
            try:
                each.communicate(b"R\nR\nR\n", timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                each.kill()
                each.communicate()


def admin_pages(field: Field) -> None:
    """Page after page of the admin API, without a pause, while there are ten thousand sessions."""
    ask(field, field.admin_port, lambda each: f"/v1/sessions?limit=200&offset={200 * each % 10_000}")


ATTACKS: Final = (
    Attack(
        "slowloris",
        "1000 connections send a CONNECT that never ends, a byte at a time",
        "cut off after the time for a CONNECT; nothing is read ahead",
        "`connect_timeout`, `max_connections`",
        slowloris,
        20 * MIB,
    ),
    Attack(
        "half-open",
        "1000 clients connect and fall silent, some close their half",
        "ended after 1.5 × their keep alive; who closes its half is ended at once",
        "`max_keep_alive`, `max_connections`",
        half_open,
        20 * MIB,
    ),
    Attack(
        "byte-at-a-time",
        "100 clients publish with each byte in a segment of its own",
        "bytes are kept until the packet is whole; only whole packets are signs of life",
        "`access.limits`",
        byte_at_a_time,
        20 * MIB,
    ),
    Attack(
        "take-overs",
        "one client id connects again and again",
        "the newer connection wins, the older one gets 0x8E",
        "`access.limits`",
        take_overs,
        20 * MIB,
    ),
    Attack(
        "connection-storm",
        "connections come and go, half of them without a word",
        "a bounded number is accepted per turn",
        "`access.limits`",
        connection_storm,
        20 * MIB,
    ),
    Attack(
        "never-reads",
        "20 clients publish QoS 1 to themselves and each other, and never read",
        "what waits is bounded, then they are not read from, then cut off",
        "`outbound_buffer`, `max_inflight`, `max_queued_messages`, `write_timeout`",
        never_reads,
        40 * MIB,
        keeps=("max_queue_memory",),
    ),
    Attack(
        "tls-handshakes",
        "a ClientHello, sent on new connections again and again",
        "a thread beside the loop does them, in the order in which they come",
        "`connect_timeout`, `access.limits`",
        tls_handshakes,
        30 * MIB,
        ("tls",),
    ),
    Attack(
        "tls-renegotiation",
        "TLS 1.2 clients ask for a new handshake",
        "refused (no_renegotiation)",
        "",
        tls_renegotiation,
        20 * MIB,
        ("tls",),
    ),
    Attack(
        "admin-pages",
        "page after page of 10,000 sessions from the admin API",
        "an answer is made in slices, with turns of the clients between them",
        "",
        admin_pages,
        40 * MIB,
        ("admin", "sessions"),
    ),
)
