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


def test_what_is_spoken_there_is_guessed_at(tmp_path: Path) -> None:
    """TLS where there is none, none where there is, and MQTT itself where WebSocket is spoken."""
    authority = Authority(tmp_path)
    rows = [{"port": 0}, {"port": 0, "tls": authority.server()}, {"port": 0, "protocol": "websocket"}]

    async def main() -> None:
        async with Broker(Config(listeners=rows, sys_interval=0)) as broker:
            plain, tls, web = (each.port for each in broker.listeners)
            code, _, text = await headwater("pub", "-p", plain, "--cafile", authority.file, "-t", "a", "-m", "x")
            assert (code, text.count("\n")) == (1, 1)
            assert "TLS may not be spoken there" in text
            for port in (tls, web):
                code, _, text = await headwater("pub", "-p", port, "-t", "a", "-m", "x")
                assert (code, text.count("\n")) == (1, 1)
                assert "perhaps TLS (--cafile, --tls) or WebSocket (--ws) is spoken there" in text

    asyncio.run(main())


def test_a_certificate_that_is_asked_for_or_not_accepted_is_told_in_words(tmp_path: Path) -> None:
    authority, strange = Authority(tmp_path), Authority(tmp_path, "strange")
    tls = authority.server() | {"client_certificates": "required", "ca": authority.file}
    other = strange.client("somebody")

    async def main() -> None:
        async with Broker(Config(listeners=[{"port": 0, "tls": tls}], sys_interval=0)) as broker:
            to = ["-p", broker.listeners[0].port, "--cafile", authority.file, "-t", "a", "-m", "x"]
            code, _, text = await headwater("pub", *to)
            assert (code, text.count("\n")) == (1, 1)
            assert "the server asks for a certificate of ours" in text
            code, _, text = await headwater("pub", *to, "--cert", other["certificate"], "--key", other["key"])
            assert (code, text.count("\n")) == (1, 1)
            assert "the server does not know who signed our certificate" in text

    asyncio.run(main())


@pytest.mark.parametrize("given", ["certificate", "key", "ca"])
def test_files_that_do_not_fit_are_named(given: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.client("one") | {"ca": authority.file}
    wrong, words = {
        "certificate": (files["key"], "one.key holds no certificate"),
        "key": (authority.client("two")["key"], "two.key is not the key of"),
        "ca": (files["key"], "one.key holds no certificate"),
    }[given]
    files[given] = wrong
    options = ["--cafile", files["ca"], "--cert", files["certificate"], "--key", files["key"]]
    code, _, text = asyncio.run(headwater("pub", *options, "-t", "a", "-m", "x"))
    assert code == 2
    assert words in text
