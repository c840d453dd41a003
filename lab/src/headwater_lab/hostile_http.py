"""Attacks by HTTP: on REST over a store, and on the admin API.

The ground is a node with both (`store` and `admin` of the ground), whose store has a message of each of many topics.
What the good clients publish is not stored, so that they do not wait for a disk.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from itertools import count
from typing import Any, Final

from headwater.wire.encode import encode
from headwater.wire.packets import Publish
from headwater_lab.hostile_field import HOST, PATIENCE, Attack, Crowd, Field, connect

MIB: Final = 1 << 20
SILENT: Final = 300
HEADS: Final = 400
HEAD: Final = 240_000
BODY: Final = 1_000_000
CALLERS: Final = 8
ARROW: Final = 60
TAILS: Final = 32
SMALL: Final = 4096
"""Bytes that the system keeps for who does not read."""
TOPIC: Final = "kept"
PAYLOAD: Final = b'{"value": 1, "text": "' + b"x" * 1000 + b'"}'
TOGETHER: Final = 200
SETTLED: Final = 5
"""Looks at a store that has not changed between them."""
V5: Final = 5


def fill(port: int, messages: int) -> None:
    """Store a message of each of so many topics."""
    with socket.create_connection((HOST, port), PATIENCE) as client:
        client.sendall(connect("filler"))
        client.recv(1024)
        for start in range(0, messages, TOGETHER):
            numbers = range(start, min(start + TOGETHER, messages))
            packets = [Publish(f"{TOPIC}/{number:06d}", PAYLOAD, 1, packet_id=1 + number - start) for number in numbers]
            client.sendall(b"".join([encode(packet, V5) for packet in packets]))
            left = len(packets)
            rest = b""
            while left:
                data = client.recv(65536)
                if not data:
                    raise ConnectionError("the store could not be filled")
                rest += data
                while len(rest) >= 2 and len(rest) >= 2 + rest[1]:
                    rest = rest[2 + rest[1] :]
                    left -= 1


def settle(port: int, token: str) -> None:
    """Wait until the store makes no more blocks of what it was filled with, and the HTTP process has taken in what is
    in none: it does so when messages are first asked for, whoever asks."""

    def told(path: str) -> Any:
        connection = HTTPConnection(HOST, port, timeout=PATIENCE)
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        found = json.loads(connection.getresponse().read())
        connection.close()
        return found

    blocks, same = -1, 0
    while same < SETTLED:
        found = told("/v1/store")["blocks"]
        same = same + 1 if found == blocks else 0
        blocks = found
        time.sleep(0.1)
    told("/v1/topics?limit=1")


class HealthError(Exception):
    """Health was not answered."""


def check_health(field: Field) -> None:
    """It has to be, whatever goes on."""
    for port, path in ((field.rest_port, "/health"), (field.admin_port, "/healthz")):
        connection = HTTPConnection(HOST, port, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            if connection.getresponse().status != 200:
                raise HealthError(path)
        except (OSError, HTTPException) as error:
            raise HealthError(f"{path}: {error!r}") from error
        finally:
            connection.close()
        field.counts["health"] += 1


def _crowded(field: Field, size: int, opened: Callable[[], socket.socket], pause: float = 0.02) -> None:
    """So many connections, made anew when they are ended; health is asked for now and then."""
    crowd = Crowd(field, size, opened)
    for number in count():
        if field.over():
            break
        crowd.fill()
        crowd.tend()
        if number % 10 == 0:
            check_health(field)
        field.pause(pause)
    crowd.close()


def silent_http(field: Field) -> None:
    """Connections without a word, and with half a head, to REST and the admin API."""
    numbers = count()

    def opened() -> socket.socket:
        number = next(numbers)
        connection = field.open_at((field.rest_port, field.admin_port)[number % 2])
        if number % 4 < 2:
            field.send(connection, b"GET /v1/topics HTTP/1.1\r\nHost: x\r\n")
        return connection

    _crowded(field, SILENT, opened)


def http_heads(field: Field) -> None:
    """Heads of 240 KB that do not end, as many as there may be connections and more."""
    numbers = count()
    head = b"GET /v1/topics HTTP/1.1\r\nHost: x\r\nX: " + b"x" * HEAD

    def opened() -> socket.socket:
        connection = field.open_at((field.rest_port, field.admin_port)[next(numbers) % 2])
        try:
            field.send(connection, head)
        except OSError:
            connection.close()
            raise
        return connection

    _crowded(field, HEADS, opened)


def admin_unauthorised_bodies(field: Field) -> None:
    """Bodies of a megabyte of JSON, with a wrong token."""
    body = b'{"topic": "' + b"x" * BODY + b'"}'
    head = b"POST /v1/publish HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong-wrong-wrong\r\n"
    head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    while not field.over():
        with field.struggling(), field.open_at(field.admin_port) as connection:
            field.send(connection, head, body)
            if connection.recv(1024):
                field.counts["requests"] += 1


def ask(field: Field, port: int, paths: Callable[[int], str]) -> None:
    """One request after the other on one connection, until it is over."""
    connection = HTTPConnection(HOST, port, timeout=PATIENCE)
    for each in count():
        if field.over():
            break
        try:
            connection.request("GET", paths(each), headers={"Authorization": f"Bearer {field.token}"})
            body = connection.getresponse().read()
        except (OSError, HTTPException):
            field.counts["ends"] += 1
            connection.close()
            continue
        field.counts["requests"] += 1
        field.counts["bytes"] += len(body)
    connection.close()


def _callers(field: Field, number: int, paths: Callable[[int], str]) -> None:
    """So many callers at a time, each without a pause."""

    def calling() -> None:
        ask(field, field.rest_port, paths)

    threads = [threading.Thread(target=calling) for _ in range(number)]
    for each in threads:
        each.start()
    field.counts["connections"] += number
    for each in threads:
        each.join()


def topics_page(field: Field) -> None:
    _callers(field, CALLERS, lambda number: f"/v1/topics?limit=1&after={TOPIC}/{number % 1000:06d}")


def stalled_readers(field: Field) -> None:
    """Streams of Arrow and live tails from the beginning, of which nothing is read."""
    numbers = count()

    def opened() -> socket.socket:
        path = "/v1/messages?format=arrow" if next(numbers) % (ARROW + TAILS) < ARROW else "/v1/tail?after=0"
        connection = socket.socket()
        connection.settimeout(PATIENCE)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        connection.connect((HOST, field.rest_port))
        field.counts["connections"] += 1
        head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {field.token}\r\n\r\n"
        field.send(connection, head.encode())
        return connection

    members: list[socket.socket] = []
    while not field.over():
        with field.struggling():
            while len(members) < ARROW + TAILS:
                members.append(opened())
        check_health(field)
        field.pause(0.25)
        members = [each for each in members if not _is_over(each, field)]
    for each in members:
        each.close()


def _is_over(connection: socket.socket, field: Field) -> bool:
    """Refused, or cut off; looked at without reading."""
    with contextlib.suppress(BlockingIOError):
        connection.setblocking(False)
        try:
            said = connection.recv(16, socket.MSG_PEEK)
        except ConnectionError:
            said = b""
        if said.startswith(b"HTTP/1.1 200"):
            return False
        connection.close()
        field.counts["ends"] += 1
        return True
    return False


ATTACKS: Final = (
    Attack(
        "silent-http",
        "300 connections to REST and the admin API that are silent, or send half a head; health is asked for meanwhile",
        "a newcomer takes the place of who has waited longest; each phase has its time",
        "`rest.max_connections`, `rest.first_byte_timeout`, `rest.head_timeout` and those of `admin`",
        silent_http,
        20 * MIB,
        ("admin", "store"),
    ),
    Attack(
        "http-heads",
        "400 heads of 240 KB that do not end, on REST and the admin API",
        "all unfinished heads together are bounded; the oldest are cut off",
        "`rest.max_heads_size`, `admin.max_heads_size`",
        http_heads,
        40 * MIB,
        ("admin", "store"),
    ),
    Attack(
        "admin-unauthorised-bodies",
        "bodies of 1 MB to the admin API, with a wrong token",
        "401 before a byte of the body is read",
        "",
        admin_unauthorised_bodies,
        20 * MIB,
        ("admin",),
    ),
    Attack(
        "topics-page",
        "8 callers ask REST for one topic of 50,000, again and again",
        "a page costs what is on it",
        "",
        topics_page,
        60 * MIB,
        ("store",),
    ),
    Attack(
        "stalled-readers",
        "60 streams of Arrow and 32 live tails of a store of 50 MB, of which nothing is read",
        "their number is bounded, and what is made for them; who does not read is cut off",
        "`rest.max_streams`, `rest.max_answer_memory`, `rest.write_timeout`",
        stalled_readers,
        208 * MIB,
        ("store", "admin"),
        keeps=("rest.max_answer_memory",),
    ),
)
