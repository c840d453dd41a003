"""An MQTT client in a few lines, for what the load generator does not do: asking for an answer, changing its mind."""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence
from typing import Final, Self

from headwater.wire import FROM_SERVER, V311, PacketReader, decode, encode
from headwater.wire.packets import Connack, Connect, Packet
from headwater_lab.load import LoadError

PATIENCE: Final = 10.0
"""Seconds to wait for an answer."""
LARGEST: Final = 1 << 20


def ready(callers: Sequence[Caller], seconds: float) -> list[Caller]:
    """Those for whom something has come; if there are none, those for whom it does within so many seconds."""
    found, _, _ = select.select(callers, [], [], seconds)
    return found


class Caller:
    """Connected; what comes is asked for by `received`. `with` closes it."""

    def __init__(self, port: int, client_id: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = PacketReader(LARGEST)
        self.send(Connect(client_id))
        if not isinstance(self.next(), Connack):
            raise LoadError(f"the broker at port {port} refused {client_id}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, *packets: Packet) -> None:
        self._socket.sendall(b"".join(encode(packet, V311) for packet in packets))

    def next(self) -> Packet:
        """The next packet, waited for. LoadError: none comes."""
        waited = self.received(PATIENCE, most=1)
        if not waited:
            raise LoadError("the broker does not answer")
        return waited[0]

    def received(self, seconds: float, most: int = 1 << 30) -> list[Packet]:
        """What has come, `most` packets of it; if nothing has, what comes within so many seconds."""
        found = self._read(most)
        if not found:
            self._socket.settimeout(seconds or None)
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                return []
            finally:
                self._socket.settimeout(PATIENCE)
            if not data:
                raise LoadError("the broker closed a connection")
            self._reader.feed(data)
            found = self._read(most)
        return found

    def _read(self, most: int) -> list[Packet]:
        found: list[Packet] = []
        while len(found) < most:
            packet = self._reader.next_frame()
            if packet is None:
                break
            found.append(decode(*packet, V311, FROM_SERVER))
        return found
