"""The contract of a store: positions, durability, readers, retention.

A store gives each message a position: a sequence number that begins at 1, has no gaps and is never used twice, in a
store whose id is unlike that of any other. What is at a position never changes; after a crash it is the same bytes,
or, for the last ones that were never synced, nothing. Messages disappear from the front, by retention, or
are erased: their positions stay empty.

    append(taken)  hand messages to the operating system          one thread at a time writes
    sync()         all of them are on disk, and can be read       and any threads read
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from headwater.store.intake import Taken
from headwater.store.query import Query

if TYPE_CHECKING:
    from headwater.store.chunk import Chunk
    from headwater.store.erasing import Doomed, Erased


class PositionGone(Exception):
    """Messages were asked for that retention has removed; `first` is the first that is left."""

    def __init__(self, asked: int, first: int) -> None:
        super().__init__(f"position {asked} is not there any more; the first that is left is {first}")
        self.asked = asked
        self.first = first


class UnknownReader(Exception):
    """No reader has this name."""


class TopicStatistics(NamedTuple):
    """What a store has of a topic. First and last are of the messages that are left, in the order
    of positions; times are those of measurement."""

    topic: str
    messages: int
    first: int
    last: int
    first_time: int
    last_time: int


class Reader(NamedTuple):
    """Who reads in turn and says how far it has come. `position` is the last that it has committed, 0 for none;
    `lost` counts the messages that retention removed before it came to them; times are microseconds since 1970."""

    name: str
    position: int
    lost: int = 0
    created: int = 0
    committed: int = 0


class Statistics(NamedTuple):
    """`size` is bytes on disk, `payload_size` what publishers sent of that."""

    id: str
    first: int
    next: int
    topics: int
    size: int
    payload_size: int
    blocks: int
    unsealed: int
    """Messages that are not in a block yet."""


class Trimmed(NamedTuple):
    """What retention did: messages before `first` are gone. `held_by` is the reader that keeps it from more."""

    first: int
    messages: int
    size: int
    held_by: str | None


class Store:
    """`[first, next)` can be read. `id` is written in front of positions where they leave the store: `id:number`."""

    def __init__(self) -> None:
        self.id = ""
        self.first = 1
        self.next = 1

    @property
    def disk_first(self) -> int:
        """The first position on the node's own disk; those before it that are left are in object storage."""
        return self.first

    # ---- writing -----------------------------------------------------------------------------------------------

    def append(self, taken: Taken, note: bytes = b"") -> None:
        """`taken.first` is where the last ended, else ValueError. Raises StorageError: nothing of it, or of a later
        one, will be there. A `note` is there after a crash if and only if the messages are, until another takes its
        place."""
        raise NotImplementedError

    def note(self) -> bytes:
        """The last one; empty if there was none."""
        raise NotImplementedError

    def sync(self) -> None:
        """What was appended is on disk for good, can be read, and watchers are told."""
        raise NotImplementedError

    # ---- reading -----------------------------------------------------------------------------------------------

    def select(self, query: Query) -> Iterator[Chunk]:
        """What the query asks for, as it is now, in chunks of bounded size in the order of positions.

        Raises PositionGone at once if `query.after` is before what is left, and later if retention overtakes it."""
        raise NotImplementedError

    def topics(self, filter: str | None = None, may_read: Callable[[str], bool] | None = None) -> list[TopicStatistics]:
        """Of each topic that matches and of which a message is left, in the order of names."""
        raise NotImplementedError

    def topics_page(
        self, filter: str | None, may_read: Callable[[str], bool] | None, after: str, limit: int
    ) -> tuple[list[TopicStatistics], str | None]:
        """The first of them behind the name `after`, at most so many, and the `after` of the next page, if there are
        more. A page costs what is on it, however many topics there are; one that retention removes meanwhile may be
        missing."""
        raise NotImplementedError

    def knows(self, topic: bytes) -> bool:
        """Whether it has a message of this topic, or counts it for another reason; quick, and any thread may ask."""
        raise NotImplementedError

    def known_topics(self) -> int:
        """How many topics it knows; as quick."""
        raise NotImplementedError

    def latest(self, topic: str) -> Chunk | None:
        """The last message of a topic, as a chunk of one."""
        raise NotImplementedError

    def statistics(self) -> Statistics:
        raise NotImplementedError

    def watch(self, tell: Callable[[], None]) -> None:
        """`tell` is called, by the thread that writes or removes, whenever there is more to read, or less; it must be
        quick."""
        raise NotImplementedError

    def unwatch(self, tell: Callable[[], None]) -> None:
        raise NotImplementedError

    # ---- readers -----------------------------------------------------------------------------------------------

    def readers(self) -> list[Reader]:
        """In the order of names."""
        raise NotImplementedError

    def reader(self, name: str) -> Reader:
        """Raises UnknownReader."""
        raise NotImplementedError

    def commit(self, name: str, position: int) -> Reader:
        """The reader, which comes into being with its first commit, has dealt with all up to `position`; on disk when
        this returns. A commit may go back as far as messages are left. Raises PositionGone if it goes back further,
        ValueError if the position has not been given yet or the name is not a good one."""
        raise NotImplementedError

    def forget(self, name: str) -> None:
        """The reader does not hold back retention any more. Raises UnknownReader."""
        raise NotImplementedError

    # ---- erasing -----------------------------------------------------------------------------------------------

    def erase(self, doomed: Doomed) -> Erased:
        """Remove messages for good, a bounded part of them: who asks goes on behind the `position` that is answered.
        What is gone is nowhere in the store's files when this returns. Their positions stay empty, and `first` and
        `next` as they are. Who is killed and asks again, finds what is left."""
        raise NotImplementedError

    def erased(self, after: int, most: int) -> list[tuple[int, int]]:
        """Behind a position: ranges that were erased, and that retention has not removed since; the first of them,
        in order, ends included. They may touch."""
        raise NotImplementedError

    def damaged(self) -> list[tuple[int, int]]:
        """Positions that damage has taken: the first and the one behind the last of each range."""
        return []

    # ---- keeping -----------------------------------------------------------------------------------------------

    def trim(self, now: int) -> Trimmed:
        """Remove what retention says, as of a time in microseconds."""
        raise NotImplementedError

    def give_back(self) -> None:
        """As `compact`, for what retention has removed, at little cost."""

    def compact(self) -> None:
        """Give back to the file system what is removed."""
        raise NotImplementedError

    def close(self) -> None:
        """Sync and let go of the folder; twice is fine."""
        raise NotImplementedError
