"""The way between nodes: a process through which all links go, and which can hold back, delay and reset what is sent.

Each node advertises an address of the relay. Who dials it says who it is by its Hello, so the relay knows of each
connection between which two nodes it is. Bytes that are held back are kept, as by a network that sends them again; so
is the end of a connection, so that the other side does not hear of it. While one direction is cut, connections begin no
more than in a real network: the dialer's is there, and nobody answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from headwater.fleet.process import free_port
from headwater.peering.frames.frame import MalformedFrame
from headwater.peering.frames.reading import FrameReader
from headwater_lab.chaos.lives import KEPT, Process, fork

HOST: Final = "127.0.0.1"
PIECE: Final = 1 << 16
LARGEST_RUN: Final = 1 << 28
Way = tuple[str, str]
"""From one node to another."""


class Relay:
    """The process, as its parent sees it. Each node has two addresses, so that it can be found at another one."""

    def __init__(self, nodes: list[str], log: Path) -> None:
        self.addresses = {node: [f"{HOST}:{free_port()}" for _ in range(2)] for node in nodes}
        reader, self._orders = os.pipe()
        self.process: Process = fork(partial(_relay, self.addresses), log, keep=reader)
        os.close(reader)

    def order(self, *words: object) -> None:
        os.write(self._orders, (" ".join(map(str, words)) + "\n").encode())

    def place_of(self, node: str, number: int) -> tuple[str, int]:
        """Where the node listens if it is at this one of its addresses."""
        return HOST, free_port()

    def network_of(self, node: str) -> str:
        """This one."""
        return ""

    def lead_to(self, node: str, port: int) -> None:
        """Where the node listens."""
        self.order("lead", node, port)

    def cut(self, sender: str, receiver: str) -> None:
        self.order("cut", sender, receiver)

    def heal(self, sender: str, receiver: str) -> None:
        self.order("heal", sender, receiver)

    def reset(self, one: str, other: str) -> None:
        """End the connections between two nodes."""
        self.order("reset", one, other)

    def delay(self, seconds: float) -> None:
        self.order("delay", seconds)

    def close(self) -> None:
        self.process.kill()
        os.close(self._orders)


def _relay(addresses: dict[str, list[str]]) -> int:
    asyncio.run(_Switch().serve(addresses))
    return 0


class _Connection:
    """Between two nodes, of which the first has dialed."""

    def __init__(self, dialer: str, target: str) -> None:
        self.nodes = {dialer, target}
        self.writers: list[asyncio.StreamWriter] = []

    def reset(self) -> None:
        for writer in self.writers:
            writer.transport.abort()


class _Switch:
    def __init__(self) -> None:
        self._ports: dict[str, int] = {}
        self._open: dict[Way, asyncio.Event] = {}
        self._delay = 0.0
        self._connections: list[_Connection] = []
        self._unread = b""

    async def serve(self, addresses: dict[str, list[str]]) -> None:
        asyncio.get_running_loop().add_reader(KEPT, self._read_orders)
        for node, places in addresses.items():
            for place in places:
                await asyncio.start_server(partial(self._accepted, node), HOST, int(place.rpartition(":")[2]))
        await asyncio.Event().wait()

    def _read_orders(self) -> None:
        *lines, self._unread = (self._unread + os.read(KEPT, PIECE)).split(b"\n")
        for line in lines:
            self._obey(line.decode().split())

    def _obey(self, words: list[str]) -> None:
        match words:
            case ["lead", node, port]:
                self._ports[node] = int(port)
            case ["cut", sender, receiver]:
                self._way((sender, receiver)).clear()
            case ["heal", sender, receiver]:
                self._way((sender, receiver)).set()
            case ["reset", one, other]:
                for each in self._connections:
                    if each.nodes == {one, other}:
                        each.reset()
            case ["delay", seconds]:
                self._delay = float(seconds)

    def _way(self, way: Way) -> asyncio.Event:
        if way not in self._open:
            self._open[way] = asyncio.Event()
            self._open[way].set()
        return self._open[way]

    async def _accepted(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, MalformedFrame), self._closing(writer):
            dialer, first = await _hello(reader)
            if not dialer:
                return
            there, back = (dialer, target), (target, dialer)
            for way in (there, back):
                await self._way(way).wait()
            other_reader, other_writer = await asyncio.open_connection(HOST, self._ports.get(target, 1))
            connection = _Connection(dialer, target)
            connection.writers += [writer, other_writer]
            self._connections.append(connection)
            try:
                with self._closing(other_writer):
                    other_writer.write(first)
                    await asyncio.gather(
                        self._pump(there, reader, other_writer), self._pump(back, other_reader, writer)
                    )
            finally:
                self._connections.remove(connection)

    @contextlib.contextmanager
    def _closing(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        try:
            yield
        finally:
            writer.close()

    async def _pump(self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until the sender ends, of which the receiver hears when the way is open."""
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)

        async def read() -> None:
            while True:
                try:
                    data = await reader.read(PIECE)
                except OSError:
                    data = b""
                await pieces.put((loop.time() + self._delay, data))
                if not data:
                    return

        reading = asyncio.create_task(read())
        try:
            while True:
                when, data = await pieces.get()
                await asyncio.sleep(when - loop.time())
                await self._way(way).wait()
                if not data:
                    break
                writer.write(data)
                await writer.drain()
        finally:
            reading.cancel()
            writer.close()  # a link has no half: who has ended does not read either


async def _hello(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """Who dials, and what it has sent so far; "" if it went. Raises MalformedFrame."""
    frames, data = FrameReader(LARGEST_RUN), b""
    while True:
        piece = await reader.read(PIECE)
        if not piece:
            return "", data
        data += piece
        frames.feed(piece)
        hello = frames.next_hello()
        if hello is not None:
            return hello.node, data
