"""A client that does what it is told, one packet at a time, and keeps what comes: no retries, nothing hidden."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Self, TypeVar

from headwater.routing.topics import matches
from headwater.wire.decode import FROM_SERVER, decode
from headwater.wire.encode import encode
from headwater.wire.framing import PacketReader
from headwater.wire.packets import (
    V311,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
)

PATIENCE: Final = 10.0
SHORT: Final = 2.0
"""Seconds that something which does not come is waited for, where nothing else can tell."""
_PIECE: Final = 1 << 16
_ENDED: Final = "it closed the connection"
_WORDS: Final = {errno.ECONNRESET: _ENDED, errno.EPIPE: _ENDED}
Kind = TypeVar("Kind", bound=Packet)


class Closed(Exception):
    """The broker ended the connection, or did not answer in time."""


class Hand:
    """`messages` has each PUBLISH in its order. QoS 1 and 2 are acknowledged, and PUBREC with PUBREL, while
    something is waited for, unless it `withholds`."""

    def __init__(self, port: int, version: int = V311) -> None:
        self.version = version
        self.messages: list[Publish] = []
        self.acknowledged: set[int] = set()
        """Packet ids of what it published."""
        self.received: set[int] = set()
        """Those that PUBREC was for."""
        self.unacknowledged = 0
        """What it published with QoS 1 or 2 and waits for."""
        self.withholds = False
        self.unasked: list[Publish] = []
        """Retained messages that it has not subscribed to: amqtt sends them to every client."""
        self._filters: list[str] = []
        self._last_id = 0
        self._reader = PacketReader()
        self._others: list[Packet] = []
        self._half: set[int] = set()
        self._owed = bytearray()
        """Acknowledgements that go out with the next look at the socket."""
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    def connect(self, client_id: str, connect: Connect | None = None) -> Connack:
        """Raises Closed."""
        self.send(replace(connect or Connect(), client_id=client_id, version=self.version))
        return self.wait_for(Connack)

    def send(self, packet: Packet) -> None:
        self.send_bytes(encode(packet, self.version))

    def send_bytes(self, data: bytes) -> None:
        """Reads meanwhile, or two that wait for each other to read would wait for ever. Raises Closed."""
        self._owed += data
        deadline = time.monotonic() + 3 * PATIENCE
        while self._owed:
            self._exchange(1)
            if time.monotonic() > deadline:
                raise Closed("it does not read any more")

    def subscribe(self, *requests: SubscribeRequest) -> list[int]:
        """What was granted. Raises Closed."""
        self._filters += [each.filter for each in requests]
        self.send(Subscribe(self.next_id(), list(requests)))
        return self.wait_for(Suback).reasons

    def unsubscribe(self, *filters: str) -> None:
        self.send(Unsubscribe(self.next_id(), list(filters)))
        self.wait_for(Unsuback)

    def publish(self, packet: Publish, *, wait: bool = True) -> int:
        """Its packet id; `wait`: until it is acknowledged. Raises Closed."""
        if packet.qos:
            packet = replace(packet, packet_id=self.next_id())
            self.unacknowledged += 1
        self.send(packet)
        if wait and packet.qos:
            self.until(lambda: packet.packet_id in self.acknowledged, "no acknowledgement")
        return packet.packet_id

    def release(self, packet_id: int) -> None:
        self.send(Pubrel(packet_id))

    def is_open(self) -> bool:
        try:
            self._exchange(0)
        except Closed:
            return False
        return True

    def next_id(self) -> int:
        self._last_id = self._last_id % 0xFFFF + 1
        return self._last_id

    def wait_for(self, kind: type[Kind]) -> Kind:
        """Raises Closed."""

        def there() -> bool:
            return any(isinstance(each, kind) for each in self._others)

        self.until(there, f"no {kind.__name__.upper()}")
        found = next(each for each in self._others if isinstance(each, kind))
        self._others.remove(found)
        return found

    def until(self, true: Callable[[], bool], why: str = "it did not come", patience: float = PATIENCE) -> None:
        """Raises Closed with `why` after some time."""
        deadline = time.monotonic() + patience
        while not true():
            left = deadline - time.monotonic()
            if left <= 0:
                raise Closed(why)
            self._exchange(min(left, 0.05))

    def barrier(self) -> None:
        """Until PINGREQ is answered: what the broker wrote to this connection before is here."""
        self.send(Pingreq())
        self.wait_for(Pingresp)

    def payloads(self) -> list[bytes]:
        return [each.payload for each in self.messages]

    def below(self, topic: str) -> list[Publish]:
        return [each for each in self.messages if each.topic.startswith(f"{topic}/")]

    def leave(self) -> None:
        """With DISCONNECT, and until the broker has ended the connection."""
        with contextlib.suppress(Closed):
            self.send(Disconnect())
            self.until(lambda: False, patience=SHORT)
        self.cut()

    def cut(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _exchange(self, patience: float) -> None:
        """Send what is owed and read what is there, once. Raises Closed."""
        writes = [self._socket] if self._owed else []
        readable, writable, _ = select.select([self._socket], writes, [], patience)
        try:
            if writable:
                del self._owed[: self._socket.send(self._owed[:_PIECE], socket.MSG_DONTWAIT)]
            data = self._socket.recv(_PIECE) if readable else None
        except BlockingIOError:
            return
        except OSError as error:
            raise Closed(_WORDS.get(error.errno or 0, str(error))) from error
        if data == b"":
            raise Closed(_ENDED)
        self._reader.feed(data or b"")
        for first, body in self._reader:
            self._received(decode(first, body, self.version, FROM_SERVER))

    def _received(self, packet: Packet) -> None:
        match packet:
            case Publish(retain=True) if not any(matches(each, packet.topic) for each in self._filters):
                self.unasked.append(packet)
                if packet.qos:
                    self._owe(Puback(packet.packet_id) if packet.qos == 1 else Pubrec(packet.packet_id))
            case Publish(qos=0):
                self.messages.append(packet)
            case Publish(qos=1):
                self.messages.append(packet)
                if not self.withholds:
                    self._owe(Puback(packet.packet_id))
            case Publish():
                if packet.packet_id not in self._half:
                    self._half.add(packet.packet_id)
                    self.messages.append(packet)
                if not self.withholds:
                    self._owe(Pubrec(packet.packet_id))
            case Pubrel():
                self._half.discard(packet.packet_id)
                self._owe(Pubcomp(packet.packet_id))
            case Puback() | Pubcomp():
                self.acknowledged.add(packet.packet_id)
                self.unacknowledged -= 1
            case Pubrec():
                self.received.add(packet.packet_id)
                if not self.withholds:
                    self._owe(Pubrel(packet.packet_id))
            case Disconnect():
                raise Closed(f"DISCONNECT 0x{packet.reason:02x}")
            case _:
                self._others.append(packet)

    def _owe(self, packet: Packet) -> None:
        self._owed += encode(packet, self.version)
