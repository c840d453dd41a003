"""What members of a shared group gain where proxies keep the group (`proxy.groups`): part of `scripts/bench proxy`.

Four members work off messages one after the other, each in its time; the publisher sends at a steady rate. The figure
is the mean time from when a message was due until it was worked off, at Mosquitto, which goes round, and at a proxy in
front of it, which looks at how members are doing. `slow`: one member takes 40 ms for a message and the others 2 ms;
`alike`: all take 2 ms, and there is nothing to be chosen.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from statistics import fmean
from typing import Final

from headwater.client import Client
from headwater_lab.load import LoadError

HOST: Final = "127.0.0.1"
GROUPS: Final = {"slow": (0.040, 0.002, 0.002, 0.002), "alike": (0.002,) * 4}
"""Seconds that each member takes for a message."""
MESSAGES: Final = 200
EVERY: Final = 0.005
"""Seconds between two messages."""
PATIENCE: Final = 60.0


def worked_off(port: int, services: Sequence[float], name: str) -> float:
    """Milliseconds, the mean of all messages. `name`: of the group and its topic. LoadError: one did not come, or came
    twice."""
    return asyncio.run(_worked_off(port, services, name))


async def _worked_off(port: int, services: Sequence[float], name: str) -> float:
    done: dict[int, float] = {}
    due: list[float] = []
    all_done = asyncio.Event()
    twice = 0

    async def member(client: Client, service: float) -> None:
        nonlocal twice
        async for message in client.messages:
            await asyncio.sleep(service)
            number = int(message.payload)
            twice += number in done
            done[number] = time.monotonic()
            if len(done) == MESSAGES:
                all_done.set()

    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(Client(HOST, port))
        for number, service in enumerate(services):
            client = await stack.enter_async_context(Client(HOST, port, client_id=f"{name}-{number}"))
            await client.subscribe(f"$share/{name}/{name}", qos=1)
            stack.callback(asyncio.create_task(member(client, service)).cancel)
        begun = time.monotonic()
        for number in range(MESSAGES):
            due.append(begun + number * EVERY)
            await asyncio.sleep(due[-1] - time.monotonic())
            await publisher.publish(name, b"%d" % number, qos=1)
        try:
            async with asyncio.timeout(PATIENCE):
                await all_done.wait()
        except TimeoutError:
            raise LoadError(f"{MESSAGES - len(done)} messages of the group {name} did not come") from None
    if twice:
        raise LoadError(f"{twice} messages of the group {name} came twice")
    return 1000.0 * fmean(done[number] - due[number] for number in range(MESSAGES))
