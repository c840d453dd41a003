"""A set of topics that can be asked which of them match a filter.

It is built lean because a million topics is a normal number: a topic that is alone below some level is hung there as a
leaf (its string, which somebody holds anyway) and gets branches only when another topic shares the level.
`devices/<id>/status` for a million ids is one branch with a million leaves. Removal folds branches back, so the shape
depends only on which topics are in it. The tree is walked with explicit lists, never by recursion.

Theory of a walk that can stop and go on while the tree changes. The few children of a small branch are copied when the
walk comes there. Those of a large one must not be: a filter with a wildcard would cost a million of them before the
first topic is found. So they are in numbered slots. A child keeps its slot as long as it is there, a slot that became
free is used again, and the walk holds the number of the next slot to look at: a topic that is there from the beginning
to the end is found, and once. A branch that is folded or replaced meanwhile is not changed any more, and still leads to
the topics that it had.
"""

from __future__ import annotations

from typing import Final

from headwater.routing.topics import has_wildcard, levels_match, levels_of

EVERYTHING: Final = -1
SMALL: Final = 16
"""Children from which on, downwards, a large branch is a small one again."""
LARGE: Final = 64
"""Children of a branch above which they are in slots."""


class _Branch:
    """A level that several topics share. A child is a branch, or the full topic that is alone below that level."""

    __slots__ = ("children", "free", "is_hidden", "numbers", "slots", "topic")

    def __init__(self, is_hidden: bool) -> None:
        self.is_hidden = is_hidden  # [MQTT-4.7.2-1]: from wildcards at the first level, as its name begins with `$`
        self.topic: str | None = None  # the topic that ends with this level
        self.children: dict[str, _Branch | str] = {}
        # Of a large branch, instead of `children`: the number of each one's slot, the slots, and which are free.
        self.numbers: dict[str, int] | None = None
        self.slots: list[_Branch | str | None] = []
        self.free: list[int] = []

    def count(self) -> int:
        return len(self.children) if self.numbers is None else len(self.numbers)

    def get(self, level: str) -> _Branch | str | None:
        numbers = self.numbers
        if numbers is None:
            return self.children.get(level)
        number = numbers.get(level, -1)
        return None if number < 0 else self.slots[number]

    def put(self, level: str, child: _Branch | str) -> None:
        """Add a child, or put another one in its place."""
        numbers = self.numbers
        if numbers is None:
            self.children[level] = child
            if len(self.children) > LARGE:
                self._enlarge()
            return
        number = numbers.get(level, -1)
        if number >= 0:
            self.slots[number] = child
        elif self.free:
            number = self.free.pop()
            numbers[level] = number
            self.slots[number] = child
        else:
            numbers[level] = len(self.slots)
            self.slots.append(child)

    def drop(self, level: str) -> None:
        numbers = self.numbers
        if numbers is None:
            del self.children[level]
            return
        number = numbers.pop(level)
        self.slots[number] = None
        self.free.append(number)
        if len(numbers) <= SMALL:
            self._reduce(numbers)

    def _enlarge(self) -> None:
        self.numbers = {}
        for number, level in enumerate(self.children):
            self.numbers[level] = number
        self.slots = list(self.children.values())
        self.free = []
        self.children = {}

    def _reduce(self, numbers: dict[str, int]) -> None:
        for level, number in numbers.items():
            child = self.slots[number]
            assert child is not None
            self.children[level] = child
        self.numbers = None
        self.slots = []  # not cleared: a walk may be on its way through them
        self.free = []

    def is_foldable(self) -> bool:
        """Whether a single leaf could stand in its place."""
        if self.numbers is not None:
            return False
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


class _Way:
    """The children of a branch that a walk has reached, and how many of them it has looked at."""

    __slots__ = ("at", "depth", "end", "level", "names", "numbers", "slots")

    def __init__(self, branch: _Branch, level: int, depth: int) -> None:
        self.level = level  # which level of a topic their names are
        self.depth = depth  # how many levels of the filter they have been matched with; EVERYTHING: all of it
        self.at = 0
        self.numbers = branch.numbers
        self.names: list[str] = []
        if self.numbers is None:
            self.names = list(branch.children)
            self.slots: list[_Branch | str | None] = list(branch.children.values())
        else:
            self.slots = branch.slots
        self.end = len(self.slots)  # who subscribes gets what comes later anyway

    def number(self, name: str) -> int:
        """The slot of the child of this name; -1: there is none."""
        if self.numbers is not None:
            return self.numbers.get(name, -1)
        return self.names.index(name) if name in self.names else -1


