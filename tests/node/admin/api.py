"""The admin API of a broker in memory, called without sockets."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
from pydantic import SecretStr

from headwater.node.admin.app import make_app
from headwater.node.admin.desk import Desk
from headwater.node.admin.local import LocalReach
from headwater.node.admin.token import FixedToken
from headwater.node.broker import Broker
from headwater.node.config import Admin, Config
from headwater.wire.packets import Connect, Subscribe, SubscribeRequest
from tests.node.memory import Client, MemoryBroker

TOKEN = "0123456789abcdef-secret"


def admin(**others: Any) -> Admin:
    return Admin(**{"enabled": True, "token": SecretStr(TOKEN), **others})


class Api:
    def __init__(self, **settings: Any) -> None:
        config = Config(sys_interval=0, admin=admin(), **settings)
        self.broker = Broker(config)
        self.memory = MemoryBroker(config, self.broker.hooks)
        self.memory.server.hot.now = time.monotonic()  # the API looks at the clock
        self.broker.server = self.memory.server
        self.guard = FixedToken(config.admin)
        self.desk = Desk(self.broker)
        self.app = make_app(LocalReach(self.desk), self.guard)

    def client(self, client_id: str, *filters: str, version: int = 5, **others: Any) -> Client:
        client = Client(self.memory)
        client.connect(Connect(client_id, version, **others))
        if filters:
            client.send(Subscribe(1, [SubscribeRequest(each, 1) for each in filters]))
            client.packets()
        return client

    def call(self, method: str, path: str, *, token: str | None = TOKEN, **options: Any) -> httpx.Response:
        headers = options.pop("headers", {}) | ({} if token is None else {"Authorization": f"Bearer {token}".encode()})

        async def calling() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://broker") as client:
                return await client.request(method, path, headers=headers, **options)

        answer = asyncio.run(calling())
        self.memory.turn()
        return answer

    def get(self, path: str, **options: Any) -> Any:
        answer = self.call("GET", path, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def pages(self, path: str, cursor: str, **parameters: Any) -> list[list[Any]]:
        """The items of all pages."""
        found: list[list[Any]] = []
        next_page: Any = None
        while True:
            page = self.get(path, params={**parameters, **({} if next_page is None else {cursor: next_page})})
            found.append(page["items"])
            next_page = page["next"]
            if next_page is None:
                return found
