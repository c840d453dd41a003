"""How epoll is waited on, and how sockets are received from and sent to: by events.c where it was compiled,
otherwise as Python has it."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from typing import Any, Protocol

events: Any
try:
    import headwater.node.plane.events as events
except ImportError:
    events = None


class Stream(Protocol):
    """What a channel needs of its socket, which must not block. `close` is the only way to close it."""

    def recv(self, size: int, /) -> bytes: ...

    def send(self, data: bytes, /) -> int: ...

    def close(self) -> None: ...


def poll_of(epoll: select.epoll) -> Callable[[float, int], list[tuple[int, int]]]:
    """`epoll.poll`, or what does the same in less time."""
    poll: Callable[[float, int], list[tuple[int, int]]] = epoll.poll if events is None else events.Events(epoll).poll
    return poll


def stream_of(connection: socket.socket) -> Stream:
    """The socket itself, or what does the same in less time."""
    if events is None or not isinstance(connection, socket.socket):
        return connection
    stream: Stream = events.Stream(connection)
    return stream
