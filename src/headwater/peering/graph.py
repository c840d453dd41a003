"""Which nodes are behind which link.

In a full mesh that is the peer alone. Where neighbours are configured, every node tells the others who its neighbours
are, and a node is behind a link if it can be reached from the peer without coming through here: in a tree behind one
link, in a ring behind both, so that a message goes both ways round and the window of its origin (`windows.py`) drops
what comes twice. The graph is the configured one: a link that is down is still a way, as what is spooled for it will go
it. A node of which no way is known is taken to be behind every link.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def behind(node: str, links: Iterable[str], edges: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    """For each link of `node`, the nodes behind it. An edge counts if either end tells of it."""
    around: dict[str, set[str]] = {}
    for one, others in edges.items():
        for other in others:
            around.setdefault(one, set()).add(other)
            around.setdefault(other, set()).add(one)
    found: dict[str, set[str]] = {}
    for link in links:
        reached = {node, link}
        waiting = [link]
        while waiting:
            for other in around.get(waiting.pop(), ()):
                if other not in reached:
                    reached.add(other)
                    waiting.append(other)
        reached.discard(node)
        found[link] = reached
    return found
