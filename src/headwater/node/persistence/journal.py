"""When what has changed (changes.py) comes to disk, and the acknowledgements that wait for it.

Theory. An acknowledgement is a promise, so it may not leave before what it promises is on disk ("output commit").
Waiting for a disk takes as long as thousands of packets, so nobody waits alone ("group commit"): while one commit is on
its way, changes collect for the next, and what depends on them is withheld.

    packet -> change, of commit n; the answer is written to a channel whose barrier becomes n
    end of turn -> if no commit runs, all changes become batch n; a thread writes and syncs it; changes are of n+1 now
    batch n is on disk -> bytes withheld up to barrier n are sent

Only channels that were promised something wait; QoS 0 and QoS 1 on their way to subscribers do not, unless they go to
the delivery store first (node/delivery/coordinator.py). What has a barrier: PUBACK, PUBREC, PUBCOMP, CONNACK, SUBACK,
UNSUBACK; PUBREL, because after it the receiver forgets the packet id; and a PUBLISH with QoS 2, because the message may
never go out again with another id, or to another member of its group.
Commits are in the order of changes and atomic, so what is found after a crash is the broker as it was at the end of
some turn, at or after the last promise.

With subscribers that keep up, much of the traffic never comes to the disk, and its acknowledgements wait for nothing
but the commit before.

With durability `async` nothing has a barrier, and commits begin `interval` seconds after the first change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from headwater.node.persistence.batch import Batch, Committer
from headwater.node.persistence.changes import Changes
from headwater.node.plane.channel import Channel
from headwater.node.plane.turn import Turn
from headwater.routing.retained import Retained
from headwater.session.journaled import AWAY, DurableDelivery
from headwater.session.waiting import Budget

MANY: Final = 512
"""Changed deliveries from which on `async` does not wait for its interval."""
MUCH: Final = 1 << 20
"""Bytes for the delivery store from which on it does not, either."""
NEVER_WITHHELD: Final = 1 << 62


class Journal(Changes):
    def __init__(self, turn: Turn, retained: Retained, budget: Budget, committer: Committer) -> None:
        super().__init__(turn, retained, committer)
        self.budget = budget
        self.interval = 0.0
        self.memory = 0
        """Bytes that may wait in memory before the content of more is put away."""
        self.running = False
        self.scheduled = False
        self.changed = False
        self.commits = 0
        self.syncs = 0
        self.seconds = 0.0
        """That commits have taken."""
        self._listeners: deque[tuple[int, Callable[[], None]]] = deque()
        """To be told when a commit is on disk."""

    # ---- promises ----------------------------------------------------------------------------------------------

    def promise(self, channel: Channel) -> None:
        """What was written to the channel in this turn depends on what has changed until now."""
        channel.barrier = self.sequence
        self.turn.changed = True

    def promise_gone(self, channel: Channel) -> None:
        """The same, if it depends on what is done, too: after a crash that must not be found again."""
        self._gone_for_good = True
        self.promise(channel)

    def tell_when_durable(self, tell: Callable[[], None]) -> None:
        """As `promise`, for those who have no channel: `tell` is called when all that has changed until now is on disk,
        with `async` at once."""
        if self.interval > 0.0:
            tell()
        else:
            self._listeners.append((self.sequence, tell))
            self.turn.changed = True

    def failed(self) -> None:
        """The disk has failed: nothing will be durable any more. Nobody is left waiting for it."""
        self._tell(NEVER_WITHHELD)

    def _tell(self, sequence: int) -> None:
        while self._listeners and self._listeners[0][0] <= sequence:
            self._listeners.popleft()[1]()

    # ---- commits -----------------------------------------------------------------------------------------------

    def turn_ended(self) -> None:
        self.turn.changed = False
        self.changed = True
        if self.running:
            return
        if self.interval > 0.0 and len(self._deliveries) < MANY and not self._is_urgent():
            if not self.scheduled:
                self.scheduled = True
                self.committer.later(self.interval)
            return
        self.begin()

    def _is_urgent(self) -> bool:
        if self.contributor is not None and self.contributor.is_owed():
            return True
        return self.coordinator is not None and self.coordinator.intake.taken.size >= MUCH

    def begin(self) -> None:
        """Start a commit of all that has changed, unless one is on its way."""
        self.scheduled = False
        if self.running or not self.changed:
            return
        self.changed = False
        try:
            batch = self._batch()
        except Exception as error:
            self.running = True  # for ever: some of it counts as written now, and is not
            self.committer.give_up(error)
            return
        self.sequence += 1
        if batch.puts or batch.deletes or batch.taken is not None:
            self.running = True
            self.commits += 1
            self.syncs += batch.promises
            self.committer.start(batch)
        else:
            self._durable(batch.sequence)
            if self.contributor is not None:
                self.contributor.on_disk(batch.sequence)

    def finished(self, batch: Batch) -> None:
        """The batch is on disk."""
        self.running = False
        if batch.taken is not None and self.coordinator is not None:
            self.coordinator.on_disk(batch.taken)
        self._durable(batch.sequence)
        if self.contributor is not None:
            self.contributor.on_disk(batch.sequence)
        if self.budget.used > self.memory:
            for entry in batch.waiting:
                self._put_away(entry)
        if self.changed:
            self.changed = False
            self.turn.changed = True

    def _durable(self, sequence: int) -> None:
        if self.interval == 0.0:
            self.turn.durable = sequence
            if self.turn.withholding:
                self.turn.release()
            self._tell(sequence)

    def _put_away(self, entry: DurableDelivery) -> None:
        delivery = entry.delivery
        queue = self._queues.get(entry.owner)
        if delivery is not None and queue is not None and delivery.message is not AWAY and entry.packet_id == 0:
            queue.put_away(delivery)
            entry.journaled.message = None
            entry.journaled.head = entry.journaled.tail = b""
