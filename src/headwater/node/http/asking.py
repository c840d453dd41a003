"""The node, for those in the HTTP process who ask it: from any thread, over the one link."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from headwater.node.admin.reach import BrokerStopped, Reach
from headwater.node.http.link import Link, LinkLost
from headwater.node.http.state import READY, SharedState

PATIENCE: Final = 10.0
"""Seconds for which a thread waits for an answer."""


class Node:
    """`loop` is where the link is; those who ask have others."""

    def __init__(self, link: Link, loop: asyncio.AbstractEventLoop) -> None:
        self._link = link
        self.loop = loop

    async def ask(self, name: str, body: bytes = b"", /, **arguments: Any) -> Any:
        """Raises what the node raises, and LinkLost."""
        asked = asyncio.run_coroutine_threadsafe(self._link.ask(name, body, **arguments), self.loop)
        return await asyncio.wrap_future(asked)

    def ask_and_wait(self, name: str, /, patience: float = PATIENCE, **arguments: Any) -> Any:
        """The same for threads. Raises TimeoutError, too."""
        asked = asyncio.run_coroutine_threadsafe(self._link.ask(name, **arguments), self.loop)
        return asked.result(patience)


class LinkReach(Reach):
    """The admin API's."""

    def __init__(self, node: Node, state: SharedState) -> None:
        self._node = node
        self._state = state

    async def ask(self, operation: str, /, **arguments: Any) -> Any:
        body = arguments.pop("body", b"")
        try:
            return await self._node.ask(operation, body, **arguments)
        except LinkLost:
            raise BrokerStopped from None

    def is_ready(self) -> bool:
        return bool(self._state[READY])
