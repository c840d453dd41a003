"""An edge without sockets: a store in memory, its REST side as a reader, and clients that messages may not reach."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from headwater.client import Client, Message, Properties, SubscribeRequest
from headwater.message import POSITION_PROPERTY
from headwater.routing.topics import matches
from headwater.store.arrow import record_batch
from headwater.store.directory import Directory
from headwater.store.intake import Intake
from headwater.store.memory import MemoryStore
from headwater.store.query import Query
from headwater.store.reader import Gone, Position, Refused, StoreReader, Unreachable
from headwater.store.retention import Retention
from headwater.store.store import PositionGone
from headwater.wire.packets import Publish


class Edge:
    """Stores what is published, and then delivers it."""

    def __init__(self, id: str = "s1", retention: Retention | None = None) -> None:
        self.store = MemoryStore(id, retention=retention)
        self._intake = Intake(1)
        self.subscribers: list[FakeClient] = []

    def publish(self, topic: str, payload: bytes = b"", *, lost: bool = False, times: int = 1) -> int:
        """`lost` messages are stored and not delivered; `times` above 1 is what QoS 1 may do."""
        position = self._intake.take(topic.encode(), payload, 0, "device", 1_000_000)
        taken = self._intake.hand_over()
        assert taken is not None
        self.store.append(taken)
        self.store.sync()
        if not lost:
            for subscriber in self.subscribers:
                for _ in range(times):
                    subscriber.deliver(topic, payload, f"{self.store.id}:{position}")
        return position

    def expected(self, *filters: str) -> list[tuple[int, str, bytes]]:
        """What a mirror has to have in the end."""
        return [
            (entry.position, entry.topic, entry.payload)
            for chunk in self.store.select(Query())
            for entry in chunk.entries()
            if any(matches(filter, entry.topic) for filter in filters)
        ]


class FakeClient(Client):
    """What a mirror needs of a client."""

    def __init__(self, edge: Edge, granted: int = 0) -> None:
        self._edge = edge
        self._granted = granted
        self._filters: list[str] = []
        self._queue: asyncio.Queue[Message] = asyncio.Queue()
        self.asked: Properties | None = None
        self.connected = False
        self.messages = self._all()  # type: ignore[assignment]

    async def __aenter__(self) -> Self:
        self.connected = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connected = False
        if self in self._edge.subscribers:
            self._edge.subscribers.remove(self)

    @property
    def is_connected(self) -> bool:
        return self.connected

    async def subscribe(
        self,
        filters: str | Iterable[str | SubscribeRequest],
        *,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        properties: Properties | None = None,
    ) -> list[int]:
        self._filters = [str(filter) for filter in filters]
        self.asked = properties
        self._edge.subscribers.append(self)
        return [self._granted for _ in self._filters]

    def deliver(self, topic: str, payload: bytes, position: str | None) -> None:
        if self.connected and any(matches(filter, topic) for filter in self._filters):
            properties = Properties(user_properties=[(POSITION_PROPERTY, position)]) if position else None
            self._queue.put_nowait(Message(Publish(topic, payload, properties=properties), lambda message: None))

    async def _all(self) -> AsyncIterator[Message]:
        while True:
            yield await self._queue.get()


class FakeReader(StoreReader):
    """REST without HTTP. `down` makes it unreachable, `filters` are what the caller may read."""

    def __init__(self, edge: Edge, filters: list[str] | None = None) -> None:
        super().__init__("http://nowhere.example")
        self._edge = edge
        self._filters = filters
        self.down = False
        self.known: Directory | None = None
        """What it says of its edge."""
        self.others: dict[str, FakeReader] = {}
        """The readers of its other nodes, by their addresses."""
        self.reads: list[tuple[int, int | None, str]] = []

    def _may_read(self, topic: str) -> bool:
        return self._filters is None or any(matches(filter, topic) for filter in self._filters)

    def _up(self) -> None:
        if self.down:
            raise Unreachable("nobody listens")

    def directory(self) -> Directory | None:
        self._up()
        return self.known

    def at(self, url: str) -> FakeReader:
        return self.others[url]

    def status(self) -> dict[str, Any]:
        self._up()
        if self._filters is not None:
            raise Refused(403, "forbidden", "not for you")
        return self._edge.store.statistics()._asdict()

    def store_id(self) -> str:
        self._up()
        return self._edge.store.id

    def topics(self, filter: str = "#") -> Iterator[dict[str, Any]]:
        self._up()
        return iter([each._asdict() for each in self._edge.store.topics(filter, self._may_read)])

    def read(
        self,
        after: Position | None = None,
        before: Position | None = None,
        topic: str = "#",
        *others: Any,
        **named: Any,
    ) -> Iterator[Any]:
        self._up()
        id, _, number = str(after).rpartition(":")
        assert id == self._edge.store.id
        assert isinstance(before, int)
        self.reads.append((int(number), before, topic))
        query = Query(topic, after=int(number), before=before, may_read=self._may_read)
        try:
            for chunk in self._edge.store.select(query):
                yield record_batch(chunk)
        except PositionGone as gone:
            raise Gone(str(gone), gone.first, self._edge.store.next, gone.first - gone.asked) from None

    def commit(self, name: str, position: Position) -> dict[str, Any]:
        self._up()
        return self._edge.store.commit(name, int(position))._asdict()
