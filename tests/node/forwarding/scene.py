"""Nodes with stores and forwards in one event loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from headwater.client import Client
from headwater.node import Broker, Config
from headwater.node.forwarding.view import ForwardView
from headwater.node.operations.reloading import Reloader
from headwater.node.persistence.memory import MemoryBackend
from headwater.store.entry import Entry
from headwater.store.memory import MemoryStore
from headwater.store.query import Query
from headwater.store.store import Store

HOST = "127.0.0.1"
QUICK = {"reconnect_first": 0.01, "reconnect_longest": 0.05}


class Disk(NamedTuple):
    """What outlives a node: its store, its sessions, and the folder in which forwards say how far they have come."""

    folder: Path
    store: MemoryStore
    backend: MemoryBackend


class LastingStore(MemoryStore):
    """One that a broker does not take along when it ends."""

    def close(self) -> None:
        pass


class LastingBackend(MemoryBackend):
    def close(self) -> None:
        pass


def disk(folder: Path, id: str = "near") -> Disk:
    (folder / id).mkdir(exist_ok=True)
    return Disk(folder / id, LastingStore(id), LastingBackend())


def forward(port: int, **settings: Any) -> dict[str, Any]:
    return {"name": "cloud", "addresses": [f"{HOST}:{port}"], **QUICK, **settings}


@asynccontextmanager
async def node(disk: Disk, *forwards: dict[str, Any], **settings: Any) -> AsyncIterator[Broker]:
    """On a free port unless the settings name one."""
    config = Config(
        **{
            "host": HOST,
            "port": 0,
            "sys_interval": 0,
            "data_dir": str(disk.folder),
            "store": {"enabled": True, "id": disk.store.id},
            "forward": list(forwards),
            **settings,
        }
    )
    async with Broker(config, backend=disk.backend, store=disk.store) as made:
        yield made


def reload(near: Broker, *forwards: dict[str, Any]) -> None:
    """As on SIGHUP."""
    settings = {**near.config.model_dump(), "forward": list(forwards)}
    Reloader(near, lambda: Config(**settings), lambda: None).reload()


async def publish(near: Broker, *payloads: object, topic: str = "a", qos: int = 1, **more: Any) -> None:
    async with Client(HOST, near.port) as client, asyncio.TaskGroup() as group:
        for payload in payloads:
            group.create_task(client.publish(topic, str(payload), qos=qos, **more))


async def until(condition: Callable[[], object], patience: float = 15.0) -> None:
    async with asyncio.timeout(patience):
        while not condition():
            await asyncio.sleep(0.005)


def view(near: Broker) -> ForwardView:
    [found] = near.forwards.views()
    return found


async def until_done(near: Broker) -> None:
    """The remote has acknowledged all that there is."""
    store = near.store
    assert store is not None
    await until(lambda: view(near).position == store.next - 1)


def entries(store: Store) -> list[Entry]:
    return [entry for chunk in store.select(Query()) for entry in chunk.entries()]


def payloads(store: Store) -> list[str]:
    return [each.payload.decode() for each in entries(store)]


def sources(store: Store) -> list[str]:
    """Where messages say that they are from."""
    user = [dict(json.loads(each.properties or b"{}").get("user", [])) for each in entries(store)]
    return [each["headwater-source"] for each in user if "headwater-source" in each]
