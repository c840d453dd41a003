"""A set of topics that can be asked which of them match a filter.

It is built lean because a million topics is a normal number: a topic that is alone below some level is hung there as a
leaf (its string, which somebody holds anyway) and gets branches only when another topic shares the level.
`devices/<id>/status` for a million ids is one branch with a million leaves. Removal folds branches back, so the shape
depends only on which topics are in it. The tree is walked with explicit lists, never by recursion, and a walk can stop
and go on: it holds the children of each branch on its way as they were when it came there. A branch that is folded or
replaced meanwhile still leads to the topics that it had.
"""

from __future__ import annotations

from typing import Final

from headwater.routing.topics import levels_match

EVERYTHING: Final = -1


class _Branch:
    """A level that several topics share. A child is a branch, or the full topic that is alone below that level."""

    __slots__ = ("children", "topic")

    def __init__(self) -> None:
        self.children: dict[str, _Branch | str] = {}
        self.topic: str | None = None  # the topic that ends with this level

    def is_foldable(self) -> bool:
        """Whether a single leaf could stand in its place."""
        if not self.children:
            return True
        if self.topic is not None or len(self.children) > 1:
            return False
        return isinstance(next(iter(self.children.values())), str)

    def fold(self) -> str | None:
        """The leaf of a foldable branch, if there is one."""
        for child in self.children.values():
            if isinstance(child, str):
                return child
        return self.topic


class _Children:
    """Those of a branch that has been reached, as they were then, and how many have been looked at."""

    __slots__ = ("at", "children", "depth")

    def __init__(self, children: list[_Branch | str], depth: int) -> None:
        self.children = children
        self.depth = depth  # how many levels of the filter they have been matched with; EVERYTHING: all of it
        self.at = 0


class Walk:
    """Finds the topics that match a filter, some at a time.

    The tree may change between two times. A topic that is there from the beginning to the end is found, and once; one
    that comes or goes meanwhile may be found or not.
    """

    def __init__(self, root: _Branch, filter: str) -> None:
        self._levels = filter.split("/")
        self._found: list[str] = []
        self._way: list[_Children] = []
        self._enter(root, 0)

    @property
    def is_done(self) -> bool:
        return not self._way and not self._found

    def some(self, looks: int) -> list[str]:
        """What is found by looking at so many children of branches: perhaps nothing, although more is to come."""
        way = self._way
        while way and looks > 0:
            looks -= 1
            children = way[-1]
            if children.at == len(children.children):
                way.pop()
                continue
            child = children.children[children.at]
            children.at += 1
            if children.depth != EVERYTHING:
                if not isinstance(child, str):
                    self._enter(child, children.depth)
                elif levels_match(self._levels, child.split("/")):
                    self._found.append(child)
            elif isinstance(child, str):
                self._found.append(child)
            else:
                self._take(child)
        found = self._found
        self._found = []
        return found

    def _enter(self, branch: _Branch, depth: int) -> None:
        """The first `depth` levels of the filter have led to this branch."""
        levels = self._levels
        while depth < len(levels):
            level = levels[depth]
            if level == "#" or level == "+":
                break
            child = branch.children.get(level)
            if child is None:
                return
            if isinstance(child, str):
                if levels_match(levels, child.split("/")):
                    self._found.append(child)
                return
            branch = child
            depth += 1
        if depth == len(levels):
            if branch.topic is not None:
                self._found.append(branch.topic)
            return
        if depth == 0:
            # [MQTT-4.7.2-1]: wildcards at the first level do not reach topics that begin with `$`.
            below = [child for name, child in branch.children.items() if not name.startswith("$")]
            self._way.append(_Children(below, EVERYTHING if level == "#" else 1))
        elif level == "#":
            self._take(branch)
        else:
            self._way.append(_Children(list(branch.children.values()), depth + 1))

    def _take(self, branch: _Branch) -> None:
        """All topics at and below the branch match."""
        if branch.topic is not None:
            self._found.append(branch.topic)
        self._way.append(_Children(list(branch.children.values()), EVERYTHING))


class TopicTree:
    """A set of topics that can be asked which of them match a filter."""

    def __init__(self) -> None:
        self._root = _Branch()

    def add(self, topic: str) -> None:
        """Add a topic that is not in the tree."""
        levels = topic.split("/")
        branch = self._root
        for depth, level in enumerate(levels):
            child = branch.children.get(level)
            if child is None:
                branch.children[level] = topic
                return
            if isinstance(child, str):
                _fork(branch, depth, child, topic)
                return
            branch = child
        branch.topic = topic

    def remove(self, topic: str) -> None:
        """Remove a topic that is in the tree."""
        levels = topic.split("/")
        path = [self._root]
        for level in levels:
            child = path[-1].children[level]
            if isinstance(child, str):
                del path[-1].children[level]
                break
            path.append(child)
        else:
            path[-1].topic = None
        depth = len(path) - 1
        while depth > 0 and path[depth].is_foldable():
            leaf = path[depth].fold()
            depth -= 1
            if leaf is None:
                del path[depth].children[levels[depth]]
            else:
                path[depth].children[levels[depth]] = leaf

    def walk(self, filter: str) -> Walk:
        """To find the topics that match a filter."""
        return Walk(self._root, filter)

    def count_branches(self) -> int:
        count = -1
        waiting = [self._root]
        while waiting:
            count += 1
            for child in waiting.pop().children.values():
                if not isinstance(child, str):
                    waiting.append(child)
        return count


def _fork(branch: _Branch, depth: int, leaf: str, topic: str) -> None:
    """Put branches in place of a leaf, down to where its way parts from that of a new topic, and hang both there."""
    old = leaf.split("/")
    new = topic.split("/")
    while depth < len(old) and depth < len(new) and old[depth] == new[depth]:
        shared = _Branch()
        branch.children[new[depth]] = shared
        branch = shared
        depth += 1
    for each, levels in ((leaf, old), (topic, new)):
        if depth == len(levels):
            branch.topic = each
        else:
            branch.children[levels[depth]] = each
