"""Messages that wait: for a client that is away or slow, or for any member of a shared group.

Each such line is bounded (count and bytes), and all of them, with what is in flight, by one `Budget`. `policy` says who
gives way when a line is full. What gave way or expired is kept in `given_up` until somebody has told of it.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from headwater.message import Delivery
from headwater.session.kept import AWAY

DROP_NEWEST: Final = 0
DROP_OLDEST: Final = 1
DISCONNECT_WHEN_FULL: Final = 2

SEND: Final = 0
QUEUED: Final = 1
DROPPED: Final = 2
OVERFLOW: Final = 3

OVERHEAD: Final = 256
"""Bytes that a waiting message is counted with beside what it carries: what the objects around it take."""
PAIR_OVERHEAD: Final = 160
"""The same for each user property."""


class Budget:
    """Bytes that may wait for slow or absent readers, in all lines and sockets together."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


def waiting_size(delivery: Delivery) -> int:
    message = delivery.message
    size = len(message.payload) + len(message.topic) + OVERHEAD
    if message.user_properties is not None:
        for name, value in message.user_properties:
            size += len(name) + len(value) + PAIR_OVERHEAD
    if message.correlation_data is not None:
        size += len(message.correlation_data)
    if message.response_topic is not None:
        size += len(message.response_topic)
    if message.content_type is not None:
        size += len(message.content_type)
    return size


class Waiting:
    """A bounded line. `queue` is None while nothing waits: most lines are empty most of the time."""

    def __init__(self, budget: Budget, max_messages: int, max_bytes: int, policy: int) -> None:
        self.budget = budget
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.policy = policy
        self.queue: deque[Delivery] | None = None
        self.queued_bytes = 0
        self.counted_bytes = 0
        """Of these, what the budget counts: content that is away is not in memory."""
        self.dropped = 0
        self.given_up: list[Delivery] | None = None

    def waiting(self) -> int:
        return 0 if self.queue is None else len(self.queue)

    def wait(self, delivery: Delivery) -> int:
        """Put a message behind those that wait, or let one give way by the policy. QUEUED, DROPPED (this one, now), or
        OVERFLOW: dropped, and whose line it is has to go."""
        size = waiting_size(delivery)
        queue = self.queue
        if queue is None:
            queue = self.queue = deque()
        if not self._fits(len(queue), self.queued_bytes, self.counted_bytes, size):
            # Nobody gives way for what cannot fit anyway.
            if self.policy != DROP_OLDEST or not self._fits(0, 0, 0, size):
                self.dropped += 1
                return OVERFLOW if self.policy == DISCONNECT_WHEN_FULL else DROPPED
            while not self._fits(len(queue), self.queued_bytes, self.counted_bytes, size):
                self._give_up(queue.popleft())
        delivery.size = size
        queue.append(delivery)
        self.queued_bytes += size
        self._count(size)
        return QUEUED

    def restore(self, delivery: Delivery, size: int) -> None:
        """Put a message behind those that wait which waited before the process ended, and whose content is away."""
        if self.queue is None:
            self.queue = deque()
        delivery.size = size
        self.queue.append(delivery)
        self.queued_bytes += size
        self._count(OVERHEAD)

    def put_away(self, delivery: Delivery) -> None:
        """The content of a waiting message is on disk: it need not be here until its turn comes."""
        self._count(OVERHEAD - delivery.size)
        delivery.message = AWAY

    def _count(self, size: int) -> None:
        self.counted_bytes += size
        self.budget.used += size

    def _fits(self, count: int, own_bytes: int, counted: int, size: int) -> bool:
        """Whether one more has room beside `count` messages of `own_bytes`, `counted` in the budget, and what waits
        elsewhere."""
        return (
            count < self.max_messages
            and own_bytes + size <= self.max_bytes
            and self.budget.used - self.counted_bytes + counted + size <= self.budget.limit
        )

    def first(self, now: float) -> Delivery | None:
        """The message that is next, left where it is; expired ones are passed over [MQTT-3.3.2-5]."""
        queue = self.queue
        while queue:
            delivery = queue[0]
            if delivery.message.expires_at > now:
                return delivery
            self._give_up(queue.popleft())
        self.queue = None
        return None

    def take(self) -> Delivery:
        """The first message, off the line; call it only when `first` has returned one."""
        queue = self.queue
        assert queue is not None
        delivery = queue.popleft()
        self._forget(delivery)
        if not queue:
            self.queue = None
        return delivery

    def take_of(self, groups: set[object]) -> list[Delivery]:
        """All that these shared groups sent here, off the line, in order."""
        taken: list[Delivery] = []
        rest: deque[Delivery] = deque()
        for delivery in self.queue or ():
            if delivery.group in groups:
                self._forget(delivery)
                taken.append(delivery)
            else:
                rest.append(delivery)
        self.queue = rest or None
        return taken

    def take_all(self) -> list[Delivery]:
        """All that wait, off the line, in order."""
        taken = list(self.queue or ())
        for delivery in taken:
            self._forget(delivery)
        self.queue = None
        return taken

    def _give_up(self, delivery: Delivery) -> None:
        self._forget(delivery)
        self.dropped += 1
        if self.given_up is None:
            self.given_up = []
        self.given_up.append(delivery)

    def take_given_up(self) -> list[Delivery]:
        """What was dropped from the line, by the policy or because it expired, since the last call."""
        given_up = self.given_up or []
        self.given_up = None
        return given_up

    def _forget(self, delivery: Delivery) -> None:
        self.queued_bytes -= delivery.size
        self._count(-OVERHEAD if delivery.message is AWAY else -delivery.size)
