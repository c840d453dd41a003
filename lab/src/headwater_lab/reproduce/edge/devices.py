"""All devices, in a process of their own: a thread with blocking sockets that sends each reading when it is due.

There is one connection to each receiving tier, and a device's readings go to the tier of the area where the device is.
A reading is made at its deadline, begin + k · period, not when Python woke up; so a sender that is late shows as
latency, and cannot make the experiment easier than it is. What is due at the same time leaves in one piece.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import islice
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

from headwater.fleet.devices import Reading
from headwater.wire.decode import FROM_SERVER, decode
from headwater.wire.encode import encode
from headwater.wire.framing import PacketReader
from headwater.wire.packets import V5, Connack, Connect, Packet, Publish
from headwater_lab.reproduce.edge.plan import Load, Scenario

AT_ONCE: Final = 200
"""Messages in one piece."""
PATIENCE: Final = 10.0


class Begin(NamedTuple):
    """When: on the machine's monotonic clock, and in microseconds on the wall clock."""

    at: float
    wall: int


class Ready(NamedTuple):
    """A process is connected, and waits to be told to begin."""

    name: str


class Sent(NamedTuple):
    """`latest`: the most seconds by which a reading left late."""

    readings: int
    latest: float


def made(load: Load, seed: int, wall: int) -> list[tuple[str, bytes]]:
    """Topics and payloads of all readings in order: what the devices' log says."""
    readings = islice(load.fleet(seed).readings(), load.readings)
    return [(reading.topic, reading.payload(wall)) for reading in readings]


def send(scenario: Scenario, load: Load, seed: int, ports: Sequence[int], parent: Connection) -> None:
    """The process: says that it is ready, is told when to begin, and answers with Sent, or with what went wrong.
    `ports` are those of the receiving tiers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent has it, too, and ends us
    try:
        with ExitStack() as stack:
            lines = [stack.enter_context(connect(port, "devices")) for port in ports]
            parent.send(Ready("devices"))
            begin: Begin = parent.recv()
            answer: object = _send_all(lines, scenario, load, seed, begin)
            parent.send(answer)
            parent.recv()  # stay connected until told to go
    except EOFError:  # the parent has gone, or wants no more
        return
    except Exception as error:
        parent.send(f"{type(error).__name__}: {error}")


def _send_all(lines: Sequence[socket.socket], scenario: Scenario, load: Load, seed: int, begin: Begin) -> Sent:
    readings = list(islice(load.fleet(seed).readings(), load.readings))
    places = {topic: scenario.receiver(topic) for topic in load.fleet(seed).topics()}
    at, latest = 0, 0.0
    while at < len(readings):
        now = time.monotonic() - begin.at
        if readings[at].due > now:
            time.sleep(readings[at].due - now)
            now = time.monotonic() - begin.at
        latest = max(latest, now - readings[at].due)
        end = at + 1
        while end < len(readings) and end - at < AT_ONCE and readings[end].due <= now:
            end += 1
        pieces: list[list[bytes]] = [[] for _ in lines]
        for reading in readings[at:end]:
            pieces[places[reading.topic]].append(_packet(reading, begin.wall))
        for line, piece in zip(lines, pieces, strict=True):
            if piece:
                line.sendall(b"".join(piece))
        at = end
    return Sent(at, latest)


def _packet(reading: Reading, wall: int) -> bytes:
    return encode(Publish(reading.topic, reading.payload(wall)), V5)


def connect(port: int, client_id: str) -> socket.socket:
    """`client_id` with the port behind it: nodes of a cluster are one broker, which has one client of an id."""
    line = socket.create_connection(("127.0.0.1", port), PATIENCE)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.sendall(encode(Connect(client_id=f"{client_id}-{port}", version=V5, keep_alive=0), V5))
    answer = receive(line, PacketReader())
    if not (isinstance(answer, Connack) and answer.reason == 0):
        raise ConnectionError(f"the broker answered {answer!r}")
    return line


def receive(line: socket.socket, reader: PacketReader) -> Packet:
    """The next packet; only for answers that nothing follows."""
    while True:
        data = line.recv(65536)
        if not data:
            raise ConnectionError("the broker closed the connection")
        reader.feed(data)
        for first, body in reader:
            return decode(first, body, V5, FROM_SERVER)
