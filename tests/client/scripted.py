"""A server that does exactly what a test says, packet by packet, to show what a client does then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from headwater.wire.decode import FROM_CLIENT, decode
from headwater.wire.encode import encode
from headwater.wire.framing import PacketReader
from headwater.wire.packets import V5, Connack, Connect, Packet

PATIENCE = 20.0

Result = TypeVar("Result")
Kind = TypeVar("Kind", bound=Packet)


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a test's coroutine; a client that hangs fails it."""

    async def bounded() -> Result:
        async with asyncio.timeout(PATIENCE):
            return await work

    return asyncio.run(bounded())


class Peer:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self._stream = reader
        self.writer = writer
        self._version = version
        self._packets = PacketReader()

    async def receive(self, kind: type[Kind]) -> Kind:
        packet = await self.next_packet()
        assert isinstance(packet, kind), packet
        return packet

    async def next_packet(self) -> Packet | None:
        """None at the end of the connection."""
        while (frame := self._packets.next_frame()) is None:
            data = await self._stream.read(65536)
            if not data:
                return None
            self._packets.feed(data)
        return decode(frame[0], frame[1], self._version, FROM_CLIENT)

    def send(self, *packets: Packet) -> None:
        self.writer.write(b"".join(encode(packet, self._version) for packet in packets))

    async def accept(self, connack: Connack | None = None) -> Connect:
        connect = await self.receive(Connect)
        self.send(connack or Connack())
        return connect

    def close(self) -> None:
        self.writer.close()


class Scripted:
    """`async with Scripted(script) as port`: serves one connection by the script, and raises what it raised."""

    def __init__(self, script: Callable[[Peer], Awaitable[None]], version: int = V5) -> None:
        self._script = script
        self._version = version
        self._done: asyncio.Future[None] | None = None

    async def __aenter__(self) -> int:
        self._done = asyncio.get_running_loop().create_future()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        assert self._done is not None
        try:
            if error is None:
                await self._done
            elif self._done.done():
                self._done.exception()
        finally:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._done is not None
        try:
            await self._script(Peer(reader, writer, self._version))
        except Exception as error:
            self._done.set_exception(error)
        else:
            self._done.set_result(None)
        finally:
            writer.close()
