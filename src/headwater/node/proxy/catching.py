"""What the own client subscribes to at the home broker so that every wanted topic comes once.

Theory. Some brokers deliver a message once for each subscription that matches (MQTT 5.0, 3.3.4 allows it), so two
filters of one client should never match the same topic. Wanted filters overlap as their owners like; `Cover` makes of
them filters that

    cover      every topic that a wanted filter matches
    disjoint   no topic is matched by two

Two filters that overlap are replaced by one that matches all that either does: the wider one if it covers the other,
else their join, which keeps the levels that they share and has `+` where these differ and `#` from where one ends. A
join may match more than was wanted: what comes too much is dropped, as nobody is there for it. Joining ends, because
each step leaves one filter less. A tree of the filters by level finds those that a new one overlaps.

First levels that begin with `$` are matched by no wildcard [MQTT-4.7.2-1], so `#` and `$share-prices` are disjoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

EVERYTHING: Final = "#"
_END: Final = ""


class _Node:
    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.filter: list[str] | None = None
        """The filter that ends here."""


class Cover:
    """Pairwise disjoint filters."""

    def __init__(self, filters: Iterable[str] = ()) -> None:
        self._root = _Node()
        self.filters: set[str] = set()
        for filter in sorted(filters):  # the same filters give the same cover
            self.add(filter)

    def add(self, filter: str) -> None:
        levels = filter.split("/")
        while (other := next(_overlapping(self._root, levels, 0), None)) is not None:
            wider = join(levels, other)
            if wider == other:
                return
            self._remove(other)
            levels = wider
        node = self._root
        for level in levels:
            node = node.children.setdefault(level, _Node())
        node.filter = levels
        self.filters.add("/".join(levels))

    def matching(self, topic: str) -> str | None:
        """The filter that a topic matches."""
        found = next(_overlapping(self._root, topic.split("/"), 0), None)
        return None if found is None else "/".join(found)

    def _remove(self, levels: list[str]) -> None:
        self.filters.discard("/".join(levels))
        way: list[tuple[_Node, str]] = []
        node = self._root
        for level in levels:
            way.append((node, level))
            node = node.children[level]
        node.filter = None
        while way and not node.children and node.filter is None:
            node, level = way.pop()
            del node.children[level]


def _overlapping(node: _Node, levels: list[str], at: int) -> Iterator[list[str]]:
    """The filters below `node` that match a topic that these levels match as well."""
    children = node.children
    if at == len(levels):
        if node.filter is not None:
            yield node.filter
        many = children.get("#")
        if many is not None and many.filter is not None and at:  # `a/#` matches `a`
            yield many.filter
        return
    level = levels[at]
    if level == "#":
        if node.filter is not None and at:
            yield node.filter
        for name, child in list(children.items()):
            if at or not name.startswith("$"):
                yield from _all(child)
        return
    is_own = at == 0 and level.startswith("$")
    many = children.get("#")
    if many is not None and many.filter is not None and not is_own:
        yield many.filter
    if level == "+":
        for name, child in list(children.items()):
            if name != "#" and (at or not name.startswith("$")):
                yield from _overlapping(child, levels, at + 1)
        return
    for name in (level,) if is_own else (level, "+"):
        below = children.get(name)
        if below is not None:
            yield from _overlapping(below, levels, at + 1)


def _all(node: _Node) -> Iterator[list[str]]:
    if node.filter is not None:
        yield node.filter
    for child in list(node.children.values()):
        yield from _all(child)


def join(one: list[str], other: list[str]) -> list[str]:
    """The narrowest filter of this form that matches all that two overlapping ones match."""
    joined: list[str] = []
    for at in range(max(len(one), len(other))):
        a = one[at] if at < len(one) else _END
        b = other[at] if at < len(other) else _END
        ended = at >= len(one) or at >= len(other)
        if ended or a == "#" or b == "#":
            return [*joined, "#"]
        joined.append(a if a == b else "+")
    return joined


def catching(wanted: Iterable[str] | None, most: int) -> set[str]:
    """The filters to subscribe to; None, or more than `most`: all topics. What begins with `$` stays apart from `#`."""
    if wanted is None:
        return {EVERYTHING}
    cover = Cover(wanted)
    if len(cover.filters) <= most:
        return cover.filters
    own = sorted(each for each in cover.filters if each.startswith("$"))
    return {EVERYTHING, *own[: most - 1]}


class Copies:
    """Tells a second copy from a message, while filters that overlap are at the broker: a wider one has taken the place
    of narrower ones, and these are not unsubscribed yet.

    A broker that delivers once for each subscription sends the copies one behind the other, so a message like the one
    before it is its copy, and the next like it is a message again. QoS 0 and the others may be sent by different
    queues, so each has a message before it of its own. A message of which one copy came, as the broker dealt with it
    before the other filter, is a message as well: a copy is looked for only from SUBACK on, until UNSUBACK.

    Behind UNSUBACK come copies that the broker had queued, and new messages, once each, which may be alike. What is not
    acknowledged is not queued, QoS 1 may come twice and must not be lost: only QoS 2 is looked at for a moment more.
    """

    def __init__(self, old: Iterable[str], new: Iterable[str]) -> None:
        self._old = Cover(old)
        self._new = Cover(new)
        self._before: dict[bool, tuple[str, bytes] | None] = {False: None, True: None}
        self.is_unsubscribed = False
        """UNSUBACK has come."""

    def is_copy(self, topic: str, payload: bytes, qos: int) -> bool:
        if qos < 2 and self.is_unsubscribed:
            return False
        kind = qos > 0
        said = (topic, payload)
        if self._before[kind] == said:
            self._before[kind] = None
            return True
        overlaps = self._old.matching(topic) is not None and self._new.matching(topic) is not None
        self._before[kind] = said if overlaps else None
        return False
