"""The delivery stores of workers: one each, and each message in one of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
from pathlib import Path
from typing import Any

import httpx

from headwater.client import Client
from tests.node.workers.node import LONG, WorkersNode


def two_ports() -> int:
    """The first of two free ones in a row."""
    for port in random.sample(range(20_000, 30_000), 100):  # below those that the system gives to others
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 1))
            return port
    raise AssertionError("no two ports in a row are free")


def stored(port: int) -> dict[str, Any]:
    """A worker's store, whole."""
    url = f"http://127.0.0.1:{port}/v1/messages"
    found: dict[str, Any] = httpx.get(url, params={"after": 0, "limit": 10_000}, timeout=LONG).raise_for_status().json()
    assert not found["more"]
    return found


def test_each_message_is_in_one_store_and_positions_have_no_gaps(tmp_path: Path) -> None:
    """Clients at both workers publish and subscribe to all of it, while the second worker is killed."""
    rest = two_ports()
    settings = ["store.enabled=true", "store.id=plant", "rest.enabled=true", f"rest.port={rest}"]
    words = [word for each in settings for word in ("--set", each)]
    with WorkersNode(tmp_path, "--data-dir", tmp_path / "data", *words) as node:
        acknowledged: set[str] = set()
        stop = asyncio.Event()

        async def publish(client: Client) -> None:
            number = 0
            while not stop.is_set():
                number += 1
                await client.publish("load/x", f"{client.client_id} {number}", qos=1)
                acknowledged.add(f"{client.client_id} {number}")

        async def read(client: Client) -> None:
            async for _ in client.messages:
                pass

        async def scenario() -> None:
            clients = [await node.client_at(number, f"client-{number}") for number in range(2)]
            for client in clients:
                await client.subscribe("load/#", qos=1)
            reading = [asyncio.create_task(read(each)) for each in clients]
            publishing = [asyncio.create_task(publish(each)) for each in clients]
            killed = (await asyncio.to_thread(node.workers))[1]["process"]
            async with asyncio.timeout(LONG):
                for at_least in (100, 300):
                    while sum(each.startswith("client-1") for each in acknowledged) < at_least:
                        await asyncio.sleep(0.01)
                    if at_least == 100:
                        os.kill(killed, signal.SIGKILL)
            stop.set()
            await asyncio.gather(*publishing)
            for task in reading:
                task.cancel()
            for client in clients:
                await client.__aexit__(None, None, None)

        asyncio.run(scenario())
        node.until(node.is_ready, "the worker is replaced")
        node.until(lambda: serves(rest + 1), "its store is served")
        stores = [stored(rest), stored(rest + 1)]
        assert [each["store"] for each in stores] == ["plant-0", "plant-1"]
        payloads: list[str] = []
        for each in stores:
            positions = [message["position"] for message in each["messages"]]
            assert positions == list(range(1, len(positions) + 1))
            payloads += [message["payload"] for message in each["messages"]]
        assert acknowledged <= set(payloads)
        again = len(payloads) - len(set(payloads))
        assert again <= 1, "what was not acknowledged when the worker died was sent again, and nothing else"
        metrics = node.call("GET", "/metrics").text
        assert f"headwater_store_next_position {float(len(payloads) + 2)}" in metrics


def serves(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/ready", timeout=LONG).status_code == 200
    except httpx.HTTPError:
        return False
