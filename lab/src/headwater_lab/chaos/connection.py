"""One connection to the broker, which may die at any moment: packets out, packets in, and what is left to read."""

from __future__ import annotations

import contextlib
import socket
from typing import Final

from headwater.wire.decode import FROM_SERVER, decode
from headwater.wire.encode import encode
from headwater.wire.framing import PacketReader
from headwater.wire.packets import Packet

PATIENCE: Final = 5.0


class Connection:
    """`over` is set when the other side has gone; what it had sent before was read by then."""

    def __init__(self, port: int, version: int) -> None:
        """Raises OSError if nobody listens."""
        self.version = version
        self.over = False
        self._unsent = b""
        self._reader = PacketReader()
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)

    def send(self, packet: Packet) -> None:
        self._unsent += encode(packet, self.version)
        self.flush()

    def flush(self) -> None:
        """Send what the kernel did not take before. A connection that is over takes everything: nobody will know."""
        while self._unsent:
            try:
                sent = self.socket.send(self._unsent)
            except BlockingIOError:
                return
            except OSError:
                self._unsent = b""  # reading will show the end, after what is still there
                return
            self._unsent = self._unsent[sent:]

    def receive(self) -> list[Packet]:
        """What is there now."""
        while not self.over:
            try:
                data = self.socket.recv(1 << 18)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.over = True
                break
            self._reader.feed(data)
            if len(data) < 1 << 18:
                break
        return [decode(first, body, self.version, FROM_SERVER) for first, body in self._reader]

    def receive_all(self) -> list[Packet]:
        """What is there up to the end, which is near: the broker is dead."""
        self.socket.settimeout(PATIENCE)
        packets: list[Packet] = []
        while not self.over:
            packets += self.receive()
        return packets

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()
