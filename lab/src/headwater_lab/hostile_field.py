"""What attackers work with: connections to one broker, a time to end, and counts of what was done.

An attack is a function that is given a Field and goes on until `over`. It may lose any connection at any time, as the
broker is right to cut it off: `struggling` makes an end of a connection nothing special.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from headwater.node.config import Config
from headwater.wire.encode import encode
from headwater.wire.packets import Connect, Packet, Properties

HOST: Final = "127.0.0.1"
PATIENCE: Final = 5.0
"""Seconds that an attacker waits for anything."""
PIECE: Final = 8192
"""Bytes that are sent or received at once (hostile_ground.py)."""
V5: Final = 5
HOLES: Final = 1.5
"""Resident bytes for each byte that counts: the C library's heap has holes between blocks that are in use."""


@dataclass
class Field:
    """`counts` says how much was done: connections, packets, bytes, and ends (of connections, by the broker)."""

    port: int
    until: float
    secure_port: int = 0
    admin_port: int = 0
    token: str = ""
    rest_port: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def over(self) -> bool:
        return time.monotonic() >= self.until

    def open(self, secure: bool = False, source: str = "") -> socket.socket:
        """`source` is an address of this machine to come from."""
        return self.open_at(self.secure_port if secure else self.port, source)

    def open_at(self, port: int, source: str = "") -> socket.socket:
        connection = socket.create_connection((HOST, port), PATIENCE, (source, 0) if source else None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.counts["connections"] += 1
        return connection

    def send(self, connection: socket.socket, *packets: bytes) -> None:
        data = b"".join(packets)
        for start in range(0, len(data), PIECE):
            connection.sendall(data[start : start + PIECE])
        self.counts["packets"] += len(packets)
        self.counts["bytes"] += len(data)

    def send_to(self, data: bytes, connection: socket.socket) -> None:
        self.send(connection, data)

    def client(self, client_id: str = "", *, keep_alive: int = 0, **properties: int) -> socket.socket:
        """A connection that has got its CONNACK."""
        connection = self.open()
        try:
            self.send(connection, connect(client_id, keep_alive, **properties))
            if not connection.recv(1024):
                raise ConnectionError("refused")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextlib.contextmanager
    def struggling(self) -> Iterator[None]:
        try:
            yield
        except OSError:  # ssl.SSLError is one
            self.counts["ends"] += 1

    def pause(self, seconds: float) -> None:
        time.sleep(max(0.0, min(seconds, self.until - time.monotonic())))


def connect(client_id: str = "", keep_alive: int = 0, **properties: int) -> bytes:
    packet = Connect(client_id, V5, keep_alive=keep_alive)
    if properties:
        packet.properties = Properties(**properties)  # type: ignore[arg-type]
    return encode(packet, V5)


def encoded(*packets: Packet) -> bytes:
    return b"".join(encode(packet, V5) for packet in packets)


def drained(connection: socket.socket) -> bool:
    """Read what has come; False: the broker has ended the connection."""
    connection.setblocking(False)
    try:
        while True:
            try:
                data = connection.recv(PIECE)
            except (BlockingIOError, ssl.SSLWantReadError):
                return True
            except OSError:
                return False
            if not data:
                return False
    finally:
        connection.settimeout(PATIENCE)


class Crowd:
    """Many connections at a time, made by `opened`; those that the broker ends are made anew."""

    def __init__(self, field: Field, size: int, opened: Callable[[], socket.socket]) -> None:
        self._field = field
        self._size = size
        self._opened = opened
        self._selector = selectors.DefaultSelector()
        self.members: set[socket.socket] = set()

    def fill(self, most: int = 50) -> None:
        """As many as are missing, but only so many at a time."""
        for _ in range(min(most, self._size - len(self.members))):
            with self._field.struggling():
                member = self._opened()
                self.members.add(member)
                self._selector.register(member, selectors.EVENT_READ)

    def tend(self) -> None:
        """Read what has come, and part from those that were cut off."""
        for key, _ in self._selector.select(0):
            member = key.fileobj
            assert isinstance(member, socket.socket)
            if not drained(member):
                self._field.counts["ends"] += 1
                self.part(member)

    def part(self, member: socket.socket) -> None:
        self._selector.unregister(member)
        self.members.discard(member)
        member.close()

    def each(self, act: Callable[[socket.socket], object], members: Iterable[socket.socket] | None = None) -> None:
        """Do something with all of them; who cannot is parted from."""
        for member in list(self.members if members is None else members):
            if self._field.over():
                return
            try:
                act(member)
            except OSError:
                self._field.counts["ends"] += 1
                self.part(member)

    def close(self) -> None:
        for member in list(self.members):
            self.part(member)
        self._selector.close()


@dataclass(frozen=True)
class Attack:
    """`answer` is what the broker does about it, `setting` what bounds it. `memory` is the most that it may take at a
    time, in bytes, beyond what the broker had before and what it may have it keep: `keeps` names settings whose bounds
    (docs/limits.md) it tries to use up. `comes_and_goes` is what of `memory` may be there in one moment and not in the
    next, so that it is no growth."""

    name: str
    what: str
    answer: str
    setting: str
    run: Callable[[Field], None]
    memory: int
    needs: Sequence[str] = ()
    keeps: Sequence[str] = ()
    comes_and_goes: int = 0

    @property
    def stated(self) -> int:
        """Resident bytes that the bounds of `keeps` allow, as they are by default."""
        config = Config()
        return int(HOLES * sum(int(attrgetter(name)(config)) for name in self.keeps))

    @property
    def most_memory(self) -> int:
        return self.memory + self.stated
