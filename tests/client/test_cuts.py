"""Connections that are cut at any byte, in both directions: nothing is lost, and QoS 2 arrives exactly once."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import TracebackType
from typing import Literal, Self

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.client import V5, V311, Client, Message
from headwater.node import Broker, Config
from tests.client.scripted import SOON, run

MESSAGES = 40

Cuts = list[tuple[int, int]]


class Cutter:
    """A way to the broker that is cut after so many bytes to it or from it, once for each entry; then it holds."""

    def __init__(self, port: int, cuts: Cuts) -> None:
        self._port = port
        self._cuts = list(cuts)
        self._ways: set[asyncio.Task[None]] = set()
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def cuts_left(self) -> int:
        return len(self._cuts)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for way in self._ways:
            way.cancel()
        await asyncio.gather(*self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        budgets: tuple[int | None, int | None] = self._cuts.pop(0) if self._cuts else (None, None)
        serving = asyncio.current_task()
        assert serving is not None
        self._serving.add(serving)
        try:
            from_broker, to_broker = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                ways = [
                    asyncio.create_task(self._carry(reader, to_broker, budgets[0])),
                    asyncio.create_task(self._carry(from_broker, writer, budgets[1])),
                ]
                self._ways |= set(ways)
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                to_broker.transport.abort()
        finally:
            writer.transport.abort()

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, budget: int | None) -> None:
        try:
            while budget is None or budget > 0:
                data = await source.read(4096 if budget is None else min(budget, 4096))
                if not data:
                    return
                if budget is not None:
                    budget -= len(data)
                target.write(data)
                await target.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass


budgets = st.integers(20, 1500)
cuts = st.lists(st.tuples(budgets, budgets), max_size=8)


@settings(max_examples=30, deadline=None)
@given(
    publishers_cuts=cuts,
    subscribers_cuts=cuts,
    receive_maximum=st.integers(1, 12),
    acknowledge=st.sampled_from(["after_body", "manual"]),
    version=st.sampled_from([V5, V311]),
)
def test_cut_connections_lose_nothing(
    publishers_cuts: Cuts,
    subscribers_cuts: Cuts,
    receive_maximum: int,
    acknowledge: Literal["after_body", "manual"],
    version: int,
) -> None:
    async def scenario() -> None:
        async with (
            Broker(Config(port=0, sys_interval=0)) as broker,
            Cutter(broker.port, publishers_cuts) as way_in,
            Cutter(broker.port, subscribers_cuts) as way_out,
        ):
            patient = type(SOON)(SOON.first, SOON.longest, from_start=True)
            async with (
                Client(
                    *("127.0.0.1", way_out.port),
                    client_id="subscriber",
                    version=version,
                    clean_start=False,
                    acknowledge=acknowledge,
                    receive_maximum=receive_maximum,
                    reconnect=patient,
                ) as subscriber,
                Client(
                    *("127.0.0.1", way_in.port),
                    client_id="publisher",
                    version=version,
                    clean_start=False,
                    reconnect=patient,
                ) as publisher,
            ):
                await subscriber.subscribe("#", qos=2)
                arrived: Counter[bytes] = Counter()

                async def acknowledge_later(message: Message) -> None:
                    await asyncio.sleep(message.packet_id % 4 * 0.002)  # in another order
                    await message.ack()

                async def receive(group: asyncio.TaskGroup) -> None:
                    async for message in subscriber.messages:
                        arrived[message.payload] += 1
                        if acknowledge == "manual":
                            group.create_task(acknowledge_later(message))
                        if len(arrived) == MESSAGES:
                            return

                async with asyncio.TaskGroup() as group:
                    group.create_task(receive(group))
                    for number in range(MESSAGES):
                        qos = 1 + number % 2
                        group.create_task(publisher.publish(f"qos/{qos}", f"{number}/{qos}", qos=qos))
                assert {payload: count for payload, count in arrived.items() if payload.endswith(b"/2")} == {
                    f"{number}/2".encode(): 1 for number in range(1, MESSAGES, 2)
                }
                assert len(arrived) == MESSAGES

    run(scenario())
