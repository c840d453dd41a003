"""Brokers with bridges in one event loop, and clients that look at them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from headwater.client import Client, Message
from headwater.node import Broker, Config
from headwater.node.operations.reloading import Reloader

HOST = "127.0.0.1"
QUICK = {"reconnect_first": 0.01, "reconnect_longest": 0.05}


def bridge(port: int, *topics: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """A bridge to this port; without topics, of everything in both directions."""
    rows = list(topics) or [{"filter": "#", "direction": "both", "qos": 2}]
    name = settings.get("name", "north")
    return {"name": name, "addresses": [f"{HOST}:{port}"], "topics": rows, **QUICK, **settings}


@asynccontextmanager
async def broker(*bridges: dict[str, Any], **settings: Any) -> AsyncIterator[Broker]:
    """On a free port unless the settings name one; its bridges need not be up yet."""
    config = Config(**{"host": HOST, "port": 0, "sys_interval": 0, "bridges": list(bridges), **settings})
    async with Broker(config) as made:
        yield made


def reload(near: Broker, *bridges: dict[str, Any]) -> None:
    """As on SIGHUP."""
    settings = {**near.config.model_dump(), "bridges": list(bridges)}
    Reloader(near, lambda: Config(**settings), lambda: None).reload()


async def until_up(*brokers: Broker) -> None:
    """All bridges of these brokers are up."""
    for each in brokers:
        while not (each.bridges.views() and all(view.up for view in each.bridges.views())):
            await asyncio.sleep(0.005)


@asynccontextmanager
async def client(port: int, *filters: str, **settings: Any) -> AsyncIterator[Client]:
    async with Client(HOST, port, **settings) as made:
        if filters:
            await made.subscribe(list(filters), qos=2, retain_as_published=True)
        yield made


async def take(found: Client, count: int) -> list[Message]:
    return [await anext(found.messages) for _ in range(count)]


def said(messages: list[Message]) -> list[tuple[str, bytes]]:
    return [(each.topic, each.payload) for each in messages]
