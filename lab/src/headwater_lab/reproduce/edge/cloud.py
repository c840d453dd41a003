"""The cloud's side of MQTT, in a process of its own: subscribes, and notes when each message came, and what it was.

It is as light as it can be, a thread with a blocking socket, so that what is measured is the edge. The cloud that
people would use is headwater.edge.mirror, which the late cloud is.
"""

from __future__ import annotations

import signal
import socket
import time
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

from headwater.message import POSITION_PROPERTY
from headwater.wire.decode import FROM_SERVER, decode
from headwater.wire.encode import encode
from headwater.wire.framing import PacketReader
from headwater.wire.packets import V5, Properties, Publish, Suback, Subscribe, SubscribeRequest
from headwater_lab.reproduce.edge.devices import Ready, connect, receive
from headwater_lab.reproduce.edge.plan import FILTERS

AT_ONCE: Final = 262144
QUIET: Final = 5.0
"""Seconds without a message after which the rest is not waited for."""


class Arrival(NamedTuple):
    """A message as it came; `at` is on the machine's monotonic clock, `position` 0 if the broker gave none."""

    at: float
    position: int
    topic: str
    payload: bytes


class Arrivals(NamedTuple):
    all: list[Arrival]


def listen(port: int, messages: int, seconds: float, parent: Connection) -> None:
    """The process: says that it is ready, and answers with the arrivals when all have come or nothing comes any more;
    or with what went wrong. `seconds` is how long the devices send."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent has it, too, and ends us
    try:
        with connect(port, "cloud") as line:
            _subscribe(line)
            parent.send(Ready("cloud"))
            parent.recv()
            parent.send(Arrivals(_arrivals(line, messages, seconds + QUIET)))
            parent.recv()
    except EOFError:
        return
    except Exception as error:
        parent.send(f"{type(error).__name__}: {error}")


def _subscribe(line: socket.socket) -> None:
    wanted = [SubscribeRequest(filter, 0) for filter in FILTERS]
    line.sendall(encode(Subscribe(1, wanted, Properties(user_properties=[(POSITION_PROPERTY, "yes")])), V5))
    answer = receive(line, PacketReader())
    if not (isinstance(answer, Suback) and max(answer.reasons) < 0x80):
        raise ConnectionError(f"the broker answered {answer!r}")


def _arrivals(line: socket.socket, messages: int, patience: float) -> list[Arrival]:
    """What a packet says is looked at when all have come: that takes time, which others would wait for."""
    reader = PacketReader()
    frames: list[tuple[float, int, bytes]] = []
    line.settimeout(patience)
    while len(frames) < messages:
        try:
            data = line.recv(AT_ONCE)
        except TimeoutError:
            break
        if not data:
            break
        at = time.monotonic()
        reader.feed(data)
        frames += [(at, first, body) for first, body in reader]
        line.settimeout(QUIET)
    return [_arrival(*frame) for frame in frames]


def _arrival(at: float, first: int, body: bytes) -> Arrival:
    packet = decode(first, body, V5, FROM_SERVER)
    if not isinstance(packet, Publish):
        raise ConnectionError(f"the broker sent {packet!r}")
    return Arrival(at, _position(packet.properties), packet.topic, packet.payload)


def _position(properties: Properties | None) -> int:
    for name, value in (properties.user_properties if properties is not None else None) or []:
        if name == POSITION_PROPERTY:
            return int(value.rpartition(":")[2])
    return 0
