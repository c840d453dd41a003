"""REST over a store, live on a port of loopback, with callers whose rights a test chooses."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from headwater.routing.topics import matches
from headwater.store.rest.context import Context, Limits
from headwater.store.rest.gate import Approach, Caller, Gate, Publication, Refused, Unauthorized
from headwater.store.rest.serving import RestServer
from headwater.store.store import Store
from tests.store.messages import Writer

PATIENCE = 15.0
EVERYTHING = "everything"
"""The token of somebody for whom no rules hold."""


class SomeCaller(Caller):
    """May read and publish what matches one of its filters."""

    def __init__(self, name: str, filters: list[str] | None) -> None:
        self.name = name
        self._filters = filters
        self.is_unrestricted = filters is None
        self.sees_all = filters is None or "#" in filters
        self.current = True
        self.may_erase = name == EVERYTHING

    def may_read(self, topic: str) -> bool:
        return self._filters is None or any(matches(each, topic) for each in self._filters)

    may_publish = may_read

    def is_current(self) -> bool:
        return self.current


def _nothing() -> None:
    return None


class SomeGate(Gate):
    """Tokens are names; what is published is written to the store at once."""

    def __init__(self, store: Store) -> None:
        self.writer = Writer(store)
        self.callers: dict[str, SomeCaller] = {EVERYTHING: SomeCaller(EVERYTHING, None)}
        self.approaches: list[Approach] = []
        self.published: list[Publication] = []
        self.ready = True
        self.stored = True
        self.clock = 0
        self.status: Callable[[], dict[str, Any] | None] = _nothing
        """What is known of an edge."""

    async def authenticate(self, approach: Approach) -> Caller:
        self.approaches.append(approach)
        caller = self.callers.get((approach.authorization or "").removeprefix("Bearer "))
        if caller is None:
            raise Unauthorized("show a token")
        return caller

    async def publish(self, caller: Caller, publication: Publication) -> int | None:
        if publication.topic == "full":
            raise Refused(507, "full", "no room")
        self.published.append(publication)
        if not self.stored:
            return None
        position = self.writer.take(
            publication.topic, publication.payload, qos=publication.qos, retain=publication.retain
        )
        self.writer.sync()
        return position

    async def settled(self) -> int:
        return self.clock

    async def edge(self) -> dict[str, Any] | None:
        return self.status()

    @property
    def largest_payload(self) -> int:
        return 100_000

    def is_ready(self) -> bool:
        return self.ready


class Served:
    def __init__(self, store: Store, limits: Limits | None = None, **options: Any) -> None:
        self.store = store
        self.gate = SomeGate(store)
        listening = socket.create_server(("127.0.0.1", 0))
        self.server = RestServer(store, self.gate, [listening], limits=limits, **options)
        self.server.start()
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    @property
    def context(self) -> Context:
        found: Context = self.server.app.state.context
        return found

    @property
    def writer(self) -> Writer:
        return self.gate.writer

    def use(self, store: Store) -> None:
        """From now on another store; tails stay with the first."""
        self.store = self.context.store = store
        self.gate.writer = Writer(store)
        self.gate.published.clear()
        self.gate.stored = True

    def add(self, name: str, *filters: str) -> SomeCaller:
        """Somebody with rights, whose token is its name."""
        caller = self.gate.callers[name] = SomeCaller(name, list(filters))
        return caller

    def call(
        self, method: str, path: str, params: dict[str, Any] | None = None, token: str | None = EVERYTHING, **more: Any
    ) -> httpx.Response:
        headers = dict(more.pop("headers", {}))
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return self.client.request(method, path, params=params, headers=headers, **more)

    def get(self, path: str, params: dict[str, Any] | None = None, token: str | None = EVERYTHING) -> Any:
        answer = self.call("GET", path, params, token)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refusal(self, method: str, path: str, params: dict[str, Any] | None = None, **more: Any) -> tuple[int, str]:
        """Status and the sentence of an error, which has the one shape that errors have."""
        answer = self.call(method, path, params, **more)
        body = answer.json()
        assert answer.headers["content-type"] == "application/json"
        assert {"error", "detail"} <= body.keys() and isinstance(body["error"], str), body
        return answer.status_code, body["detail"]

    def stop(self) -> None:
        self.client.close()
        self.server.stop()


@contextlib.contextmanager
def serving(store: Store, limits: Limits | None = None, **options: Any) -> Iterator[Served]:
    served = Served(store, limits, **options)
    try:
        yield served
    finally:
        served.stop()
