"""Messages that wait: for a client that is away or slow, or for any member of a shared group.

Theory. Two bounds, and two answers to what does not fit:

- A queue's own (count and bytes), and that of all its user's queues (`UserQueues`). `policy` says who gives way when it
  is full: a chosen loss, counted and logged. With `REFUSE` nobody does: the queue is `full`, and publishers are told
  before they are acknowledged.
- That of all queues, with what is in flight and what waits for sockets: the `Budget`. It is of nobody's choosing, so
  nothing that was acknowledged is lost to it. Publishers are asked to wait, or refused, while it is used up
  (node/protocol/admission.py); a message of QoS 1 or 2 that was let in is kept for all that it is for, even if that
  goes beyond the budget by this one message. Only QoS 0 gives way to it here.

What gave way or expired is kept in `given_up` until somebody has told of it.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from headwater.message import NEVER, OVERHEAD, Delivery
from headwater.session.journaled import AWAY

DROP_NEWEST: Final = 0
DROP_OLDEST: Final = 1
DISCONNECT_WHEN_FULL: Final = 2
REFUSE: Final = 3

SEND: Final = 0
QUEUED: Final = 1
DROPPED: Final = 2
OVERFLOW: Final = 3


class Budget:
    """Bytes that may wait for slow or absent readers, in all queues and sockets together."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.messages = 0
        """That wait in all queues: those of sessions, and of shared groups."""
        self.sockets = 0
        """Of these, what waits for sockets: at most half, so that who does not read leaves room for QoS 1 and 2."""
        self.full_queues = 0
        """Queues that are full and whose messages are refused therefore (`REFUSE`)."""


class UserQueues:
    """Bytes that wait in all sessions of one user; `limit` 0: any."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class DeliveryQueue:
    """A bounded queue. `queue` is None while nothing waits: most queues are empty most of the time."""

    def __init__(self, budget: Budget, max_messages: int, max_bytes: int, policy: int) -> None:
        self.budget = budget
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.policy = policy
        self.queue: deque[Delivery] | None = None
        self.queued_bytes = 0
        self.away_bytes = 0
        """Of these, what the budget does not count: content that is on disk only."""
        self.user: UserQueues | None = None
        self.dropped = 0
        self.given_up: list[Delivery] | None = None
        self.full = False
        """With `REFUSE`: what is for this queue is not taken from publishers now."""
        self.untold = 0
        """Messages that gave way since the log last said so, at `told_at`."""
        self.told_at = -NEVER

    def waiting(self) -> int:
        return 0 if self.queue is None else len(self.queue)

    def wait(self, delivery: Delivery) -> int:
        """Put a message behind those that wait, or let one give way by the policy. QUEUED, DROPPED (this one, now), or
        OVERFLOW: dropped, and whose queue it is has to go."""
        size = delivery.message.size()
        queue = self.queue
        if queue is None:
            queue = self.queue = deque()
        budget = self.budget
        if delivery.qos == 0 and (self.full or budget.used + size > budget.limit):
            self.dropped += 1
            return DROPPED
        if self.policy != REFUSE and not self._fits(len(queue), self.queued_bytes, size):
            # Nobody gives way for what cannot fit anyway.
            if self.policy != DROP_OLDEST or not self._fits(0, 0, size):
                self.dropped += 1
                return OVERFLOW if self.policy == DISCONNECT_WHEN_FULL else DROPPED
            while not self._fits(len(queue), self.queued_bytes, size):
                self._give_up(queue.popleft())
        delivery.size = size
        queue.append(delivery)
        self._count(size)
        budget.used += size
        budget.messages += 1
        self._look_whether_full()
        return QUEUED

    def restore(self, delivery: Delivery, size: int) -> None:
        """Put a message behind those that wait which waited before the process ended, and whose content is away."""
        if self.queue is None:
            self.queue = deque()
        delivery.size = size
        self.queue.append(delivery)
        self._count(size)
        self.away_bytes += size - OVERHEAD
        self.budget.used += OVERHEAD
        self.budget.messages += 1
        self._look_whether_full()

    def put_away(self, delivery: Delivery) -> None:
        """The content of a waiting message is on disk: it need not be here until its turn comes."""
        self.away_bytes += delivery.size - OVERHEAD
        self.budget.used += OVERHEAD - delivery.size
        delivery.message = AWAY

    def _fits(self, count: int, own_bytes: int, size: int) -> bool:
        """Whether one more has room beside `count` messages of `own_bytes`, and those of the user's other queues."""
        user = self.user
        if user is not None and user.limit and user.used - self.queued_bytes + own_bytes + size > user.limit:
            return False
        return count < self.max_messages and own_bytes + size <= self.max_bytes

    def _count(self, size: int) -> None:
        self.queued_bytes += size
        if self.user is not None:
            self.user.used += size

    def move_to(self, user: UserQueues | None) -> None:
        """What waits here is this user's from now on."""
        size = self.queued_bytes
        self._count(-size)
        self.user = user
        self._count(size)

    def _look_whether_full(self) -> None:
        count = self.waiting()
        user = self.user
        full = count >= self.max_messages or self.queued_bytes >= self.max_bytes
        full = full or (user is not None and user.limit > 0 and user.used >= user.limit)
        # Of nothing, nobody would ever say that there is room again.
        full = full and self.policy == REFUSE and count > 0
        if full != self.full:
            self.full = full
            self.budget.full_queues += 1 if full else -1

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
        """The first message, off the queue; call it only when `first` has returned one."""
        queue = self.queue
        assert queue is not None
        delivery = queue.popleft()
        self._forget(delivery)
        if not queue:
            self.queue = None
        return delivery

    def take_of(self, groups: set[object]) -> list[Delivery]:
        """All that these shared groups sent here, off the queue, in order."""
        taken: list[Delivery] = []
        if not groups:
            return taken  # the usual case, and the queue may be long
        rest: deque[Delivery] = deque()
        for delivery in self.queue or ():
            if delivery.group in groups:
                self._forget(delivery)
                taken.append(delivery)
            else:
                rest.append(delivery)
        self.queue = rest or None
        self._look_whether_full()
        return taken

    def take_all(self) -> deque[Delivery]:
        """All that wait, off the queue, in order; however many they are, at once."""
        taken: deque[Delivery] = deque() if self.queue is None else self.queue
        self.queue = None
        self.budget.messages -= len(taken)
        self.budget.used -= self.queued_bytes - self.away_bytes
        self._count(-self.queued_bytes)
        self.away_bytes = 0
        self._look_whether_full()
        return taken

    def _give_up(self, delivery: Delivery) -> None:
        self._forget(delivery)
        self.dropped += 1
        if self.given_up is None:
            self.given_up = []
        self.given_up.append(delivery)

    def take_given_up(self) -> list[Delivery]:
        """What was dropped from the queue, by the policy or because it expired, since the last call."""
        given_up = self.given_up or []
        self.given_up = None
        return given_up

    def _forget(self, delivery: Delivery) -> None:
        self._count(-delivery.size)
        self.budget.messages -= 1
        if delivery.message is AWAY:
            self.away_bytes -= delivery.size - OVERHEAD
            self.budget.used -= OVERHEAD
        else:
            self.budget.used -= delivery.size
        if self.full:
            self._look_whether_full()
