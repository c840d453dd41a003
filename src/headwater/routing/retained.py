"""Retained messages: the last one of each topic, found by topic or by a filter with wildcards.

The messages are in one dictionary by topic; keeping and replacing is a look-up there. For wildcards there is a tree of
the topics (topic_tree.py).

Messages that expire are also in a heap of (expires_at, topic). Replacing or removing one leaves its entry behind; an
entry counts only if the topic's message still expires at that time. When more than half of the heap is left-overs,
it is cleared of them, which makes every operation cheap on average and the heap at most about twice what is needed.

Bounds are of all messages and of those of one user (`Message.user`), by number and by bytes: all that a message carries
and the objects around it (`Message.size`). They are running sums, so that a refusal costs no more than a look-up.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import islice
from typing import Final

from headwater.message import NEVER, Message
from headwater.routing.topic_tree import TopicTree, Walk

# Below this size the heap is not worth clearing.
_SMALL_HEAP: Final = 64


class Share:
    """What one user has here."""

    def __init__(self) -> None:
        self.count = 0
        self.used = 0


class Retained:
    """The retained messages of a broker, at most `max_messages` with `max_bytes`. `len()` counts them.

    A message has expired when `expires_at <= now`. Times are the caller's.
    """

    def __init__(self, max_messages: int, max_bytes: int = 1 << 62) -> None:
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.max_messages_per_user = 0  # 0, here and below: any
        self.max_bytes_per_user = 0
        self.used = 0
        self.users: dict[str, Share] = {}
        self._messages: dict[str, Message] = {}
        self._topics = TopicTree()
        self._expiries: list[tuple[float, str]] = []
        self._expiring = 0  # stored messages that will expire
        self.changes: dict[str, Message | None] | None = None
        """Of whoever keeps them elsewhere too: each topic whose message changed, with the new one or None. Messages of
        the broker itself (`$SYS`) are made anew by each process and are left out."""

        self.removed: Callable[[str], None] | None = None
        """Told of topics whose message was deleted or has expired."""

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: Message) -> bool:
        """Keep a message in place of its topic's last one [MQTT-3.3.1-5]. False: there is no room, all stays as it was.

        An empty payload is kept like any other: that it means `remove` is for the caller to see [MQTT-3.3.1-6].
        """
        if not self.fits(message):
            return False
        old = self._messages.get(message.topic)
        if old is None:
            self._topics.add(message.topic)
        else:
            # Equal text: holding the string that the dictionary and the tree hold saves one per topic.
            message.topic = old.topic
            self._discount(old)
        self._messages[message.topic] = message
        self._count(message)
        if self.changes is not None and not message.topic.startswith("$SYS/"):
            self.changes[message.topic] = message
        if message.expires_at != NEVER:
            self._expiring += 1
            heapq.heappush(self._expiries, (message.expires_at, message.topic))
        self._clear_expiries()
        return True

    def fits(self, message: Message) -> bool:
        """Whether there is room for it; replacing a message is not one more."""
        old = self._messages.get(message.topic)
        size = message.size()
        if self.used + size - (0 if old is None else old.size()) > self.max_bytes:
            return False
        if old is None and len(self._messages) >= self.max_messages:
            return False
        user = message.user
        if user is None:
            return True
        share = self.users.get(user)
        count, used = (0, 0) if share is None else (share.count, share.used)
        if old is not None and old.user == user:
            count, used = count - 1, used - old.size()
        if self.max_messages_per_user and count >= self.max_messages_per_user:
            return False
        return not self.max_bytes_per_user or used + size <= self.max_bytes_per_user

    def get(self, topic: str) -> Message | None:
        """The topic's message, even if it has expired since `expire` was last called."""
        return self._messages.get(topic)

    def alive(self, topic: str, now: float) -> Message | None:
        """The topic's message; one that has expired is forgotten (who needs to learn of it calls `expire` first)."""
        message = self._messages.get(topic)
        if message is not None and message.expires_at <= now:
            self.remove(topic)
            return None
        return message

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
            if self.removed is not None:
                self.removed(topic)
        return message

    def walk(self, filter: str) -> Walk:
        """For `found`: to look through the topics that match a filter."""
        return self._topics.walk(filter)

    def found(self, walk: Walk, looks: int, now: float) -> list[Message]:
        """The messages that so many more looks at the tree find, as they are now (`Walk.some`, `alive`)."""
        found = [self.alive(topic, now) for topic in walk.some(looks)]
        return [message for message in found if message is not None]

    def match(self, filter: str, now: float) -> list[Message]:
        """The messages of all topics that match the filter, in an order that depends only on what was done before."""
        walk = self.walk(filter)
        messages: list[Message] = []
        while not walk.is_done:
            messages += self.found(walk, len(self._messages) + 1, now)
        return messages

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

    def _count(self, message: Message) -> None:
        size = message.size()
        self.used += size
        user = message.user
        if user is not None:
            share = self.users.get(user)
            if share is None:
                share = self.users[user] = Share()
            share.count += 1
            share.used += size

    def _discount(self, message: Message) -> None:
        size = message.size()
        self.used -= size
        user = message.user
        if user is not None:
            share = self.users[user]
            share.count -= 1
            share.used -= size
            if share.count == 0:
                del self.users[user]
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
