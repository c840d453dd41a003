"""A broker that stores, with REST beside it, in a thread of its own: what tests of both call from outside."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx

from headwater.client.sync import Client
from headwater.node.access.settings import AccessSettings
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.delivery.rest_settings import RestSettings
from headwater.node.delivery.serving import Rest
from headwater.node.delivery.settings import StoreSettings
from headwater.node.hooks import Hooks
from headwater.node.http.process import HttpProcess
from headwater.node.persistence.memory import MemoryBackend
from headwater.store.disk_store import DiskStore
from headwater.store.memory import MemoryStore
from headwater.store.store import Store

PATIENCE = 15.0
Found = TypeVar("Found")


class Node:
    beside: Path | None = None
    """A folder: REST is served by a process of its own (node/http), from a store on disk there."""

    def __init__(self, config: Config, hooks: Hooks | None = None, store: Store | None = None) -> None:
        self.config = config
        self.store = store or (MemoryStore("s1") if self.beside is None else DiskStore(self.beside / "store", id="s1"))
        self.backend = MemoryBackend()
        self.hooks = hooks or Hooks()
        self.broker: Broker
        self.rest: Rest | HttpProcess
        self._loop: asyncio.AbstractEventLoop
        self._end: asyncio.Event
        self._is_up = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()
        self._is_up.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._is_up.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        async with Broker(self.config, self.hooks, self.backend, self.store) as self.broker:
            self.rest = Rest(self.broker, self.store) if self.beside is None else HttpProcess(self.broker)
            await self.rest.start()
            self._is_up.set()
            try:
                await self._end.wait()
            finally:
                await self.rest.stop()

    def do(self, work: Callable[[], Found]) -> Found:
        """On the broker's loop."""

        async def doing() -> Found:
            return work()

        return asyncio.run_coroutine_threadsafe(doing(), self._loop).result(PATIENCE)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.rest.port if isinstance(self.rest, Rest) else self.rest.rest_port}"

    def call(self, method: str, path: str, *, user: tuple[str, str] | None = None, token: str = "", **more: Any) -> Any:
        headers = dict(more.pop("headers", {}))
        if token:
            headers["Authorization"] = f"Bearer {token}"
        with httpx.Client(base_url=self.url, timeout=PATIENCE) as client:
            return client.request(method, path, auth=user, headers=headers, **more)

    def status(self, method: str, path: str, **more: Any) -> int:
        found: int = self.call(method, path, **more).status_code
        return found

    def topics(self, **more: Any) -> list[str]:
        """Those that a caller sees."""
        answer = self.call("GET", "/v1/topics", **more)
        assert answer.status_code == 200, answer.text
        return [each["topic"] for each in answer.json()["topics"]]

    def client(self, **options: Any) -> Client:
        return Client("127.0.0.1", self.broker.port, timeout=PATIENCE, **options)


@contextlib.contextmanager
def running(
    hooks: Hooks | None = None,
    store: Store | None = None,
    *,
    access: dict[str, Any] | None = None,
    rest: dict[str, Any] | None = None,
    stored: dict[str, Any] | None = None,
    **settings: Any,
) -> Iterator[Node]:
    if Node.beside is not None:
        rest = {"enabled": True, **(rest or {})}
        stored = {"enabled": True, **(stored or {})}
        settings = {"data_dir": str(Node.beside), **settings}
    config = Config(
        host="127.0.0.1",
        port=0,
        sys_interval=0,
        access=AccessSettings(**(access or {})),
        rest=RestSettings(**{"host": "127.0.0.1", "port": 0, **(rest or {})}),
        store=StoreSettings(**(stored or {})),
        **settings,
    )
    node = Node(config, hooks, store)
    node.start()
    try:
        yield node
    finally:
        node.stop()
