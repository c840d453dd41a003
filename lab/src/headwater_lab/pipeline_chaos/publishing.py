"""Publishers that never stop, whatever happens to their node, and remember what was acknowledged."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

from headwater.client import Client, Reconnect
from headwater_lab.pipeline_chaos.payloads import message

AGAIN: Final = Reconnect(first=0.05, longest=0.5, from_start=True, always=True)
KEPT: Final = 3600
"""Seconds for which a node keeps the session of a publisher."""
PATIENCE: Final = 60.0
UNDER_WAY: Final = 8


class Publishers:
    """One for each port; each sends about `rate` messages a second."""

    def __init__(self, ports: Sequence[int], seed: int, rate: float) -> None:
        self._ports = ports
        self._seed = seed
        self._rate = rate
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._publish()), daemon=True)
        self.acknowledged: list[Counter[tuple[str, bytes]]] = [Counter() for _ in ports]
        """Of each port: how often a topic and payload was."""
        self.failure: str = ""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """When all that was sent is acknowledged."""
        self._over.set()
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            self.failure = self.failure or f"publishers do not come to an end in {PATIENCE:g} s"

    async def _publish(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for index in range(len(self._ports)):
                    group.create_task(self._publisher(index))
        except BaseExceptionGroup as error:
            self.failure = f"a publisher ended: {error.exceptions[0]!r}"

    async def _publisher(self, index: int) -> None:
        port = self._ports[index]
        name = f"chaos-{index}"
        async with Client(
            "127.0.0.1", port, client_id=name, clean_start=False, session_expiry=KEPT, reconnect=AGAIN
        ) as client:
            room = asyncio.Semaphore(UNDER_WAY)
            async with asyncio.TaskGroup() as group:
                number = 0
                while not self._over.is_set():
                    await room.acquire()
                    group.create_task(self._send(client, index, number, room))
                    number += 1
                    await asyncio.sleep(1 / self._rate)

    async def _send(self, client: Client, index: int, number: int, room: asyncio.Semaphore) -> None:
        topic, payload = message(self._seed, index, number, time.time())
        await client.publish(topic, payload, qos=1)
        self.acknowledged[index][(topic, payload)] += 1
        room.release()
