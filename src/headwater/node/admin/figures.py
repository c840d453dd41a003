"""Figures of the broker, for the admin API and Prometheus: seen on the broker's loop, told in the API's thread.

What waits in sessions is summed up here, over a list of them: lengths may be read in any thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Final

from prometheus_client import generate_latest

from headwater.node.admin.reach import Reach
from headwater.node.broker import Broker
from headwater.node.group_view import GroupView, views_in_steps
from headwater.node.metrics import MOST_GROUPS, Seen, registry_of, see
from headwater.node.statistics import Statistics

MANY: Final = 10_000
"""Sessions from which on a sum is used again."""
LASTS: Final = 1.0
"""Seconds for which it is."""


class Figures:
    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._seen: Seen | None = None
        self._queued = 0
        self._queued_until = 0.0
        self._lock = asyncio.Lock()
        self.registry = registry_of(reach.broker, self._last)

    async def statistics(self) -> Statistics:
        """What the broker holds and has done."""
        queued = await self._sum()
        return await self._reach.ask(lambda broker: broker.statistics(queued))

    async def groups(self) -> list[GroupView]:
        """The first shared groups."""

        def made(broker: Broker) -> Iterator[GroupView | None]:
            return views_in_steps(broker.server, MOST_GROUPS)

        return [each for each in await self._reach.collect(made) if each is not None]

    async def text(self) -> bytes:
        """For Prometheus."""
        async with self._lock:
            groups = await self.groups()
            queued = await self._sum()
            self._seen = await self._reach.ask(lambda broker: see(broker, groups, queued))
            return generate_latest(self.registry)

    def _last(self) -> Seen:
        assert self._seen is not None
        return self._seen

    async def _sum(self) -> int:
        """Messages that wait in sessions."""
        if time.monotonic() >= self._queued_until:
            sessions = await self._reach.ask(lambda broker: list(broker.server.sessions.values()))
            self._queued = sum([session.outbound.waiting() for session in sessions])
            self._queued_until = time.monotonic() + LASTS if len(sessions) >= MANY else 0.0
        return self._queued
