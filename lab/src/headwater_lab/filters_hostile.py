"""Strangers who use conditions against the broker: the worst that they may write, and what they may not.

They subscribe to one topic with the dearest conditions that are allowed, each a different one, and ask for others that
are too deep, too long, look like regular expressions or have numbers that are none; they publish payloads that are
deep, have numbers of thousands of digits, are NaN, or CBOR that promises more than it has. Meanwhile somebody who has
nothing to do with it pings. The bound is held if all bad conditions are refused with 0x8F and a place, no connection
ends, that client's slowest answer comes within `SLOWEST`, and the broker does not grow by more than `MOST`.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from pathlib import Path
from typing import Final, NamedTuple

from headwater.fleet.process import RunningBroker
from headwater.wire import FROM_SERVER, PacketReader, decode, encode
from headwater.wire.packets import (
    V5,
    Connect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Suback,
    Subscribe,
    SubscribeRequest,
)
from headwater.wire.reasons import TOPIC_FILTER_INVALID

ATTACKERS: Final = 100
SLOWEST: Final = 0.25
"""Seconds: of two cores, others may have one or both."""
MOST: Final = 64 << 20
PATIENCE: Final = 30.0

BAD: Final = (
    "(" * 500 + "a = 1" + ")" * 500,
    "not " * 250 + "a",
    "a = '" + "x" * 60_000 + "'",
    " or ".join(["a = 1"] * 120),
    "a in (" + ",".join(["1"] * 400) + ")",
    "a" + ".b" * 400 + " = 1",
    "a ~ /^(a+)+$/",
    "a like '%a%a%a%a%a%a%'",
    "a = " + "9" * 900,
    "a > 1e99999",
    "a > NaN",  # NaN is a name like any other; the next are not
    "a > -Infinity",
    "\x01\x02",
    "a = 'open",
    "limit 1 per 1e30s",
    "limit 99999999999999999999 per 1s",
)
ALLOWED: Final = ("a > NaN",)


def dearest(number: int) -> str:
    """As many tests as there may be in so many characters, none of which is decided before the last: on numbers, on
    long texts, on user properties."""
    tests = (f"a.b.c[{number % 90}]>{{}}", f"x<y or k{number}={{}}", f"user.k{number}={{}}")[number % 3]
    return " or ".join([tests.format(at) for at in range(60 if number % 3 != 1 else 30)])[:1020].rpartition(" or ")[0]


PAYLOADS: Final = (
    b"[" * 65_000,
    b'{"a":' * 12_000,
    b'{"a": ' + b"9" * 65_000 + b"}",
    b'{"a": NaN}',
    b"[" + b"1e308," * 10_000 + b"1]",
    b'{"a": {"b": {"c": [' + b",".join([b'"' + b"x" * 600 + b'"'] * 100) + b"]}}}",
    ('{"x": "' + "x" * 30_000 + '\N{SNOWMAN}", "y": "' + "x" * 30_000 + '"}').encode(),  # texts of two widths
    b"\x9b" + b"\xff" * 8,
    b"\xbf" + b"\x61a\x01" * 20_000,
    b"\xd8\x40" * 30_000,
    b"\xff" * 65_000,
)
MANY: Final = Properties(user_properties=[(f"p{number}", "1") for number in range(1000)])


class Held(NamedTuple):
    """`refused` conditions, the innocent client's slowest answer in seconds, bytes that the broker has grown by."""

    refused: int
    worst: float
    grown: int
    is_held: bool


class Stranger:
    def __init__(self, port: int, name: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = PacketReader(1 << 24)
        self.send(Connect(name, V5))
        self.next()

    def send(self, packet: Packet) -> None:
        self.socket.sendall(encode(packet, V5))

    def next(self) -> Packet:
        while True:
            for first, body in self._reader:
                return decode(first, body, V5, FROM_SERVER)
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionError("the broker ended the connection")
            self._reader.feed(data)

    def ask(self, condition: str) -> Suback:
        properties = Properties(user_properties=[("filter", condition)])
        self.send(Subscribe(1, [SubscribeRequest("attacked")], properties))
        while True:
            packet = self.next()
            if isinstance(packet, Suback):
                return packet

    def drain(self) -> None:
        """What the broker sends is read, so that it has somewhere to send to."""
        while select.select([self.socket], [], [], 0)[0]:
            if not self.socket.recv(1 << 20):
                raise ConnectionError("the broker ended the connection")


def attack(broker: RunningBroker, seconds: float) -> Held:
    with contextlib.ExitStack() as stack:

        def stranger(name: str) -> Stranger:
            made = Stranger(broker.port, name)
            stack.callback(made.socket.close)
            return made

        innocent, writer = stranger("innocent"), stranger("writer")
        first = stranger("bad")
        before = _size(broker)
        refused = sum(_is_refused(first.ask(text)) for text in BAD)
        attackers = [stranger(f"attacker-{number}") for number in range(ATTACKERS)]
        granted = sum(each.ask(dearest(number)).reasons[0] < 0x80 for number, each in enumerate(attackers))
        worst = 0.0
        until = time.monotonic() + seconds
        turn = 0
        while time.monotonic() < until:
            for payload in PAYLOADS:
                writer.send(Publish("attacked", payload, properties=MANY))
                began = time.monotonic()
                innocent.send(Pingreq())
                while not isinstance(innocent.next(), Pingresp):
                    pass
                worst = max(worst, time.monotonic() - began)
            writer.drain()
            attackers[turn % ATTACKERS].ask(dearest(turn))  # and the place in which they are evaluated is made anew
            turn += 1
        grown = _size(broker) - before
    is_held = (
        refused == len(BAD) - len(ALLOWED) and granted == ATTACKERS and worst <= SLOWEST and grown <= MOST and turn > 0
    )
    return Held(refused, worst, grown, is_held)


def _is_refused(answer: Suback) -> bool:
    said = None if answer.properties is None else answer.properties.reason_string
    return answer.reasons == [TOPIC_FILTER_INVALID] and said is not None and "at character" in said


def _size(broker: RunningBroker) -> int:
    """Bytes in memory."""
    found = 0
    for pid in broker.pids():
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                found += int(line.split()[1]) << 10
    return found
