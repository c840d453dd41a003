"""Clients that come and go, over TCP, TLS and WebSocket, for a soak.

A guest connects, subscribes (wildcards, shared groups), publishes with all QoS levels, sets and clears retained
messages, unsubscribes, and leaves: politely, by a cut (its will is published), or by being taken over. What it is sent
it acknowledges. Ids and topics are few, so sessions that wait a few seconds meet their owner again, and what the broker
holds keeps around the same size.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import socket
import ssl
import time
from collections import Counter
from random import Random
from typing import Final

from headwater.wire.decode import FROM_SERVER, decode
from headwater.wire.encode import encode
from headwater.wire.framing import PacketReader
from headwater.wire.packets import (
    Connect,
    Disconnect,
    Packet,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    SubscribeRequest,
    Unsubscribe,
    Will,
)
from headwater.wire.websocket import BINARY, FrameReader, masked_frame
from headwater_lab.hostile_field import HOST, PATIENCE

CROWD: Final = 60
NAMES: Final = 200
TOPICS: Final = 300
FILTERS: Final = ("soak/#", "soak/+/x", "$share/one/soak/#", "$share/two/soak/+/x", "other/+")
TLS: Final = "tls"
WEB: Final = "websocket"


class Guest:
    """One client. `exchange` sends packets and deals with what has come; OSError: the connection is over."""

    def __init__(self, kind: str, port: int, context: ssl.SSLContext) -> None:
        self.kind = kind
        self._socket = socket.create_connection((HOST, port), PATIENCE)
        if kind == TLS:
            self._socket = context.wrap_socket(self._socket)
        self._frames = FrameReader(masked=False)
        self._packets = PacketReader(1 << 20)
        self.received = 0
        self.filters: list[str] = []
        if kind == WEB:
            self._upgrade()

    def _upgrade(self) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        self._socket.sendall(
            f"GET /mqtt HTTP/1.1\r\nHost: {HOST}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n".encode()
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = self._socket.recv(1)
            if not byte:
                raise ConnectionError("no WebSocket")
            head += byte

    def exchange(self, *packets: Packet, wait: bool = False) -> None:
        """With `wait`, until something has come."""
        data = b"".join(encode(packet, 5) for packet in packets)
        if data:
            self._send(data)
        while True:
            self._socket.settimeout(PATIENCE if wait else 0.0)
            try:
                came = self._socket.recv(1 << 16)
            except (BlockingIOError, ssl.SSLWantReadError):
                return
            finally:
                self._socket.settimeout(PATIENCE)
            if not came:
                raise ConnectionError("the broker has ended it")
            wait = False
            self._packets.feed(self._frames.feed(came) if self.kind == WEB else came)
            answers = [answer for frame in self._packets if (answer := self._answer(*frame)) is not None]
            if answers:
                self._send(b"".join(answers))

    def _answer(self, first: int, body: bytes) -> bytes | None:
        packet = decode(first, body, 5, FROM_SERVER)
        if isinstance(packet, Publish):
            self.received += 1
            if packet.qos:
                return encode((Puback if packet.qos == 1 else Pubrec)(packet.packet_id), 5)
        elif isinstance(packet, Pubrec):
            return encode(Pubrel(packet.packet_id), 5)
        elif isinstance(packet, Pubrel):
            return encode(Pubcomp(packet.packet_id), 5)
        return None

    def _send(self, data: bytes) -> None:
        self._socket.sendall(masked_frame(BINARY, data, os.urandom(4)) if self.kind == WEB else data)

    def close(self) -> None:
        self._socket.close()


class Churn:
    """A crowd of guests, driven by a seed."""

    def __init__(self, ports: dict[str, int], seed: int) -> None:
        self._ports = ports
        self._random = Random(seed)
        self._context = ssl.create_default_context()
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE
        self._guests: list[Guest] = []
        self.counts: Counter[str] = Counter()

    def step(self) -> None:
        random = self._random
        if len(self._guests) < CROWD or random.random() < 0.05:
            with contextlib.suppress(OSError):
                self._come()
            return
        guest = random.choice(self._guests)
        try:
            if len(self._guests) > CROWD or random.random() < 0.15:
                self._go(guest)
            else:
                self._act(guest)
        except OSError:
            self.counts["ended by the broker"] += 1
            self._part(guest)

    def _come(self) -> None:
        random = self._random
        kind = random.choice(list(self._ports))
        guest = Guest(kind, self._ports[kind], self._context)
        self._guests.append(guest)
        self.counts[f"connections over {kind}"] += 1
        will = (
            Will(f"soak/{random.randrange(TOPICS)}/x", b"gone", random.randrange(3)) if random.random() < 0.5 else None
        )
        packet = Connect(f"guest-{random.randrange(NAMES)}", 5, random.random() < 0.5, 30, will=will)
        packet.properties = Properties(session_expiry_interval=random.choice((0, 0, 1, 3)))
        try:
            guest.exchange(packet, wait=True)
        except OSError:
            self._part(guest)

    def _act(self, guest: Guest) -> None:
        random = self._random
        chance = random.random()
        packet_id = random.randrange(1, 60_000)
        topic = f"soak/{random.randrange(TOPICS)}/x"
        if chance < 0.2:
            guest.filters = random.sample(FILTERS, random.randrange(1, 3))
            guest.exchange(
                Subscribe(packet_id, [SubscribeRequest(each, random.randrange(3)) for each in guest.filters])
            )
            self.counts["subscribes"] += 1
        elif chance < 0.3 and guest.filters:
            guest.exchange(Unsubscribe(packet_id, guest.filters))
            guest.filters = []
            self.counts["unsubscribes"] += 1
        elif chance < 0.5:
            payload = b"" if random.random() < 0.3 else random.randbytes(random.randrange(500))
            guest.exchange(Publish(topic, payload, 0, True))
            self.counts["retained"] += 1
        else:
            qos = random.randrange(3)
            size = random.choice((10, 100, 1000, 20_000))
            guest.exchange(Publish(topic, bytes(size), qos, packet_id=packet_id if qos else 0))
            self.counts["messages"] += 1

    def _go(self, guest: Guest) -> None:
        if self._random.random() < 0.5:
            guest.exchange(Disconnect())
            self.counts["goodbyes"] += 1
        else:
            self.counts["cuts"] += 1
        self._part(guest)

    def _part(self, guest: Guest) -> None:
        self.counts["messages received"] += guest.received
        self._guests.remove(guest)
        guest.close()

    def close(self) -> None:
        for guest in list(self._guests):
            self._part(guest)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("ports", type=int, nargs=3, help="plain, TLS, WebSocket")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate", type=float, default=400.0, help="steps a second")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    churn = Churn(dict(zip(("tcp", TLS, WEB), options.ports, strict=True)), options.seed)
    print("begun", flush=True)
    began = time.monotonic()
    steps = 0
    while (now := time.monotonic() - began) < options.seconds:
        if steps < now * options.rate:
            churn.step()
            steps += 1
        else:
            time.sleep(1 / options.rate)
    churn.close()
    print(json.dumps(churn.counts), flush=True)
