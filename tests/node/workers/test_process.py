"""A worker that does not do as it is told: programs in its place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headwater.node.config import Config
from headwater.node.workers import process as module
from headwater.node.workers.process import WorkerProcess

READS = "import socket, sys, struct, json; link = socket.socket(fileno=int(sys.argv[1])); link.recv(1 << 20);"
SAYS = (
    "head = json.dumps({'tell': 'ready', 'with': {}}).encode(); link.sendall(struct.pack('<II', len(head), 0) + head);"
)


def play(
    program: str, monkeypatch: pytest.MonkeyPatch, then: Callable[[WorkerProcess], Coroutine[Any, Any, None]]
) -> None:
    monkeypatch.setattr(module, "PROGRAM", READS + program)

    async def scenario() -> None:
        worker = WorkerProcess(0, 1, Config(), {}, lambda config: "settings", lambda worker: None)
        worker.start()
        async with asyncio.timeout(30):
            await then(worker)
            await worker.stop()

    asyncio.run(scenario())


def test_why_the_first_start_failed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def then(worker: WorkerProcess) -> None:
        assert await worker.begun == "worker-0 ended: exit code 7"
        assert worker.restarts == 0, "nobody tries again what does not work from the beginning"

    play("sys.exit(7)", monkeypatch, then)


def test_pauses_double_up_to_a_bound(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(module, "LONGEST_PAUSE", 0.003)

    async def then(worker: WorkerProcess) -> None:
        assert await worker.begun == ""
        while worker.restarts < 4:
            await asyncio.sleep(0.01)

    play(SAYS, monkeypatch, then)
    pauses = [record.getMessage().rpartition(" in ")[2] for record in caplog.records][:4]
    assert pauses == ["0.001 s", "0.002 s", "0.003 s", "0.003 s"]


def test_one_that_does_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(module, "FAREWELL", 0.2)

    async def then(worker: WorkerProcess) -> None:
        assert await worker.begun == ""
        assert worker.process
        await worker.stop()
        assert not worker.process

    play(SAYS + "import time; time.sleep(3600)", monkeypatch, then)
    assert "worker-0 does not end, and is killed" in caplog.text
