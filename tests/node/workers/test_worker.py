from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from headwater.node.config import Config
from headwater.node.http.link import Link
from headwater.node.workers import worker as module
from headwater.node.workers.parts import LinksFolder, packed, part_of
from headwater.node.workers.worker import Worker
from tests.brokers import free_port


def test_clients_are_taken_though_another_worker_is_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LINK_WAIT", 0.2)
    config = part_of(Config(workers=2, port=free_port()), 0, LinksFolder(tmp_path, "0123456789abcdef", False))

    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        ready, lost = asyncio.Event(), asyncio.Event()
        link = Link({}, lambda name, said: ready.set(), lambda why: lost.set(), 1 << 20)
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: link, sock=ours)
        monkeypatch.setattr(module, "_end", lambda why: None)
        worker = Worker()
        living = asyncio.create_task(worker.run(theirs))
        link.tell("begin", number=0, count=2, settings=packed(config), unix={})
        async with asyncio.timeout(30):
            await ready.wait()
            assert (await link.ask("look"))["worker"]["links_up"] == 0
            socket.create_connection(("127.0.0.1", config.port), timeout=10).close()
            link.tell("stop")
            assert await living == 0
        link.close()
        await lost.wait()

    asyncio.run(scenario())
    assert "not linked with all workers after 0.2 s" in caplog.text
