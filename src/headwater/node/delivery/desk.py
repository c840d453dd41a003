"""What REST in another process may ask of a broker, by name: who somebody is, publishing, how far readers have come.

Answers are values of JSON, also the rights of a caller, so that what it may read is judged over there. Callers have
numbers; the last ones are known by them.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from headwater.message import NEVER
from headwater.node.access.rules import RuleRights
from headwater.node.delivery.gate import BrokerCaller, BrokerGate
from headwater.session.rights import Rights
from headwater.store.rest.gate import Approach, Publication, Refused
from headwater.store.store import Store

MOST_CALLERS: Final = 4096
OPERATIONS: Final = frozenset(
    [
        *("authenticate", "allows", "publish_stored", "settled", "edge", "history"),
        *("commit_reader", "forget_reader", "erase"),
    ]
)
JUDGES: Final = ("connect", "connect_authenticate")
"""Hooks that may have another answer each time."""


class RestDesk:
    """Asked on the broker's loop; `synced` is called before an answer that says that something can be read."""

    def __init__(self, gate: BrokerGate, store: Store, synced: Callable[[], None]) -> None:
        self._gate = gate
        self._store = store
        self._synced = synced
        self._callers: OrderedDict[int, BrokerCaller] = OrderedDict()
        self._number = 0

    def leave(self) -> None:
        """Who has asked until now has gone."""
        self._callers.clear()

    async def authenticate(self, authorization: str | None, address: str, host: str, origin: str | None) -> Any:
        """Raises Refused."""
        caller = await self._gate.identify(Approach(authorization, address, host, origin))
        self._number += 1
        self._callers[self._number] = caller
        if len(self._callers) > MOST_CALLERS:
            self._callers.popitem(last=False)
        hooks = self._gate.broker.hooks
        return {
            "number": self._number,
            "name": caller.name,
            "rights": _written(caller.rights),
            "asks": caller.asks,
            "steers": caller.steers,
            "sees_all": caller.sees_all,
            "generation": caller.generation,
            "bans": self._gate.broker.server.access.bans.changes,
            "seconds": None if caller.expires_at == NEVER else caller.expires_at - time.monotonic(),
            "keeps": not any(hooks.listens(name) for name in JUDGES),
        }

    def allows(self, caller: int, topics: list[str]) -> list[bool]:
        """Whether the guards of `acl_check` let it read topics."""
        found = self._callers.get(caller)
        return [found is not None and self._gate.allows(found.channel, topic, False) for topic in topics]

    async def publish_stored(self, caller: int, body: bytes = b"", **order: Any) -> int | None:
        """Raises Refused."""
        found = self._callers.get(caller)
        if found is None:
            raise Refused(503, "unavailable", "too many callers came in between; try again")
        order["user_properties"] = tuple((name, value) for name, value in order["user_properties"])
        position = await self._gate.publish_here(found, Publication(payload=body, **order))
        self._synced()
        return position

    async def settled(self) -> int:
        """Raises Refused."""
        moment = await self._gate.settled_here()
        self._synced()
        return moment

    def edge(self) -> Any:
        return self._gate.edge_here()

    def history(self) -> Any:
        return self._gate.history_here()

    async def commit_reader(self, name: str, position: int) -> Any:
        """Raises as Store.commit does."""
        return list(await asyncio.to_thread(self._store.commit, name, position))

    async def forget_reader(self, name: str) -> None:
        """Raises UnknownReader."""
        await asyncio.to_thread(self._store.forget, name)

    async def erase(self, filter: str | None, positions: list[tuple[int, int]], after: int, last: int) -> Any:
        """As Store.erase does."""
        from headwater.store.erasing import Doomed  # it needs numpy

        return list(await asyncio.to_thread(self._store.erase, Doomed(filter, positions, after, last)))


def _written(rights: Rights | None) -> Any:
    if rights is None:
        return None
    assert isinstance(rights, RuleRights)
    return {"rules": [list(rule) for rule in rights.rules], "subscribing": rights.subscribing}
