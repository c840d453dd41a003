"""The admin API beside the broker, in one process: it asks the broker's loop."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from headwater.node.admin.desk import OPERATIONS, Desk
from headwater.node.admin.reach import BrokerStopped, Reach


class LocalReach(Reach):
    def __init__(self, desk: Desk, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """`loop`: the broker's, if it is another one than that of those who ask."""
        self._desk = desk
        self._loop = loop

    async def ask(self, operation: str, /, **arguments: Any) -> Any:
        if self._loop is None:
            return await self._asked(operation, arguments)
        work = self._asked(operation, arguments)
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise BrokerStopped from None
        return await asyncio.wrap_future(future)

    async def _asked(self, operation: str, arguments: dict[str, Any]) -> Any:
        assert operation in OPERATIONS
        found = getattr(self._desk, operation)(**arguments)
        return await found if inspect.isawaitable(found) else found

    def is_ready(self) -> bool:
        return self._desk.is_ready()
