"""Figures of the broker, for the admin API and Prometheus: seen on the broker's loop, told here."""

from __future__ import annotations

import asyncio
from typing import Final

from prometheus_client import generate_latest
from pydantic import TypeAdapter

from headwater.node.admin.reach import Reach
from headwater.node.operations.metrics import registry_of
from headwater.node.operations.seen import Seen
from headwater.node.protocol.group_view import GroupView

_SEEN: Final = TypeAdapter(Seen)
_GROUPS: Final = TypeAdapter(list[GroupView])


class Figures:
    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._seen: Seen | None = None
        self._lock = asyncio.Lock()
        self.registry = registry_of(self._last)

    async def text(self) -> bytes:
        """For Prometheus."""
        async with self._lock:
            groups = _GROUPS.validate_json(await self._reach.ask("groups"))
            seen = _SEEN.validate_python(await self._reach.ask("seen"))
            seen.groups = groups
            self._seen = seen
            return generate_latest(self.registry)

    def _last(self) -> Seen:
        assert self._seen is not None
        return self._seen
