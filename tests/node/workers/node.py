"""`headwater broker --workers N` in processes of its own, with an admin API."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import httpx

from headwater.client import Client
from headwater.node.workers.desk import PART
from tests.brokers import free_port
from tests.node.admin.api import TOKEN

LONG = 60.0
"""Seconds: each worker imports a broker, on a machine that has other things to do."""


class WorkersNode:
    def __init__(self, folder: Path, *words: object, workers: int = 2) -> None:
        self.port, self.admin_port = free_port(), free_port()
        self.words = [str(each) for each in words]
        self.count = workers
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.end(signal.SIGKILL)

    def start(self) -> None:
        self.launch()
        self.until(self.is_ready, "workers serve")

    def launch(self) -> None:
        ports = ["--port", str(self.port), "--set", f"admin.port={self.admin_port}", "--set", "admin.enabled=true"]
        command = [sys.executable, "-m", "headwater", "broker", "--workers", str(self.count), *ports, *self.words]
        environment = os.environ | {"HEADWATER_ADMIN__TOKEN": TOKEN}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Its exit status; all its processes have gone then."""
        if self.process is None:
            return 0
        pids = [each["process"] for each in self.workers()] if self.process.poll() is None and self.is_ready() else []
        self.process.send_signal(number)
        status = self.process.wait(LONG)
        self.process = None
        self.until(lambda: not any(map(is_alive, pids)), "workers end")
        return status

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def until(self, condition: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + LONG
        while not condition():
            assert time.monotonic() < deadline, f"{what}:\n{self.said()}"
            assert self.process is None or self.process.poll() is None, self.said()
            time.sleep(0.05)

    # ---- the admin API -----------------------------------------------------------------------------------------

    def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        return httpx.request(
            method, f"http://127.0.0.1:{self.admin_port}{path}", headers=headers, timeout=20, **options
        )

    def get(self, path: str, **query: Any) -> Any:
        answer = self.call("GET", path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def is_ready(self) -> bool:
        try:
            return all(each["up"] and each["links_up"] == self.count - 1 for each in self.workers())
        except httpx.HTTPError:
            return False

    def workers(self) -> list[dict[str, Any]]:
        found = self.get("/v1/workers")
        assert isinstance(found, list)
        return found

    def all(self, path: str, first: Any = 0, key: str = "offset", **query: Any) -> list[dict[str, Any]]:
        """The items of all pages."""
        items, place = [], first
        while place is not None:
            page = self.get(path, **{key: place}, **query)
            items += page["items"]
            place = page["next"]
        return items

    def ids_at(self, worker: int) -> list[str]:
        """Of clients that are connected to a worker."""
        return [each["client_id"] for each in self.get("/v1/clients", offset=worker * PART)["items"]]

    async def client_at(self, worker: int, client_id: str, **others: Any) -> Client:
        """Connected to this worker: the system chooses, so try again."""
        deadline = time.monotonic() + LONG
        while time.monotonic() < deadline:
            client = Client("127.0.0.1", self.port, client_id=client_id, **others)
            await client.__aenter__()
            if client_id in await asyncio.to_thread(self.ids_at, worker):
                return client
            await client.__aexit__(None, None, None)
        raise AssertionError(f"no connection to worker {worker}")


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
