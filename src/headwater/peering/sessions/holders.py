"""Which node has which session, as far as this one has heard: for the time when that node cannot be asked.

A claim says who has the session: the node that made it. Each node tells all others of its own claims, and of moves;
when a link comes up it tells everything that it knows. The latest claim counts. What is known of a node is remembered
while it is away, until it is forgotten. It is not complete: a claim asks everybody who can be asked. Bytes are bounded;
what is beyond is not remembered, and such a session is not waited for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headwater.peering.retained.clock import NEVER_WRITTEN, Stamp
from headwater.peering.sessions.messages import Held

MOST_BYTES: Final = 128 << 20
EACH: Final = 250
"""Bytes that one counts with beside its client id."""


class Holders:
    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self.bytes = 0
        self._sessions: dict[str, Held] = {}

    def tell(self, held: Held) -> None:
        before = self._sessions.get(held.client_id)
        if before is None:
            size = _size(held.client_id)
            if self.bytes + size > self.most_bytes:
                return
            self.bytes += size
        elif before.stamp > held.stamp:
            return
        self._sessions[held.client_id] = held

    def release(self, client_id: str, stamp: Stamp) -> None:
        """The session has ended, and that was its last claim."""
        known = self._sessions.get(client_id)
        if known is not None and known.stamp <= stamp:
            self._remove(client_id)

    def forget(self, node: str) -> None:
        for held in list(self.of(node)):
            self._remove(held.client_id)

    def _remove(self, client_id: str) -> None:
        del self._sessions[client_id]
        self.bytes -= _size(client_id)

    def get(self, client_id: str) -> Held | None:
        return self._sessions.get(client_id)

    def latest(self, client_id: str) -> Stamp:
        held = self._sessions.get(client_id)
        return NEVER_WRITTEN if held is None else held.stamp

    def of(self, node: str) -> Iterator[Held]:
        return (held for held in self._sessions.values() if held.stamp.node == node)

    def __iter__(self) -> Iterator[Held]:
        return iter(self._sessions.values())

    def __len__(self) -> int:
        return len(self._sessions)


def _size(client_id: str) -> int:
    return EACH + (len(client_id) if client_id.isascii() else 4 * len(client_id))
