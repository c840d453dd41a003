"""A server that does exactly what a test says, packet by packet, to show what a client does then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from headwater.client import Reconnect
from headwater.wire.decode import FROM_CLIENT, decode
from headwater.wire.encode import encode
from headwater.wire.framing import PacketReader
from headwater.wire.packets import V5, Connack, Connect, Disconnect, Packet
from headwater.wire.status import PINGREQ_BYTE, StatusReport, decode_status

PATIENCE = 20.0
SOON = Reconnect(first=0.01, longest=0.02)

Result = TypeVar("Result")
Kind = TypeVar("Kind")


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a test's coroutine; a client that hangs fails it."""

    async def bounded() -> Result:
        async with asyncio.timeout(PATIENCE):
            return await work

    return asyncio.run(bounded())


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until the condition holds; it looks at each turn, to see what lasts but a moment."""
    while not condition():
        await asyncio.sleep(0)


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

    async def next_packet(self) -> Packet | StatusReport | None:
        """None at the end of the connection."""
        while (frame := self._packets.next_frame()) is None:
            try:
                data = await self._stream.read(65536)
            except ConnectionError:  # it left while we were still sending
                return None
            if not data:
                return None
            self._packets.feed(data)
        if frame[0] == PINGREQ_BYTE and frame[1]:
            return decode_status(frame[1])
        return decode(frame[0], frame[1], self._version, FROM_CLIENT)

    def send(self, *packets: Packet) -> None:
        self.writer.write(b"".join(encode(packet, self._version) for packet in packets))

    async def accept(self, connack: Connack | None = None) -> Connect:
        connect = await self.receive(Connect)
        self.send(connack or Connack())
        return connect

    def cut(self) -> None:
        """End the connection as a broken network does."""
        self.writer.transport.abort()

    async def goodbye(self) -> Disconnect:
        """The client leaves, and sends nothing else before."""
        disconnect = await self.receive(Disconnect)
        assert await self.next_packet() is None
        return disconnect


class Scripted:
    """`async with Scripted(script) as port`: serves one connection after another, each by its script, and raises
    what a script raised. All must have been used in the end."""

    def __init__(self, *scripts: Callable[[Peer], Awaitable[None]], version: int = V5) -> None:
        self._scripts = list(scripts)
        self._version = version
        self._done: asyncio.Future[None] | None = None
        self._test: asyncio.Task[Any] | None = None

    async def __aenter__(self) -> int:
        self._test = asyncio.current_task()
        self._done = asyncio.get_running_loop().create_future()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        assert self._done is not None
        try:
            if error is None:
                await asyncio.wait([self._done])
        finally:
            self._server.close()
            if self._done.done() and (failure := self._done.exception()) is not None:
                raise failure

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._done is not None
        try:
            assert self._scripts, "one connection more than the scripts say"
            await self._scripts.pop(0)(Peer(reader, writer, self._version))
        except Exception as error:
            assert self._test is not None
            if not self._done.done():
                self._done.set_exception(error)
                self._test.cancel()  # which may wait for a packet that will not come
        else:
            if not self._scripts and not self._done.done():
                self._done.set_result(None)
        finally:
            writer.close()
