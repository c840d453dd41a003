"""A trace shows one client's packets, no secrets, and ends by itself."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from headwater.node.protocol import tracing as module
from headwater.node.protocol.tracing import TooManyTraces, Trace, Tracing, describe
from headwater.wire.packets import Auth, Connect, Properties, Publish, Subscribe, SubscribeRequest, Will
from tests.node.admin.api import TOKEN, Api
from tests.node.memory import Client, MemoryBroker

PATIENCE = 20.0


async def all_of(trace: Trace) -> list[dict[str, Any]]:
    async with asyncio.timeout(PATIENCE):
        return [record async for record in trace]


def traced(use: Callable[[MemoryBroker, Tracing], Any], *, packets: int = 1000) -> list[dict[str, Any]]:
    """What a trace of client "a" says of what `use` does."""

    async def main() -> list[dict[str, Any]]:
        broker = MemoryBroker()
        tracing = Tracing(broker.hooks)
        trace = tracing.start("a", PATIENCE, packets)
        use(broker, tracing)
        tracing.stop()
        return await all_of(trace)

    return asyncio.run(main())


def connected(broker: MemoryBroker, client_id: str, **others: Any) -> Client:
    client = Client(broker)
    client.connect(Connect(client_id, 5, **others))
    return client


def exchange(broker: MemoryBroker, tracing: Tracing) -> None:
    a, b = connected(broker, "a", username="u", password=b"hidden"), connected(broker, "b")
    a.send(Subscribe(1, [SubscribeRequest("x", 1)]))
    b.send(Publish("x", b"payload", 0))
    b.send(Publish("y", b"other", 0))


def test_packets_of_one_client_in_both_directions() -> None:
    *records, last = traced(exchange)
    assert [(each["direction"], each["packet"]) for each in records] == [
        ("in", "CONNECT"),
        ("out", "CONNACK"),
        ("in", "SUBSCRIBE"),
        ("out", "SUBACK"),
        ("out", "PUBLISH"),
    ]
    assert {each["client_id"] for each in records} == {"a"}
    assert (records[-1]["topic"], records[-1]["payload"]) == ("x", {"bytes": 7})
    assert last == {"ended": "the broker stops", "left_out": 0}
    assert "hidden" not in json.dumps(records)


@pytest.mark.parametrize(
    "packet",
    [
        Connect("a", 5, password=b"hidden", will=Will("w", b"hidden")),
        Connect("a", 5, properties=Properties(authentication_method="m", authentication_data=b"hidden")),
        Auth(0, Properties(authentication_data=b"hidden")),
        Publish("t", b"hidden", 0, properties=Properties(correlation_data=b"hidden")),
    ],
)
def test_secrets_and_payloads_are_not_shown(packet: Any) -> None:
    assert "hidden" not in json.dumps(describe(packet))


def test_not_even_the_length_of_a_secret_is_shown() -> None:
    assert describe(Connect("a", 5, password=b"hidden"))["password"] == "…"


def test_it_ends_after_so_many_packets() -> None:
    *records, last = traced(exchange, packets=2)
    assert (len(records), last["ended"]) == (2, "as many packets as asked for")


def test_it_ends_when_the_time_is_over() -> None:
    async def main() -> None:
        broker = MemoryBroker()
        assert (await all_of(Tracing(broker.hooks).start("a", 0.01, 5))) == [
            {"ended": "the time is over", "left_out": 0}
        ]
        assert not broker.hooks.slow

    asyncio.run(main())


def test_without_a_trace_nothing_is_slower() -> None:
    async def main() -> None:
        broker = MemoryBroker()
        tracing = Tracing(broker.hooks)
        assert broker.server.hot.enabled
        first, second = tracing.start("a", PATIENCE, 5), tracing.start("b", PATIENCE, 5)
        assert not broker.server.hot.enabled
        first.end("once")
        first.end("twice")
        assert not broker.server.hot.enabled
        second.end("done")
        assert broker.server.hot.enabled

    asyncio.run(main())


def test_who_does_not_read_misses_what_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 2)
    *records, last = traced(exchange)
    assert (len(records), last["left_out"]) == (2, 3)


def test_traces_are_few() -> None:
    async def main() -> None:
        tracing = Tracing(MemoryBroker().hooks)
        for _ in range(module.MOST_TRACES):
            tracing.start("a", PATIENCE, 5)
        with pytest.raises(TooManyTraces):
            tracing.start("a", PATIENCE, 5)
        tracing.stop()
        tracing.start("a", PATIENCE, 5)
        tracing.stop()

    asyncio.run(main())


def test_a_trace_goes_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        broker = MemoryBroker()
        tracing = Tracing(broker.hooks)
        tracing.start_to_log("a", PATIENCE, 2)
        exchange(broker, tracing)
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*tracing._tasks)

    with caplog.at_level(logging.INFO, "headwater.trace"):
        asyncio.run(main())
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["a"] * 3
    assert "'CONNECT'" in caplog.text and "hidden" not in caplog.text


def test_over_http_each_record_is_a_line() -> None:
    async def main() -> list[dict[str, Any]]:
        api = Api()
        transport = httpx.ASGITransport(api.app)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://broker", headers=headers) as client:
            order = {"client_id": "a", "packets": 2, "seconds": PATIENCE}
            asking = asyncio.create_task(client.post("/v1/trace", json=order))
            async with asyncio.timeout(PATIENCE):
                while not api.broker.hooks.slow:
                    await asyncio.sleep(0)
            api.client("a")
            answer = await asking
            assert (await client.post("/v1/trace", json={**order, "to": "log"})).status_code == 202
            for _ in range(module.MOST_TRACES - 1):
                await client.post("/v1/trace", json={**order, "to": "log"})
            assert (await client.post("/v1/trace", json=order)).status_code == 429
            api.desk.stop()
        assert answer.headers["content-type"] == "application/x-ndjson"
        return [json.loads(line) for line in answer.text.splitlines()]

    *records, last = asyncio.run(main())
    assert [each["packet"] for each in records] == ["CONNECT", "CONNACK"]
    assert last["ended"] == "as many packets as asked for"
