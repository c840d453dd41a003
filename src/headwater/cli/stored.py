"""Where `headwater store` gets messages from: a node that runs, by REST, or the folder of one that does not.

Both give messages as REST writes them in JSON, so that what is printed does not depend on where it came from.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headwater.cli.failure import fail
from headwater.routing.topics import InvalidTopicFilter

if TYPE_CHECKING:
    import pyarrow

    from headwater.store.chunk import Chunk
    from headwater.store.disk_store import DiskStore
    from headwater.store.query import Query
    from headwater.store.reader import StoreReader

MESSAGES: Final = "messages"
"""The store's folder in a node's."""
NO_TIME: Final = 1 << 62


class Asked(NamedTuple):
    """A question as it was typed."""

    topic: str = "#"
    start: str | None = None
    end: str | None = None
    low: float | None = None
    high: float | None = None
    after: str | None = None
    before: str | None = None
    limit: int | None = None


class AskedWrongly(Exception):
    """The question makes no sense; the text says why."""


class Source:
    """What can be asked for. Raises StorageError, the reader's errors, AskedWrongly."""

    def statistics(self) -> dict[str, Any]:
        raise NotImplementedError

    def topics(self, filter: str) -> Iterator[dict[str, Any]]:
        raise NotImplementedError

    def messages(self, asked: Asked) -> Iterator[dict[str, Any]]:
        raise NotImplementedError

    def batches(self, asked: Asked) -> Iterator[pyarrow.RecordBatch]:
        raise NotImplementedError

    def readers(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def commit(self, name: str, position: str) -> None:
        raise NotImplementedError

    def forget(self, name: str) -> bool:
        raise NotImplementedError


class Remote(Source):
    """A node that runs."""

    def __init__(self, reader: StoreReader) -> None:
        self.reader = reader

    def statistics(self) -> dict[str, Any]:
        return self.reader.status()

    def topics(self, filter: str) -> Iterator[dict[str, Any]]:
        return self.reader.topics(filter)

    def messages(self, asked: Asked) -> Iterator[dict[str, Any]]:
        return self.reader.messages(**_named(asked))

    def batches(self, asked: Asked) -> Iterator[pyarrow.RecordBatch]:
        return self.reader.read(**_named(asked))

    def readers(self) -> list[dict[str, Any]]:
        return self.reader.readers()

    def commit(self, name: str, position: str) -> None:
        self.reader.commit(name, int(position) if position.isdecimal() else position)

    def forget(self, name: str) -> bool:
        return self.reader.forget(name)


def _named(asked: Asked) -> dict[str, Any]:
    return asked._asdict()


class Local(Source):
    """A folder that no node uses."""

    def __init__(self, store: DiskStore) -> None:
        self.store = store

    def statistics(self) -> dict[str, Any]:
        found = self.store.statistics()
        return {**found._asdict(), "messages": found.next - found.first, "readers": len(self.store.readers())}

    def topics(self, filter: str) -> Iterator[dict[str, Any]]:
        from headwater.store.entry import iso

        try:
            listed = self.store.topics(filter)
        except InvalidTopicFilter as error:
            raise AskedWrongly(f"{filter!r} is no topic filter: {error}") from None
        for each in listed:
            times = {"first_time": iso(each.first_time), "last_time": iso(each.last_time)}
            yield {**each._asdict(), **times}

    def messages(self, asked: Asked) -> Iterator[dict[str, Any]]:
        import orjson

        from headwater.store.rest.formats import objects

        for chunk in self._chunks(asked):
            for each in objects(chunk):
                yield orjson.loads(orjson.dumps(each))

    def batches(self, asked: Asked) -> Iterator[pyarrow.RecordBatch]:
        from headwater.store.arrow import record_batch

        return map(record_batch, self._chunks(asked))

    def _chunks(self, asked: Asked) -> Iterator[Chunk]:
        from headwater.store.store import PositionGone

        try:
            yield from self.store.select(self._query(asked))
        except PositionGone as gone:
            raise AskedWrongly(str(gone)) from None
        except InvalidTopicFilter as error:
            raise AskedWrongly(f"{asked.topic!r} is no topic filter: {error}") from None

    def _query(self, asked: Asked) -> Query:
        from headwater.store.query import Query

        return Query(
            asked.topic,
            start=_time(asked.start, "--from"),
            end=_time(asked.end, "--to"),
            low=asked.low,
            high=asked.high,
            after=self._position(asked.after, "--after"),
            before=self._position(asked.before, "--before"),
            limit=asked.limit,
        )

    def _position(self, text: str | None, option: str) -> int | None:
        if text is None:
            return None
        id, colon, number = text.rpartition(":")
        if colon and id != self.store.id:
            raise AskedWrongly(f"{option} is a position of another store; this one's begin with {self.store.id}:")
        if not (number.isascii() and number.isdecimal() and len(number) < 20):
            raise AskedWrongly(f"{option} is a position such as 17 or {self.store.id}:17, not {text!r}")
        return int(number)

    def readers(self) -> list[dict[str, Any]]:
        from headwater.store.entry import iso

        last = self.store.next - 1
        return [
            {
                **each._asdict(),
                "lag": last - each.position,
                "created": iso(each.created),
                "committed": iso(each.committed),
            }
            for each in self.store.readers()
        ]

    def commit(self, name: str, position: str) -> None:
        from headwater.store.store import PositionGone

        try:
            self.store.commit(name, self._position(position, "the position") or 0)
        except (ValueError, PositionGone) as error:
            raise AskedWrongly(str(error)) from None

    def forget(self, name: str) -> bool:
        from headwater.store.store import UnknownReader

        try:
            self.store.forget(name)
        except UnknownReader:
            return False
        return True


def _time(text: str | None, option: str) -> int | None:
    """In microseconds."""
    from headwater.store.extract import moment

    if text is None:
        return None
    found: str | float = text
    with suppress(ValueError):
        found = int(text) if text.lstrip("+-").isdecimal() else float(text)
    time = moment(found, 0.0, NO_TIME)
    if time == NO_TIME:
        raise AskedWrongly(f"{option} is a time in ISO 8601 or a number since 1970, not {text!r}")
    return time


@contextmanager
def opened(command: str, folder: Path) -> Iterator[DiskStore]:
    """The store in a node's folder; a mistake ends the command with an explanation."""
    try:
        from headwater.disk.errors import StorageError
        from headwater.disk.lock import InUse
        from headwater.store.disk_store import DiskStore
    except ImportError as error:
        fail(command, f"a folder needs {error.name} (pip install 'headwater[store]'); a node that runs needs --url.")
    path = folder / MESSAGES
    try:
        if not path.is_dir():
            raise StorageError(
                f"there is no store in {folder}: it has no folder {MESSAGES}; is it a node's data folder?"
            )
        store = DiskStore(path, create=False, seal_in_background=False)
    except InUse:
        fail(command, f"a node uses {folder}: ask it, with --url.")
    except StorageError as error:
        fail(command, f"{error}.")
    try:
        yield store
    finally:
        store.close()
