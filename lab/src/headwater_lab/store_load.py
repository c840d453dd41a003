"""Publishers that send as fast as a broker reads: a hundred connections, packets that were made before.

With QoS 0 each connection is written to whenever it takes something, so the broker's reading sets the pace. With QoS 1
each has so many messages under way at most, and PUBACKs have to come in the order of the messages, each once.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Final

from headwater.wire.encode import encode, encode_publish
from headwater.wire.packets import Connect
from headwater.wire.primitives import encode_packet_id
from headwater_lab.load import LoadError
from headwater_lab.store_messages import PUBLISHERS, Readings, publisher_of, topic_of

PIECE: Final = 256 * 1024
"""Bytes of one write."""
PATIENCE: Final = 30.0
"""Seconds without anything happening after which nothing will."""
IDS: Final = 65535
CLOSED: Final = "a connection was closed"
MQTT_3_1_1: Final = 4
_ACCEPTED: Final = b"\x20\x02\x00\x00"


class Line:
    """One publisher: its connection, all its packets in one piece, and where each of them ends."""

    def __init__(self, port: int, name: str, packets: bytes, ends: Sequence[int], answers: bytes) -> None:
        self.packets = memoryview(packets)
        self.ends = ends
        self.answers = answers
        self.sent = 0
        """Bytes."""
        self.acknowledged = 0
        """Messages."""
        self._answered = 0
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.socket.sendall(encode(Connect(name, keep_alive=0), MQTT_3_1_1))
        if self.socket.recv(4, socket.MSG_WAITALL) != _ACCEPTED:
            self.socket.close()
            raise LoadError(f"{name} was not accepted")
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)

    def send(self, up_to: int) -> bool:
        """Write up to this byte, as far as the connection takes it; whether it took all."""
        try:
            while self.sent < up_to:
                self.sent += self.socket.send(self.packets[self.sent : min(up_to, self.sent + PIECE)])
        except BlockingIOError:
            return False
        except ConnectionError as error:
            raise LoadError(f"{CLOSED}: {error}") from None
        return True

    def send_window(self, window: int) -> bool:
        """All that may be under way."""
        last = min(len(self.ends), self.acknowledged + window)
        return self.send(self.ends[last - 1])

    def receive(self) -> None:
        """LoadError: an answer that is not the one that comes next."""
        try:
            came = self.socket.recv(65536)
        except ConnectionError as error:
            raise LoadError(f"{CLOSED}: {error}") from None
        if not came:
            raise LoadError(CLOSED)
        if came != self.answers[self._answered : self._answered + len(came)]:
            raise LoadError("a PUBACK is wrong or out of order")
        self._answered += len(came)
        self.acknowledged = self._answered // 4


class Publishers:
    """All connected, nothing sent yet."""

    def __init__(self, port: int, rounds: Iterable[Readings], qos: int) -> None:
        self.lines = [
            Line(port, publisher_of(part), b"".join(packets), _ends(packets), _answers(len(packets) if qos else 0))
            for part, packets in enumerate(_packets(rounds, qos))
        ]
        self.messages = sum(len(line.ends) for line in self.lines)

    def send_all(self) -> float:
        """Write everything; returns the seconds until the last byte was taken."""
        began = time.perf_counter()
        with selectors.DefaultSelector() as selector:
            for line in self.lines:
                selector.register(line.socket, selectors.EVENT_WRITE, line)
            while selector.get_map():
                for key, _ in _ready(selector):
                    line = key.data
                    if line.send(min(len(line.packets), line.sent + PIECE)) and line.sent == len(line.packets):
                        selector.unregister(line.socket)
        return time.perf_counter() - began

    def send_acknowledged(self, window: int) -> float:
        """Write everything with so many under way for each; returns the seconds until all are acknowledged."""
        began = time.perf_counter()
        with selectors.DefaultSelector() as selector:
            for line in self.lines:
                selector.register(line.socket, _wanted(line.send_window(window)), line)
            while selector.get_map():
                for key, events in _ready(selector):
                    line = key.data
                    if events & selectors.EVENT_READ:
                        line.receive()
                    if line.acknowledged == len(line.ends):
                        selector.unregister(line.socket)
                    elif key.events != (wanted := _wanted(line.send_window(window))):
                        selector.modify(line.socket, wanted, line)
        return time.perf_counter() - began

    def close(self) -> None:
        for line in self.lines:
            line.socket.close()


def _ready(selector: selectors.BaseSelector) -> list[tuple[selectors.SelectorKey, int]]:
    found = selector.select(PATIENCE)
    if not found:
        raise LoadError(f"nothing has happened for {PATIENCE:.0f} s")
    return found


def _wanted(took_all: bool) -> int:
    return selectors.EVENT_READ if took_all else selectors.EVENT_READ | selectors.EVENT_WRITE


def _packets(rounds: Iterable[Readings], qos: int) -> list[list[bytes]]:
    """Of each publisher."""
    lines: list[list[bytes]] = [[] for _ in range(PUBLISHERS)]
    topics: dict[int, bytes] = {}
    for each in rounds:
        for device, payload in zip(each.device.tolist(), each.payload, strict=True):
            topic = topics.get(device) or topics.setdefault(device, topic_of(device).encode())
            line = lines[device % PUBLISHERS]
            line.append(encode_publish(topic, payload, qos << 1, len(line) % IDS + 1, None))
    return lines


def _ends(packets: Iterable[bytes]) -> list[int]:
    ends = []
    end = 0
    for packet in packets:
        end += len(packet)
        ends.append(end)
    return ends


def _answers(messages: int) -> bytes:
    return b"".join([b"\x40\x02" + encode_packet_id(number % IDS + 1) for number in range(messages)])
