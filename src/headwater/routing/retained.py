"""Retained messages: the last one of each topic, found by topic or by a filter with wildcards.

The messages are in one dictionary by topic; keeping and replacing is a look-up there. For wildcards there is a tree of
the topics' levels, built lean because a million topics is a normal number: a topic that is alone below some level is
hung there as a leaf (its string, which the dictionary holds anyway) and gets branches only when another topic shares
the level. `devices/<id>/status` for a million ids is one branch with a million leaves. Removal folds branches back, so
the shape depends only on which topics are stored. The tree is walked with explicit lists, never by recursion.

Messages that expire are also in a heap of (expires_at, topic). Replacing or removing one leaves its entry behind; an
entry counts only if the topic's message still expires at that time. When more than half of the heap is left-overs,
it is cleared of them, which makes every operation cheap on average and the heap at most about twice what is needed.
"""

from __future__ import annotations

import heapq
from itertools import islice
from typing import Final

from headwater.message import NEVER, Message
from headwater.routing.topics import has_wildcard, levels_match

# Below this size the heap is not worth clearing.
_SMALL_HEAP: Final = 64


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


class _TopicTree:
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

    def match(self, filter: str) -> list[str]:
        """The topics that match a filter, level by level and by age within a branch."""
        levels = filter.split("/")
        found: list[str] = []
        frontier = [self._root]
        for depth, level in enumerate(levels):
            below: list[_Branch] = []
            for branch in frontier:
                if level == "#":
                    _collect_all(branch, depth == 0, found)
                elif level == "+":
                    for name, child in branch.children.items():
                        # [MQTT-4.7.2-1]: not at the first level of topics that begin with `$`.
                        if depth > 0 or not name.startswith("$"):
                            _follow(child, levels, below, found)
                else:
                    named = branch.children.get(level)
                    if named is not None:
                        _follow(named, levels, below, found)
            frontier = below
        for branch in frontier:
            if branch.topic is not None:
                found.append(branch.topic)
        return found

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


def _follow(child: _Branch | str, levels: list[str], below: list[_Branch], found: list[str]) -> None:
    """Go on with a child that the filter has reached: a leaf is decided now, a branch with the next level."""
    if not isinstance(child, str):
        below.append(child)
    elif levels_match(levels, child.split("/")):
        found.append(child)


def _collect_all(top: _Branch, is_root: bool, found: list[str]) -> None:
    """All topics at and below a branch; below the root without those that begin with `$` [MQTT-4.7.2-1]."""
    waiting: list[_Branch] = [top]
    while waiting:
        branch = waiting.pop()
        if branch.topic is not None:
            found.append(branch.topic)
        for name, child in branch.children.items():
            if is_root and name.startswith("$"):
                continue
            if isinstance(child, str):
                found.append(child)
            else:
                waiting.append(child)
        is_root = False


class Retained:
    """The retained messages of a broker, at most `max_messages` with `max_bytes` of payload. `len()` counts them.

    A message has expired when `expires_at <= now`. Times are the caller's.
    """

    def __init__(self, max_messages: int, max_bytes: int = 1 << 62) -> None:
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.payload_bytes = 0
        self._messages: dict[str, Message] = {}
        self._topics = _TopicTree()
        self._expiries: list[tuple[float, str]] = []
        self._expiring = 0  # stored messages that will expire
        self.changes: dict[str, Message | None] | None = None
        """Of whoever keeps them elsewhere too: each topic whose message changed, with the new one or None. Messages of
        the broker itself (`$SYS`) are made anew by each process and are left out."""

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: Message) -> bool:
        """Keep a message in place of its topic's last one [MQTT-3.3.1-5]. False: there is no room, all stays as it was.

        An empty payload is kept like any other: that it means `remove` is for the caller to see [MQTT-3.3.1-6].
        """
        old = self._messages.get(message.topic)
        held = self.payload_bytes - (0 if old is None else len(old.payload))
        if held + len(message.payload) > self.max_bytes:
            return False
        if old is None:
            if len(self._messages) >= self.max_messages:
                return False
            self._topics.add(message.topic)
        else:
            # Equal text: holding the string that the dictionary and the tree hold saves one per topic.
            message.topic = old.topic
            self._discount(old)
        self._messages[message.topic] = message
        self.payload_bytes += len(message.payload)
        if self.changes is not None and not message.topic.startswith("$SYS/"):
            self.changes[message.topic] = message
        if message.expires_at != NEVER:
            self._expiring += 1
            heapq.heappush(self._expiries, (message.expires_at, message.topic))
        self._clear_expiries()
        return True

    def get(self, topic: str) -> Message | None:
        """The topic's message, even if it has expired since `expire` was last called."""
        return self._messages.get(topic)

    def some(self, start: int, count: int) -> list[Message]:
        """That many messages from the `start`th on, oldest topic first, even if they have expired: for those who show
        them bit by bit."""
        return list(islice(self._messages.values(), start, start + count))

    def remove(self, topic: str) -> Message | None:
        """Forget the topic's message and return it, if there is one."""
        message = self._messages.pop(topic, None)
        if message is not None:
            self._topics.remove(topic)
            self._discount(message)
            if self.changes is not None and not topic.startswith("$SYS/"):
                self.changes[topic] = None
            self._clear_expiries()
        return message

    def match(self, filter: str, now: float) -> list[Message]:
        """The messages of all topics that match the filter, in an order that depends only on what was done before.

        Expired ones are left out and forgotten; who needs to learn of them calls `expire` first.
        """
        if has_wildcard(filter):
            messages = [self._messages[topic] for topic in self._topics.match(filter)]
        else:
            message = self._messages.get(filter)
            messages = [] if message is None else [message]
        if self._expiring == 0:
            return messages
        alive: list[Message] = []
        for message in messages:
            if message.expires_at > now:
                alive.append(message)
            else:
                self.remove(message.topic)
        return alive

    def expire(self, now: float) -> list[Message]:
        """Forget the messages that have expired and return them, by time and then by topic."""
        expired: list[Message] = []
        while self._expiries and self._expiries[0][0] <= now:
            expires_at, topic = heapq.heappop(self._expiries)
            message = self._messages.get(topic)
            if message is not None and message.expires_at == expires_at:
                self.remove(topic)
                expired.append(message)
        return expired

    def next_expiry(self) -> float:
        """No message expires before this time; NEVER if none will."""
        return self._expiries[0][0] if self._expiries else NEVER

    def count_branches(self) -> int:
        """Branches of the tree of topics, without its root. Walks them all: for statistics."""
        return self._topics.count_branches()

    def _discount(self, message: Message) -> None:
        self.payload_bytes -= len(message.payload)
        if message.expires_at != NEVER:
            self._expiring -= 1

    def _clear_expiries(self) -> None:
        """Clear the heap of what no longer counts, once that is more than half of it."""
        entries = self._expiries
        if len(entries) <= _SMALL_HEAP + 2 * self._expiring:
            return
        # A set: a topic that got the same time again has two equal entries, and one is enough.
        counting: set[tuple[float, str]] = set()
        for expires_at, topic in entries:
            message = self._messages.get(topic)
            if message is not None and message.expires_at == expires_at:
                counting.add((expires_at, topic))
        self._expiries = list(counting)
        heapq.heapify(self._expiries)
