"""Conditions of subscriptions outlive the process, an export and an import."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from headwater.client import Client
from headwater.message import Subscription
from headwater.node.persistence.export import Export, as_text
from headwater.node.persistence.importing import BadLines, Import
from headwater.node.persistence.memory import MemoryBackend
from headwater.node.persistence.records import (
    SESSION,
    number_key,
    subscription_in,
    subscription_key,
    subscription_record,
)
from headwater.routing.conditions.condition import condition_of
from headwater.wire.packets import Properties
from tests.brokers import wait_until_listening
from tests.node.persistence.test_persistence import PATIENCE, process

TEXT = "value > 30 and unit in ('°C', \"it's\") limit 1 per 1ms"


def with_condition(name: str, text: str) -> Subscription:
    subscription = Subscription(name, 1, identifier=7)
    subscription.condition = condition_of(text)
    return subscription


@pytest.mark.parametrize("name", ["t/#", "$share/g/t"])
def test_what_goes_in_comes_out(name: str) -> None:
    found = subscription_in(name, subscription_record(with_condition(name, TEXT)))
    assert found.condition is not None
    assert found.condition.source == TEXT
    assert (found.name, found.qos, found.identifier) == (name, 1, 7)
    assert subscription_in(name, subscription_record(Subscription(name))).condition is None


def backend_with(text: str) -> MemoryBackend:
    backend = MemoryBackend()
    fields = {"id": "r", "expiry": 1000, "away": True}
    puts = [
        (number_key(SESSION, 1), json.dumps(fields).encode()),
        (subscription_key(1, "t"), subscription_record(with_condition("t", text))),
    ]
    backend.write(puts, [])
    return backend


def lines_of(backend: MemoryBackend) -> list[dict[str, Any]]:
    return list(Export(backend, print).lines())


def test_an_export_has_it_and_an_import_takes_it() -> None:
    lines = lines_of(backend_with(TEXT))
    assert [line["condition"] for line in lines if line["kind"] == "subscription"] == [TEXT]
    copy = MemoryBackend()
    Import(copy).run([as_text(line).encode() + b"\n" for line in lines])
    assert lines_of(copy) == lines


def test_an_import_refuses_one_that_cannot_be_read() -> None:
    lines = lines_of(backend_with(TEXT))
    text = [as_text(line).replace("value > 30", "value >").encode() + b"\n" for line in lines]
    with pytest.raises(BadLines, match="found 'and'"):
        Import(MemoryBackend()).run(text)


def test_after_kill_9_it_still_holds_messages_back(tmp_path: Path) -> None:
    """Also where conditions are not enabled any more: a session gets what it asked for."""

    def reader(port: int) -> Client:
        return Client("127.0.0.1", port, client_id="reader", clean_start=False, session_expiry=1000)

    async def leave(port: int) -> None:
        async with reader(port) as client:
            properties = Properties(user_properties=[("filter", "value > 30")])
            assert await client.subscribe(["t", "$share/g/u"], qos=1, properties=properties) == [1, 1]
        await publish(port, 29, 31)

    async def publish(port: int, *values: int) -> None:
        async with Client("127.0.0.1", port, client_id="writer", reconnect=None) as client:
            for value in values:
                for topic in ("t", "u"):
                    await client.publish(topic, b'{"value": %d}' % value, qos=1)

    async def take(port: int) -> list[bytes]:
        await publish(port, 28, 32)
        async with reader(port) as client, asyncio.timeout(PATIENCE):
            first = [(await anext(client.messages)).payload for _ in range(4)]
            await publish(port, 27, 33)
            return first + [(await anext(client.messages)).payload for _ in range(2)]

    with process(tmp_path / "data", "--set", "conditions.enabled=true") as (started, port):
        wait_until_listening(started, port)
        asyncio.run(leave(port))
        started.send_signal(signal.SIGKILL)
    with process(tmp_path / "data") as (started, port):
        wait_until_listening(started, port)
        found = asyncio.run(take(port))
    assert sorted(found) == sorted(b'{"value": %d}' % value for value in (31, 31, 32, 32, 33, 33))
