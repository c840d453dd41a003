"""Figures of the broker, for the admin API and Prometheus: seen on the broker's loop, told in the API's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from prometheus_client import generate_latest

from headwater.node.admin.reach import Reach
from headwater.node.broker import Broker
from headwater.node.group_view import GroupView, views_in_steps
from headwater.node.metrics import MOST_GROUPS, Seen, registry_of, see
from headwater.node.statistics import Statistics


class Figures:
    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._seen: Seen | None = None
        self._lock = asyncio.Lock()
        self.registry = registry_of(reach.broker, self._last)

    async def statistics(self) -> Statistics:
        """What the broker holds and has done."""
        return await self._reach.ask(lambda broker: broker.statistics())

    async def groups(self) -> list[GroupView]:
        """The first shared groups."""

        def made(broker: Broker) -> Iterator[GroupView | None]:
            return views_in_steps(broker.server, MOST_GROUPS)

        return [each for each in await self._reach.collect(made) if each is not None]

    async def text(self) -> bytes:
        """For Prometheus."""
        async with self._lock:
            groups = await self.groups()
            self._seen = await self._reach.ask(lambda broker: see(broker, groups))
            return generate_latest(self.registry)

    def _last(self) -> Seen:
        assert self._seen is not None
        return self._seen
