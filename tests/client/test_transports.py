"""The client over WebSocket, secure WebSocket and a Unix socket: with our own broker, and with strange servers."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from headwater.client import Client, ConnectError, Disconnected, SyncClient
from headwater.node import Broker, Config
from headwater.wire.websocket import BINARY, CLOSE, PING, TEXT, FrameReader, frame_head
from tests.client.scripted import run
from tests.node.transports.serving import Authority

KINDS = ("websocket", "secure websocket", "unix")


def listener(kind: str, folder: Path) -> dict[str, Any]:
    if kind == "unix":
        return {"unix": str(folder / "mqtt.sock")}
    row: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "protocol": "websocket", "websocket_path": "/here"}
    return row | ({"tls": Authority(folder).server()} if kind == "secure websocket" else {})


def arguments(kind: str, folder: Path, broker: Broker) -> dict[str, Any]:
    if kind == "unix":
        return {"host": str(folder / "mqtt.sock"), "transport": "unix"}
    port = broker.listeners[0].port
    found: dict[str, Any] = {"host": "127.0.0.1", "port": port, "transport": "websocket", "websocket_path": "/here"}
    if kind == "secure websocket":
        found["tls"] = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    return found


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("kind", KINDS)
def test_messages_of_every_size(kind: str, runner: Callable[..., None], tmp_path: Path) -> None:
    async def main() -> None:
        async with Broker(Config(listeners=[listener(kind, tmp_path)], sys_interval=0)) as broker:
            async with Client(**arguments(kind, tmp_path, broker)) as client:
                await client.subscribe("t", qos=2)
                for size in (0, 1, 125, 126, 70_000, 1_000_000):
                    await client.publish("t", b"x" * size, qos=2)
                    async for message in client.messages:
                        assert message.payload == b"x" * size
                        break
                await asyncio.gather(*(client.publish("t", b"%d" % number, qos=1) for number in range(200)))
                got = set()
                async for message in client.messages:
                    got.add(message.payload)
                    if len(got) == 200:
                        break
            while broker.server.channels:
                await asyncio.sleep(0.005)

    runner(main())


@pytest.mark.parametrize("kind", KINDS)
def test_a_lost_connection_is_made_again(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            Broker(Config(listeners=[listener(kind, tmp_path)], sys_interval=0)) as broker,
            Client(**arguments(kind, tmp_path, broker), client_id="c") as client,
        ):
            await client.subscribe("t", qos=1)
            [channel] = broker.server.channels
            broker.server.lost(channel)
            await client.publish("t", b"after", qos=1)
            async for message in client.messages:
                assert message.payload == b"after"
                break

    run(main())


def test_the_synchronous_client(tmp_path: Path) -> None:
    async def main() -> None:
        async with Broker(Config(listeners=[listener("unix", tmp_path)], sys_interval=0)):
            await asyncio.to_thread(talk)

    def talk() -> None:
        with SyncClient(str(tmp_path / "mqtt.sock"), transport="unix") as client:
            client.publish("t", b"x", qos=1)

    run(main())


def test_the_server_is_named(tmp_path: Path) -> None:
    async def main() -> None:
        missing = str(tmp_path / "missing")
        with pytest.raises(ConnectError, match="missing"):
            await Client(missing, transport="unix").connect()
        async with Broker(Config(listeners=[listener("websocket", tmp_path)], sys_interval=0)) as broker:
            port = broker.listeners[0].port
            with pytest.raises(ConnectError, match=r"/elsewhere.*404"):
                await Client("127.0.0.1", port, transport="websocket", websocket_path="/elsewhere").connect()

    run(main())


def test_arguments_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="one of tcp, websocket, unix"):
        Client(transport="pigeon")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Unix"):
        Client("/x", transport="unix", tls=True)


# ---- strange servers ----

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
CONNACK = b"\x20\x03\x00\x00\x00"


async def with_server(serve: Serve, talk: Callable[[Client], Awaitable[None]]) -> None:
    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(guarded, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        await talk(Client("127.0.0.1", port, transport="websocket", reconnect=None, timeout=5))


def accepting(then: Serve, protocol: str = "mqtt") -> Serve:
    """A server that accepts the WebSocket."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"sec-websocket-protocol: mqtt" in head.lower()
        key = head[head.lower().index(b"sec-websocket-key: ") + 19 :].split(b"\r\n", 1)[0]
        proof = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()).decode()
        lines = ["HTTP/1.1 101 Yes", "Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Accept: {proof}"]
        lines += [f"Sec-WebSocket-Protocol: {protocol}"] if protocol else []
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        await then(reader, writer)

    return serve


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", "403"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "no WebSocket"),
        (b"HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", "no WebSocket"),
        (b"x" * 20_000, "too long"),
        (b"", "closed"),
    ],
    ids=["refused", "no HTTP", "no proof", "too long", "closed"],
)
def test_answers_that_are_none(answer: bytes, said: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    async def talk(client: Client) -> None:
        with pytest.raises(ConnectError, match=said):
            await client.connect()

    run(with_server(serve, talk))


def test_a_server_of_something_else() -> None:
    async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def talk(client: Client) -> None:
        with pytest.raises(ConnectError, match="MQTT"):
            await client.connect()

    run(with_server(accepting(nothing, protocol=""), talk))


@pytest.mark.parametrize(
    "bad",
    [
        frame_head(TEXT, 1) + b"x",
        frame_head(CLOSE, 2) + b"\x03\xe8",
        bytes([0x82, 0x81]) + b"abcd" + b"x",
    ],
    ids=["text", "close", "masked"],
)
def test_a_ping_and_an_end(bad: bytes) -> None:
    """The server pings, in the middle of a message in fragments, and then ends it in one way or the other."""
    frames = FrameReader(masked=True)

    async def talk_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert frames.feed(await reader.read(1000))[0] == 0x10
        writer.write(bytes([BINARY, 2]) + CONNACK[:2] + frame_head(PING, 2) + b"hi" + bytes([0x80, 3]) + CONNACK[2:])
        pong = await reader.readexactly(8)
        assert pong[0] == 0x8A and bytes(a ^ b for a, b in zip(pong[6:], pong[2:6], strict=False)) == b"hi"
        writer.write(bad)
        frames.feed(await reader.read())
        assert frames.closed is not None

    async def talk(client: Client) -> None:
        await client.connect()
        with pytest.raises(Disconnected):
            async for _ in client.messages:
                pass

    run(with_server(accepting(talk_back), talk))
