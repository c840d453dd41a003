"""Stores and then delivers: every message whose topic is to be stored gets a position before anybody else gets it.

Theory. A message is taken in the turn of the loop in which it comes. It goes into the store with the commit of that
turn (node/persistence/journal.py), which is the one clock of what is on disk: its publisher is acknowledged after that
commit, and its subscribers are sent it after that commit. So nobody has ever seen a message that a crash can take back,
and what a position names for one is the same for all.

    PUBLISH -> Storing: position n, of commit c -> routed as ever; each channel it is written to has barrier c
    commit c: the store has it, synced -> acknowledgements and messages up to barrier c are sent

What is taken and not on disk is bounded: above `max_pending` bytes, who publishes is not read from until a commit is
done. Topics are bounded by `max_topics`: a message that would make one more is refused whole.

A subscriber that asks for positions gets each message with its position as a user property. A publisher's own property
of that name is removed, or anybody could invent positions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headwater.message import POSITION_PROPERTY, Message, UserProperties
from headwater.routing.topics import matches
from headwater.store.intake import Intake, Taken
from headwater.store.query import Query

if TYPE_CHECKING:
    from headwater.store.store import Store

EVERYTHING: Final = "#"


def _last_arrival(store: Store) -> int:
    """Of the messages that the store has; the wall clock may have been set back since."""
    if store.next == store.first:
        return 0
    return max(chunk.last_arrival for chunk in store.select(Query(after=store.next - 2)))


class Coordinator:
    """`store` is where the messages are to go that match one of `filters`; a commit brings them there."""

    def __init__(self, store: Store, filters: list[str], max_pending: int, max_topics: int) -> None:
        self.kept_up: Callable[[], None] = _nothing
        """Called when a commit is done and not too much waits for the next."""
        self.removed: Callable[[], None] = _nothing
        """Called when topics may have gone with messages that retention removed."""
        self.store = store
        self.store_id: str = store.id
        self.filters = filters
        self.max_pending = max_pending
        self.max_topics = max_topics
        self.intake = Intake(store.next)
        self.writing = 0
        """Bytes of the commit that is on its way."""
        self.began_with: int = self.intake.next
        self.bytes_stored = 0
        self.seconds = 0.0
        """That bringing them to disk has taken."""
        self.groups_ask = False
        """There is, or was, a shared subscription that asks for positions."""
        self._known: int = store.known_topics()
        self._fresh: set[bytes] = set()
        """Topics that the store does not know yet, and for which there is room."""
        self._now = -1.0
        self._arrival = _last_arrival(store)

    # ---- what is stored ----------------------------------------------------------------------------------------

    def stores(self, topic: str) -> bool:
        """Topics that begin with `$` only if a filter names them, as for any subscriber."""
        for filter in self.filters:
            if filter == EVERYTHING:
                if not topic.startswith("$"):
                    return True
            elif matches(filter, topic):
                return True
        return False

    def room_for(self, topic: bytes) -> bool:
        """Whether a message of a topic that is stored may be taken; if so, the topic counts from now on."""
        if topic in self._fresh or self.store.knows(topic):
            return True
        if self._known + len(self._fresh) >= self.max_topics:
            return False
        self._fresh.add(topic)
        return True

    def has_taken(self, topic: bytes) -> bool:
        """Whether a topic that is stored counts already."""
        return topic in self._fresh or self.store.knows(topic)

    # ---- the clock ---------------------------------------------------------------------------------------------

    def arrival(self, now: float) -> int:
        """What the wall clock says in the turn of `now`, in microseconds since 1970; it is looked at once a turn. It
        never goes back: who reads by position reads by arrival, too."""
        if now != self._now:
            self._now = now
            self._arrival = max(self._arrival, int(time.time() * 1e6))
        return self._arrival

    def clock(self) -> int:
        """The time of arrival now: messages that are taken from now on have this one or a later one."""
        self._arrival = max(self._arrival, int(time.time() * 1e6))
        return self._arrival

    # ---- commits -----------------------------------------------------------------------------------------------

    @property
    def taken_messages(self) -> int:
        """Since the start."""
        return self.intake.next - self.began_with

    @property
    def pending(self) -> int:
        """Bytes that are taken and not on disk."""
        return self.writing + self.intake.taken.size

    @property
    def too_much(self) -> bool:
        return self.writing + self.intake.taken.size > self.max_pending

    def outruns(self, position: int) -> bool:
        """Whether messages were taken since `position` was the next, and too much is not on disk."""
        return self.intake.next != position and self.too_much

    def hand_over(self) -> Taken | None:
        """What the commit that begins now has to bring to the store."""
        taken = self.intake.hand_over()
        self.writing = 0 if taken is None else taken.size
        return taken

    def on_disk(self, taken: Taken) -> None:
        """The commit is done."""
        self.writing = 0
        self.bytes_stored += taken.size
        self._known = self.store.known_topics()
        if self._fresh:
            self._fresh.difference_update(taken.topics)
        if not self.too_much:
            self.kept_up()

    def messages_were_removed(self) -> None:
        """By retention: topics may have gone with them, and are counted anew if they come back."""
        self._known = self.store.known_topics()
        self.removed()

    # ---- positions ---------------------------------------------------------------------------------------------

    def marked(self, message: Message) -> Message:
        """The message for those who ask for its position, if it has one."""
        if message.position == 0:
            return message
        marked = message.marked
        if marked is None:
            pairs: UserProperties = [] if message.user_properties is None else list(message.user_properties)
            pairs.append((POSITION_PROPERTY, f"{self.store_id}:{message.position}"))
            marked = message.marked = message.with_user_properties(pairs)
            marked.commit = message.commit
        return marked

    def unmarked(self, message: Message) -> Message:
        """The message for those who do not: it was meant for somebody else in their shared group."""
        if not _has_position(message):
            return message
        plain = message.with_user_properties(_without_position(message))
        plain.commit = message.commit
        return plain

    def clean(self, message: Message) -> None:
        """Positions are ours to say."""
        if _has_position(message):
            message.user_properties = _without_position(message)


def _nothing() -> None:
    pass


def _has_position(message: Message) -> bool:
    pairs = message.user_properties
    if pairs is not None:
        for pair in pairs:
            if pair[0] == POSITION_PROPERTY:
                return True
    return False


def _without_position(message: Message) -> UserProperties | None:
    pairs = message.user_properties
    return None if pairs is None else [pair for pair in pairs if pair[0] != POSITION_PROPERTY] or None
