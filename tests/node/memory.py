"""A broker without sockets or clock: channels whose bytes are kept, and time that a test moves."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import cast

from headwater.node.config import Config
from headwater.node.hooks import Hooks
from headwater.node.plane.channel import Channel
from headwater.node.plane.loop import Plane
from headwater.node.protocol.server import Server
from headwater.wire import FROM_SERVER, PacketReader, decode, encode
from headwater.wire.packets import Connack, Connect, Packet, Publish


class MemorySocket:
    """What a channel calls; `room` is how many bytes it takes before it blocks."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.sent = bytearray()
        self.room = 1 << 60
        self.shut = False
        self.closed = False

    def fileno(self) -> int:
        return self.descriptor

    def recv(self, size: int) -> bytes:
        raise BlockingIOError

    def send(self, data: bytes) -> int:
        if self.room == 0:
            raise BlockingIOError
        count = min(self.room, len(data))
        self.sent += data[:count]
        self.room -= count
        return count

    def shutdown(self, how: int) -> None:
        self.shut = True

    def close(self) -> None:
        self.closed = True


class MemoryPlane(Plane):
    """Remembers what would be waited for."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.hot, server.timers)
        self.watched: dict[Channel, tuple[bool, bool]] = {}
        self.descriptors = 10

    def add(self, channel: Channel) -> None:
        self.watched[channel] = (True, False)
        self.newest = channel

    def watch(self, channel: Channel, readable: bool, writable: bool) -> None:
        self.watched[channel] = (readable, writable)

    def remove(self, channel: Channel) -> None:
        del self.watched[channel]


class Client:
    """One connection to a MemoryBroker; `packets()` are those that arrived since the last call."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.socket = MemorySocket(broker.new_descriptor())
        broker.server.accept(cast(socket.socket, self.socket), f"memory:{self.socket.descriptor}", True)
        self.channel = broker.plane.newest
        assert self.channel.fd == self.socket.descriptor
        self.version = 4
        self._reader = PacketReader(1 << 28)
        self._read = 0
        self._behind_connack: list[Packet] = []

    def feed(self, data: bytes) -> None:
        """These bytes arrive and are dealt with in one turn."""
        if self.channel.fd >= 0:
            self.broker.server.hot.feed(self.channel, data)
        self.broker.turn()

    def send(self, *packets: Packet) -> None:
        self.feed(b"".join(encode(packet, self.version) for packet in packets))

    def connect(self, packet: Connect) -> Connack:
        self.version = packet.version
        self.send(packet)
        answer, *self._behind_connack = self.packets()
        assert isinstance(answer, Connack)
        return answer

    @property
    def watched(self) -> tuple[bool, bool]:
        """Whether the broker waits to read from and to write to this client."""
        return self.broker.plane.watched[self.channel]

    def packets(self) -> list[Packet]:
        self._reader.feed(bytes(self.socket.sent[self._read :]))
        self._read = len(self.socket.sent)
        earlier, self._behind_connack = self._behind_connack, []
        return earlier + [decode(first, body, self.version, FROM_SERVER) for first, body in self._reader]

    def messages(self) -> list[Publish]:
        return [packet for packet in self.packets() if isinstance(packet, Publish)]

    def unblock(self, room: int = 1 << 60) -> None:
        """The peer reads again."""
        self.socket.room = room
        plane = self.broker.server.plane
        while self.channel.fd >= 0 and self.channel.backlog_size and self.socket.room:
            plane._write(self.channel)
            self.broker.turn()

    def lose(self) -> None:
        self.broker.server.lost(self.channel)
        self.broker.turn()


class MemoryBroker:
    def __init__(self, config: Config | None = None, hooks: Hooks | None = None, *, hot: bool = True) -> None:
        self.hooks = hooks or Hooks()
        self.server = Server(config or Config(sys_interval=0), self.hooks)
        self.plane = MemoryPlane(self.server)
        self.server.plane = self.plane
        self.hot_wanted = hot
        self.in_one_turn = False
        self.hooks.on_change = self.hooks_changed
        self.hooks_changed()
        self.server.hot.now = 1000.0

    def hooks_changed(self) -> None:
        self.server.hot.enabled = self.hot_wanted and not self.hooks.slow

    def new_descriptor(self) -> int:
        self.plane.descriptors += 1
        return self.plane.descriptors

    def turn(self) -> None:
        if self.in_one_turn:
            return
        hot = self.server.hot
        if self.server.timers.soonest <= hot.now:
            self.server.timers.run(hot.now)
        hot.background.finish()
        while hot.open or hot.dirty or hot.changed:
            hot.flush()

    @contextlib.contextmanager
    def one_turn(self) -> Iterator[None]:
        """What arrives meanwhile arrives in one turn, as from many sockets that are ready at once."""
        self.in_one_turn = True
        yield
        self.in_one_turn = False
        self.turn()

    def later(self, seconds: float) -> None:
        self.server.hot.now += seconds
        self.turn()

    def client(self, client_id: str, version: int = 5, **connect: object) -> Client:
        client = Client(self)
        client.connect(Connect(client_id, version, **connect))  # type: ignore[arg-type]
        return client
