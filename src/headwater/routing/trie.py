"""Subscriptions by topic filter: who wants this topic?

A filter without wildcards matches exactly the topic it spells, so one dictionary of filters answers for all of those
with a single look-up, and they need no nodes at all. Only filters with wildcards are also hung into a tree with one
node per level. The tree is walked breadth first: the frontier holds every node that the levels read so far can lead
to (the child of that name and the `+` child of each node before). A node has one place in the tree and is visited at
most once, so a match costs at most the stored nodes of each depth, however many `+` the filters have, and neither
deep topics nor deep filters need recursion. The frontier is usually one or two nodes.

A filter that ends in `#` is kept at the node of the level before it (`rest`), which is why `sport/#` matches `sport`.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.message import Subscription
from headwater.routing.topics import has_wildcard, levels_of

# The subscriptions with one filter, by the subscriber's key (anything hashable), in the order of subscribing.
Subscribers = dict[object, Subscription]


class _Node:
    """One level of a filter with wildcards. What is None costs nothing: most nodes have one of the four."""

    __slots__ = ("children", "ending", "plus", "rest")

    def __init__(self) -> None:
        self.children: dict[str, _Node] | None = None
        self.plus: _Node | None = None
        self.ending: Subscribers | None = None  # of the filter that ends with this level
        self.rest: Subscribers | None = None  # of the filter that has only `#` behind this level

    def is_empty(self) -> bool:
        return self.children is None and self.plus is None and self.ending is None and self.rest is None

    def child(self, level: str) -> _Node | None:
        if level == "+":
            return self.plus
        children = self.children
        return None if children is None else children.get(level)

    def make_child(self, level: str) -> _Node:
        node = _Node()
        if level == "+":
            self.plus = node
        elif self.children is None:
            self.children = {level: node}
        else:
            self.children[level] = node
        return node

    def drop_child(self, level: str) -> None:
        if level == "+":
            self.plus = None
            return
        children = self.children
        if children is not None:
            del children[level]
            if not children:
                self.children = None


class Trie:
    """Subscriptions by filter and subscriber's key. Filters are well formed (`check_filter`), topics too.

    `len()` counts subscriptions: pairs of filter and key.
    """

    def __init__(self) -> None:
        self._filters: dict[str, Subscribers] = {}
        self._root = _Node()
        self._length = 0
        self._longest = 0
        """Of all filters that there have been. A longer topic is not looked for: its hash takes 10 µs for 64 KiB."""

    def __len__(self) -> int:
        return self._length

    def add(self, filter: str, key: object, value: Subscription) -> Subscription | None:
        """Store a subscription; return the one it replaces, whose place in the order it takes [MQTT-3.8.4-3]."""
        subscribers = self._filters.get(filter)
        if subscribers is None:
            self._filters[filter] = subscribers = {}
            self._longest = max(self._longest, len(filter))
            if has_wildcard(filter):
                self._hang(filter, subscribers)
        replaced = subscribers.get(key)
        subscribers[key] = value
        if replaced is None:
            self._length += 1
        return replaced

    def remove(self, filter: str, key: object) -> Subscription | None:
        """Take a subscription out and return it; None if there is none."""
        subscribers = self._filters.get(filter)
        if subscribers is None:
            return None
        removed = subscribers.pop(key, None)
        if removed is None:
            return None
        self._length -= 1
        if not subscribers:
            del self._filters[filter]
            if has_wildcard(filter):
                self._prune(filter)
        return removed

    def get(self, filter: str) -> Subscribers | None:
        """The subscriptions with exactly this filter. To be read only, and before the next add or remove."""
        return self._filters.get(filter)

    def filters(self) -> Iterator[str]:
        """All filters with subscriptions, in the order in which they came."""
        return iter(self._filters)

    def match(self, topic: str) -> list[Subscribers]:
        """The subscriptions of every filter that matches the topic: one dictionary per filter, none twice.

        The dictionaries are the trie's own, which is what makes this fast: to be read only, and before the next add
        or remove. The order is fixed: the filter equal to the topic first; then filters with `#` from the shortest
        on, each named level before `+`; the filters as long as the topic come last, each behind the filter with one
        more level, `#`.
        """
        found: list[Subscribers] = []
        if len(topic) <= self._longest:
            exact = self._filters.get(topic)
            if exact is not None:
                found.append(exact)
        if not self._root.is_empty():
            self._match_wildcards(topic, found)
        return found

    def pairs(self, topic: str) -> Iterator[tuple[object, Subscription]]:
        """What `match` finds, as pairs of key and subscription; a key comes once for each filter that matches."""
        for subscribers in self.match(topic):
            yield from subscribers.items()

    def count_nodes(self) -> int:
        """Nodes of the tree of wildcard filters, without its root. Walks them all: for statistics."""
        count = -1
        waiting = [self._root]
        while waiting:
            node = waiting.pop()
            count += 1
            if node.plus is not None:
                waiting.append(node.plus)
            if node.children is not None:
                waiting.extend(node.children.values())
        return count

    def _match_wildcards(self, topic: str, found: list[Subscribers]) -> None:
        frontier = [self._root]
        # [MQTT-4.7.2-1]: wildcards of the first level do not reach topics that begin with `$`.
        wild = not topic.startswith("$")
        for level in levels_of(topic):
            below: list[_Node] = []
            for node in frontier:
                children = node.children
                if children is not None:
                    child = children.get(level)
                    if child is not None:
                        below.append(child)
                if wild:
                    if node.rest is not None:
                        found.append(node.rest)
                    if node.plus is not None:
                        below.append(node.plus)
            if not below:
                return
            frontier = below
            wild = True
        for node in frontier:
            if node.rest is not None:
                found.append(node.rest)
            if node.ending is not None:
                found.append(node.ending)

    def _hang(self, filter: str, subscribers: Subscribers) -> None:
        node = self._root
        for level in levels_of(filter):
            if level == "#":
                node.rest = subscribers
                return
            child = node.child(level)
            node = node.make_child(level) if child is None else child
        node.ending = subscribers

    def _prune(self, filter: str) -> None:
        """Take a filter off its node, and off the tree every node that this leaves empty."""
        levels = levels_of(filter)
        rest = levels[-1] == "#"
        if rest:
            levels.pop()
        node = self._root
        path = [node]
        for level in levels:
            child = node.child(level)
            if child is None:
                return
            node = child
            path.append(node)
        if rest:
            node.rest = None
        else:
            node.ending = None
        depth = len(levels)
        while depth > 0 and path[depth].is_empty():
            depth -= 1
            path[depth].drop_child(levels[depth])
