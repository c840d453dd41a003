"""What was of the links with each node, whatever link it has now: since when it is so, why the last one ended, counts.

The links themselves are gone by then. It is for people (observing.py), and says for how long a node has not been linked
(redialing.py).
"""

from __future__ import annotations

from headwater.node.links.link import Link


class Past:
    """Of one node."""

    def __init__(self, now: float) -> None:
        self.since = now
        self.reason = "not linked yet"
        self.links = 0
        self.bytes_received = 0


class LinkHistory:
    def __init__(self) -> None:
        self._nodes: dict[str, Past] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def of(self, node: str, now: float) -> Past:
        found = self._nodes.get(node)
        if found is None:
            found = self._nodes[node] = Past(now)
        return found

    def changed(self, link: Link, now: float) -> None:
        """It came up, or it was up and went down."""
        past = self.of(link.node, now)
        past.since = now
        if link.why:
            past.reason = link.why
            past.bytes_received += link.bytes_received
        else:
            past.links += 1

    def forget(self, node: str) -> None:
        self._nodes.pop(node, None)
