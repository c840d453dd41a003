"""The cloud's side of MQTT, in a process of its own: subscribes at the delivery tiers, each for what it owns, and notes
when each message came, and what it was.

It is as light as it can be, a thread with sockets, so that what is measured is the edge. The cloud that people would
use is headwater.edge.mirror, which the late cloud is.
"""

from __future__ import annotations

import selectors
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

from headwater.message import POSITION_PROPERTY
from headwater.wire.decode import FROM_SERVER, decode
from headwater.wire.encode import encode
from headwater.wire.framing import PacketReader
from headwater.wire.packets import V5, Properties, Publish, Suback, Subscribe, SubscribeRequest
from headwater_lab.reproduce.edge.devices import Ready, connect, receive

AT_ONCE: Final = 262144
QUIET: Final = 5.0
"""Seconds without a message after which the rest is not waited for."""

Source = tuple[int, tuple[str, ...]]
"""The port of a delivery tier, and the filters that are subscribed to there."""


class Arrival(NamedTuple):
    """A message as it came; `at` is on the machine's monotonic clock, `tier` the place of the delivery tier among all,
    `position` 0 if the broker gave none."""

    at: float
    tier: int
    position: int
    topic: str
    payload: bytes


class Arrivals(NamedTuple):
    all: list[Arrival]


def listen(sources: Sequence[Source], messages: int, seconds: float, parent: Connection) -> None:
    """The process: says that it is ready, and answers with the arrivals when all have come or nothing comes any more;
    or with what went wrong. `seconds` is how long the devices send."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent has it, too, and ends us
    try:
        with ExitStack() as stack:
            lines = [stack.enter_context(connect(port, "cloud")) for port, _ in sources]
            for line, (_, filters) in zip(lines, sources, strict=True):
                _subscribe(line, filters)
            parent.send(Ready("cloud"))
            parent.recv()
            parent.send(Arrivals(_arrivals(lines, messages, seconds + QUIET)))
            parent.recv()
    except EOFError:
        return
    except Exception as error:
        parent.send(f"{type(error).__name__}: {error}")


def _subscribe(line: socket.socket, filters: Sequence[str]) -> None:
    wanted = [SubscribeRequest(filter, 0) for filter in filters]
    line.sendall(encode(Subscribe(1, wanted, Properties(user_properties=[(POSITION_PROPERTY, "yes")])), V5))
    answer = receive(line, PacketReader())
    if not (isinstance(answer, Suback) and max(answer.reasons) < 0x80):
        raise ConnectionError(f"the broker answered {answer!r}")


def _arrivals(lines: Sequence[socket.socket], messages: int, patience: float) -> list[Arrival]:
    """What a packet says is looked at when all have come: that takes time, which others would wait for."""
    frames: list[tuple[float, int, int, bytes]] = []
    readers = [PacketReader() for _ in lines]
    with selectors.DefaultSelector() as selector:
        for tier, line in enumerate(lines):
            selector.register(line, selectors.EVENT_READ, tier)
        while len(frames) < messages and (events := selector.select(patience)):
            for key, _ in events:
                tier = key.data
                data = lines[tier].recv(AT_ONCE)
                at = time.monotonic()
                if not data:
                    raise ConnectionError("the broker closed the connection")
                readers[tier].feed(data)
                frames += [(at, tier, first, body) for first, body in readers[tier]]
            patience = QUIET
    return [_arrival(*frame) for frame in frames]


def _arrival(at: float, tier: int, first: int, body: bytes) -> Arrival:
    packet = decode(first, body, V5, FROM_SERVER)
    if not isinstance(packet, Publish):
        raise ConnectionError(f"the broker sent {packet!r}")
    return Arrival(at, tier, _position(packet.properties), packet.topic, packet.payload)


def _position(properties: Properties | None) -> int:
    for name, value in (properties.user_properties if properties is not None else None) or []:
        if name == POSITION_PROPERTY:
            return int(value.rpartition(":")[2])
    return 0
