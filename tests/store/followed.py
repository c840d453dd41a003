"""A store that one writes and another reads: FollowingStore beside the DiskStore that it follows, as one store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headwater.store.chunk import Chunk
from headwater.store.disk_store import DiskStore
from headwater.store.erasing import Doomed, Erased
from headwater.store.following import FollowingStore, Held, Primary
from headwater.store.intake import Taken
from headwater.store.query import Query
from headwater.store.store import Reader, Statistics, Store, TopicStatistics, Trimmed


class Beside(Primary):
    """The one who writes is in the same process."""

    def __init__(self, store: DiskStore) -> None:
        self.store = store
        self.is_watched = False

    @property
    def first(self) -> int:
        return self.store.first

    @property
    def next(self) -> int:
        return self.store.next

    @property
    def reachable(self) -> int:
        return self.store.reachable

    @property
    def erasures(self) -> int:
        return self.store.erasures

    def erase(self, doomed: Doomed) -> Erased:
        return self.store.erase(doomed)

    @property
    def held(self) -> Held:
        return Held(*self.store.statistics()[3:])

    def commit(self, name: str, position: int) -> Reader:
        return self.store.commit(name, position)

    def forget(self, name: str) -> None:
        self.store.forget(name)

    def watching(self, wanted: bool) -> None:
        self.is_watched = wanted


class Followed(Store):
    def __init__(self, path: Path, **options: Any) -> None:
        self.written = DiskStore(path, **options)
        self.read = FollowingStore(path / "db", path / "follower", self.written.id, Beside(self.written), 1 << 20)
        super().__init__()
        self.id = self.written.id
        self.written.watch(self.read.tell_watchers)

    @property
    def first(self) -> int:
        return self.read.first

    @first.setter
    def first(self, value: int) -> None: ...

    @property
    def next(self) -> int:
        return self.read.next

    @next.setter
    def next(self, value: int) -> None: ...

    def append(self, taken: Taken, note: bytes = b"") -> None:
        self.written.append(taken, note)

    def note(self) -> bytes:
        return self.written.note()

    def sync(self) -> None:
        self.written.sync()

    def seal(self, everything: bool = False) -> int:
        return self.written.seal(everything)

    def trim(self, now: int) -> Trimmed:
        return self.written.trim(now)

    def erase(self, doomed: Doomed) -> Erased:
        return self.read.erase(doomed)

    def erased(self, after: int, most: int) -> list[tuple[int, int]]:
        return self.read.erased(after, most)

    def give_back(self) -> None:
        self.written.give_back()

    def compact(self) -> None:
        self.written.compact()

    def close(self) -> None:
        self.read.close()
        self.written.close()

    def select(self, query: Query) -> Iterator[Chunk]:
        return self.read.select(query)

    def topics(self, filter: str | None = None, may_read: Callable[[str], bool] | None = None) -> list[TopicStatistics]:
        return self.read.topics(filter, may_read)

    def topics_page(
        self, filter: str | None, may_read: Callable[[str], bool] | None, after: str, limit: int
    ) -> tuple[list[TopicStatistics], str | None]:
        return self.read.topics_page(filter, may_read, after, limit)

    def knows(self, topic: bytes) -> bool:
        return self.written.knows(topic)

    def known_topics(self) -> int:
        return self.written.known_topics()

    def latest(self, topic: str) -> Chunk | None:
        return self.read.latest(topic)

    def statistics(self) -> Statistics:
        return self.read.statistics()

    def watch(self, tell: Callable[[], None]) -> None:
        self.read.watch(tell)

    def unwatch(self, tell: Callable[[], None]) -> None:
        self.read.unwatch(tell)

    def readers(self) -> list[Reader]:
        return self.read.readers()

    def reader(self, name: str) -> Reader:
        return self.read.reader(name)

    def commit(self, name: str, position: int) -> Reader:
        return self.read.commit(name, position)

    def forget(self, name: str) -> None:
        self.read.forget(name)
