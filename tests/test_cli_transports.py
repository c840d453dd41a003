"""`headwater pub` and `sub` by other ways: WebSocket, with TLS and a certificate of the client, and Unix socket."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.node import Broker, Config
from tests.node.transports.serving import Authority

PATIENCE = 30.0


async def headwater(*arguments: object) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headwater", *map(str, arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE):
        out, errors = await process.communicate()
    return process.returncode, out.decode(), errors.decode()


def listener(kind: str, authority: Authority, folder: Path) -> dict[str, Any]:
    if kind == "unix":
        return {"unix": str(folder / "mqtt.sock")}
    row: dict[str, Any] = {"host": "localhost", "port": 0, "protocol": "websocket", "websocket_path": "/here"}
    if kind == "wss":
        row["tls"] = authority.server() | {"client_certificates": "required", "ca": authority.file}
    return row


Way = Callable[[int, Path, Authority], list[object]]


def url_of_unix(port: int, folder: Path, authority: Authority) -> list[object]:
    return ["-L", f"unix:{folder}/mqtt.sock"]


def unix(port: int, folder: Path, authority: Authority) -> list[object]:
    return ["--unix", folder / "mqtt.sock"]


def websocket(port: int, folder: Path, authority: Authority) -> list[object]:
    return ["--ws", "--ws-path", "/here", "-p", port]


def url_of_websocket(port: int, folder: Path, authority: Authority) -> list[object]:
    return ["-L", f"ws://localhost:{port}/here"]


def secure_websocket(port: int, folder: Path, authority: Authority) -> list[object]:
    client = authority.client("somebody")
    trusting = ["--cafile", authority.file, "--cert", client["certificate"], "--key", client["key"]]
    return ["-L", f"wss://localhost:{port}/here", *trusting]


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        ("unix", unix),
        ("unix", url_of_unix),
        ("ws", websocket),
        ("ws", url_of_websocket),
        ("wss", secure_websocket),
    ],
)
def test_messages_pass(kind: str, way: Way, tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def main() -> None:
        config = Config(listeners=[listener(kind, authority, tmp_path)], sys_interval=0)
        async with Broker(config) as broker:
            to = way(broker.listeners[0].port, tmp_path, authority)
            assert await headwater("pub", *to, "-t", "kept", "-m", "x", "-r", "-q", 1) == (0, "", "")
            assert await headwater("sub", *to, "-t", "kept", "-C", 1) == (0, "x\n", "")

    asyncio.run(main())


def test_a_path_where_there_is_none_and_a_certificate_that_is_missing(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def main() -> None:
        config = Config(listeners=[listener(kind, authority, tmp_path) for kind in ("ws", "wss")], sys_interval=0)
        async with Broker(config) as broker:
            web, secure = (each.port for each in broker.listeners)
            code, _, text = await headwater("pub", "--ws", "-p", web, "-t", "a", "-m", "x")
            assert code == 1
            assert "404" in text  # the usual path is not served there
            url = f"wss://localhost:{secure}/here"
            code, _, text = await headwater("pub", "-L", url, "--cafile", authority.file, "-t", "a", "-m", "x")
            assert code == 1
            assert text.count("\n") == 1, text

    asyncio.run(main())
