"""What REST in the HTTP process has of the node: who its callers are, and the store's writer."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

from headwater.message import NEVER
from headwater.node.access.rules import Rule, RuleRights
from headwater.node.delivery.caller import JudgedCaller
from headwater.node.delivery.credentials import credentials_in
from headwater.node.http.asking import Node
from headwater.node.http.failures import NodeFailed
from headwater.node.http.link import LinkLost
from headwater.node.http.state import (
    BANS,
    ERASURES,
    FIRST,
    GENERATION,
    HELD,
    HISTORY,
    LARGEST,
    NEXT,
    READY,
    WATCHING,
    SharedState,
)
from headwater.session.rights import Remembered
from headwater.store.erasing import Doomed, Erased
from headwater.store.following import Held, Primary
from headwater.store.rest.gate import Approach, Caller, Gate, Publication, Refused
from headwater.store.store import Reader

MOST_KEPT: Final = 1024
"""Callers that were seen before."""
ERASING: Final = 600.0
"""Seconds for which a part of an erasure is waited for: files are merged meanwhile."""
STOPPED: Final = "the broker has stopped"


class LinkPrimary(Primary):
    """The store's writer."""

    def __init__(self, node: Node, state: SharedState) -> None:
        self._node = node
        self._state = state

    @property
    def first(self) -> int:
        return self._state[FIRST]

    @property
    def next(self) -> int:
        return self._state[NEXT]

    @property
    def reachable(self) -> int:
        first, end = (self._state[at] for at in HISTORY)
        return min(first, self.first) if first < end else self.first

    @property
    def held(self) -> Held:
        return Held(*(self._state[at] for at in HELD))

    @property
    def erasures(self) -> int:
        return self._state[ERASURES]

    def erase(self, doomed: Doomed) -> Erased:
        return Erased(*self._asked("erase", patience=ERASING, **doomed._asdict()))

    def commit(self, name: str, position: int) -> Reader:
        return Reader(*self._asked("commit_reader", name=name, position=position))

    def forget(self, name: str) -> None:
        self._asked("forget_reader", name=name)

    def watching(self, wanted: bool) -> None:
        self._state[WATCHING] = int(wanted)

    def _asked(self, name: str, /, **arguments: Any) -> Any:
        try:
            return self._node.ask_and_wait(name, **arguments)
        except (LinkLost, TimeoutError):
            raise Refused(503, "unavailable", STOPPED) from None


class LinkCaller(JudgedCaller):
    def __init__(self, gate: LinkGate, found: dict[str, Any]) -> None:
        super().__init__(
            found["name"], gate.rights_of(found["rights"]), found["asks"], found["steers"], found["sees_all"]
        )
        self.number: int = found["number"]
        self.keeps: bool = found["keeps"]
        self._gate = gate
        self._generation: int = found["generation"]
        self._bans: int = found["bans"]
        self._expires_at = NEVER if found["seconds"] is None else time.monotonic() + found["seconds"]

    def guards_allow(self, topics: Sequence[str]) -> list[bool]:
        return self._gate.guards_allow(self.number, topics)

    def is_current(self) -> bool:
        return self._generation == self._gate.state[GENERATION] and time.monotonic() < self._expires_at

    def is_known(self) -> bool:
        """Whether the same request would be taken in again without a question."""
        return self.keeps and self._bans == self._gate.state[BANS] and self.is_current()


class LinkGate(Gate):
    """REST's. Who comes again over the same connection, with the same to show, is not asked for again until rights or
    bans change: so callers without number take no time of the node. Used by one thread, but for `guards_allow`."""

    def __init__(self, node: Node, state: SharedState) -> None:
        self.state = state
        self._node = node
        self._kept: OrderedDict[Approach, LinkCaller] = OrderedDict()
        self._remembered = Remembered()

    def rights_of(self, written: Any) -> RuleRights | None:
        """As the node writes them."""
        if written is None:
            return None
        return RuleRights([Rule(*rule) for rule in written["rules"]], written["subscribing"], False, self._remembered)

    async def authenticate(self, approach: Approach) -> Caller:
        kept = self._kept.get(approach)
        if kept is not None and kept.is_known():
            self._kept.move_to_end(approach)
            return kept
        credentials_in(approach.authorization)  # what is no use at all does not reach the node
        caller = LinkCaller(self, await self._asked("authenticate", **approach._asdict()))
        self._kept.pop(approach, None)
        if caller.keeps:
            self._kept[approach] = caller
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return caller

    async def publish(self, caller: Caller, publication: Publication) -> int | None:
        assert isinstance(caller, LinkCaller)
        order = publication._asdict()
        payload = order.pop("payload")
        position: int | None = await self._asked("publish_stored", payload, caller=caller.number, **order)
        return position

    async def settled(self) -> int:
        moment: int = await self._asked("settled")
        return moment

    async def edge(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = await self._asked("edge")
        return found

    async def history(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = await self._asked("history")
        return found

    async def _asked(self, name: str, body: bytes = b"", /, **arguments: Any) -> Any:
        try:
            return await self._node.ask(name, body, **arguments)
        except LinkLost:
            raise Refused(503, "unavailable", STOPPED) from None

    def guards_allow(self, number: int, topics: Sequence[str]) -> list[bool]:
        try:
            return list(self._node.ask_and_wait("allows", caller=number, topics=topics))
        except (LinkLost, TimeoutError, NodeFailed):
            return [False] * len(topics)

    @property
    def largest_payload(self) -> int:
        return self.state[LARGEST]

    def is_ready(self) -> bool:
        return bool(self.state[READY])
