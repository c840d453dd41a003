"""Which sessions other nodes have, as far as they have told: for the time when one of them cannot be asked.

Each node tells all others of its own sessions, everything when a link comes up and changes from then on. What a node
said is remembered while it is away, until it is forgotten. It is not complete by itself: a claim asks everybody who can
be asked. Bytes of each node are bounded; what is beyond is not remembered, and such a session is not waited for.
"""

from __future__ import annotations

from typing import Final

from headwater.peering.retained.clock import Stamp
from headwater.peering.sessions.messages import Held

MOST_BYTES: Final = 64 << 20
"""Of the sessions of one node."""
EACH: Final = 200
"""Bytes that one counts with beside its client id."""


class Holders:
    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._nodes: dict[str, dict[str, Held]] = {}
        self._bytes: dict[str, int] = {}

    def tell(self, node: str, sessions: tuple[Held, ...], is_first: bool) -> None:
        """`is_first`: whatever was told before is void."""
        if is_first or node not in self._nodes:
            self._nodes[node] = {}
            self._bytes[node] = 0
        known = self._nodes[node]
        for held in sessions:
            size = _size(held.client_id)
            if held.client_id not in known:
                if self._bytes[node] + size > self.most_bytes:
                    continue
                self._bytes[node] += size
            known[held.client_id] = held

    def release(self, node: str, client_ids: tuple[str, ...]) -> None:
        known = self._nodes.get(node, {})
        for client_id in client_ids:
            if known.pop(client_id, None) is not None:
                self._bytes[node] -= _size(client_id)

    def forget(self, node: str) -> None:
        self._nodes.pop(node, None)
        self._bytes.pop(node, None)

    def get(self, node: str, client_id: str) -> Held | None:
        return self._nodes.get(node, {}).get(client_id)

    def latest(self, client_id: str) -> Stamp | None:
        """The latest claim of all that are known."""
        found = [known[client_id].stamp for known in self._nodes.values() if client_id in known]
        return max(found, default=None)

    def count(self, node: str) -> int:
        return len(self._nodes.get(node, {}))


def _size(client_id: str) -> int:
    return EACH + (len(client_id) if client_id.isascii() else 4 * len(client_id))