class Walk:
    """Finds the topics that match a filter, some at a time, and holds no more than where it is.

    The tree may change between two times. A topic that is there from the beginning to the end is found, and once; one
    that comes or goes meanwhile may be found or not.
    """

    def __init__(self, root: _Branch, filter: str) -> None:
        self._levels = levels_of(filter)
        end = max(filter.rfind("+"), filter.rfind("#")) + 1
        self._ending = filter[end:]  # what topics have to end with: it is looked at first
        self._found: list[str] = []
        self._way: list[_Way] = []
        self._enter(root, 0, 0)

    @property
    def is_done(self) -> bool:
        return not self._way and not self._found

    def some(self, looks: int) -> list[str]:
        """What is found by looking at so many children of branches: perhaps nothing, although more is to come."""
        way = self._way
        while way and looks > 0:
            looks -= 1
            here = way[-1]
            if here.at >= here.end:
                way.pop()
                continue
            child = here.slots[here.at]
            here.at += 1
            if child is None:
                continue
            if here.depth != EVERYTHING:
                if not isinstance(child, str):
                    if here.level > 0 or not child.is_hidden:
                        self._enter(child, here.level + 1, here.depth)
                elif child.endswith(self._ending) and self._matches(child):
                    self._found.append(child)
            elif isinstance(child, str):
                if here.level > 0 or not child.startswith("$"):
                    self._found.append(child)
            elif here.level > 0 or not child.is_hidden:
                self._take(child, here.level + 1)
        found = self._found
        self._found = []
        return found

    def will_find(self, topic: str) -> bool:
        """Whether a topic that matches, and stays, is still to be found."""
        if topic in self._found:
            return True
        levels = levels_of(topic)
        for here in self._way:
            if here.level >= len(levels):
                return False  # it ends above, and was found on the way here
            number = here.number(levels[here.level])
            if number < 0 or number >= here.end or number < here.at - 1:
                return False
            if number >= here.at:
                return True
        return False

    def _matches(self, topic: str) -> bool:
        # [MQTT-4.7.2-1]: wildcards at the first level do not reach topics that begin with `$`.
        if topic.startswith("$") and has_wildcard(self._levels[0]):
            return False
        return levels_match(self._levels, levels_of(topic))

    def _enter(self, branch: _Branch, level: int, depth: int) -> None:
        """The first `depth` levels of the filter have led to this branch, whose children have the names of `level`."""
        levels = self._levels
        while depth < len(levels):
            name = levels[depth]
            if name == "#":
                if depth == 0:
                    self._way.append(_Way(branch, level, EVERYTHING))
                else:
                    self._take(branch, level)
                return
            if name == "+":
                self._way.append(_Way(branch, level, depth + 1))
                return
            child = branch.get(name)
            if child is None:
                return
            if isinstance(child, str):
                if self._matches(child):
                    self._found.append(child)
                return
            branch = child
            depth += 1
            level += 1
        if branch.topic is not None:
            self._found.append(branch.topic)

    def _take(self, branch: _Branch, level: int) -> None:
        """All topics at and below the branch match."""
        if branch.topic is not None:
            self._found.append(branch.topic)
        self._way.append(_Way(branch, level, EVERYTHING))


class TopicTree:
    """A set of topics that can be asked which of them match a filter."""

    def __init__(self) -> None:
        self._root = _Branch(False)

    def add(self, topic: str) -> None:
        """Add a topic that is not in the tree."""
        levels = levels_of(topic)
        branch = self._root
        for depth, level in enumerate(levels):
            child = branch.get(level)
            if child is None:
                branch.put(level, topic)
                return
            if isinstance(child, str):
                _fork(branch, depth, child, topic)
                return
            branch = child
        branch.topic = topic

    def remove(self, topic: str) -> None:
        """Remove a topic that is in the tree."""
        levels = levels_of(topic)
        path = [self._root]
        for level in levels:
            child = path[-1].get(level)
            if child is None:
                raise KeyError(topic)
            if isinstance(child, str):
                path[-1].drop(level)
                break
            path.append(child)
        else:
            path[-1].topic = None
        depth = len(path) - 1
        while depth > 0 and path[depth].is_foldable():
            leaf = path[depth].fold()
            depth -= 1
            if leaf is None:
                path[depth].drop(levels[depth])
            else:
                path[depth].put(levels[depth], leaf)

    def walk(self, filter: str) -> Walk:
        """To find the topics that match a filter."""
        return Walk(self._root, filter)

    def count_branches(self) -> int:
        count = -1
        waiting = [self._root]
        while waiting:
            count += 1
            branch = waiting.pop()
            children = branch.slots if branch.numbers is not None else list(branch.children.values())
            for child in children:
                if child is not None and not isinstance(child, str):
                    waiting.append(child)
        return count


def _fork(branch: _Branch, depth: int, leaf: str, topic: str) -> None:
    """Put branches in place of a leaf, down to where its way parts from that of a new topic, and hang both there."""
    old = levels_of(leaf)
    new = levels_of(topic)
    while depth < len(old) and depth < len(new) and old[depth] == new[depth]:
        shared = _Branch(depth == 0 and leaf.startswith("$"))
        branch.put(new[depth], shared)
        branch = shared
        depth += 1
    for each, levels in ((leaf, old), (topic, new)):
        if depth == len(levels):
            branch.topic = each
        else:
            branch.put(levels[depth], each)
