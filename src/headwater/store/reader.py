"""A client for REST over a store: Arrow by position. What Spark's executors import, so it needs pyarrow and no more.

    reader = StoreReader("http://localhost:8080", token="…")
    for batch in reader.read(after=reader.reader("lakehouse")["position"]):
        …
        reader.commit("lakehouse", batch["position"][-1].as_py())

A reader holds no connection between calls and can be pickled. A connection that is cut is made again, and reading goes
on behind the last position that came: nothing is missing and nothing comes twice. What cannot be had is said by one of
three errors: `Gone`, `Refused`, `Unreachable`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import quote

import pyarrow as pa

from headwater.store.arrow_schema import PLAIN
from headwater.store.asking import (
    CUT,
    Asker,
    Gone,
    Position,
    Refused,
    StoreError,
    Tries,
    Unreachable,
    behind,
    events,
    lines,
)
from headwater.store.directory import Directory, directory_of
from headwater.store.vector import Vector, is_vector, vector_of, written

if TYPE_CHECKING:
    from headwater.store.direct import Direct

FORBIDDEN: Final = 403
LONGEST_SILENCE: Final = 60.0
"""Seconds without a sign of life, of which a tail gives one every 15."""
ERASING: Final = 600.0
"""Seconds for which an answer to `erase` is waited for: files are merged meanwhile."""
Time = datetime | str | int | float
Scope = Literal["store", "edge"] | None


class Extent(NamedTuple):
    """What a store has for somebody: `first` ≤ position < `next`. `is_whole`: for who may read everything, so that no
    position is left out."""

    store: str
    first: int
    next: int
    is_whole: bool = True


class StoreReader(Asker):
    """What a store has and is told, by the REST of its node. With `direct`, `read` gets what is in object storage from
    there, and only the rest from the node; everything else asks the node, which has both."""

    def __init__(self, url: str, *, direct: Direct | None = None, **asker: Any) -> None:
        super().__init__(url, **asker)
        self.direct = direct

    # ---- messages ----------------------------------------------------------------------------------------------

    def read(
        self,
        after: Position | None = None,
        before: Position | None = None,
        topic: str | None = None,
        start: Time | None = None,
        end: Time | None = None,
        low: float | None = None,
        high: float | None = None,
        limit: int | None = None,
        *,
        dictionaries: bool = True,
        compression: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Messages with `after` < position < `before`, of topics that match, measured from `start` to before `end`,
        with values from `low` to `high`. Without `dictionaries`, topics and publishers are plain strings. Of
        `columns`, only these come, and `position` before them."""
        asked = _asked(after, before, topic, start, end, low, high, limit)
        asked["format"] = "arrow"
        asked["compression"] = compression
        asked["columns"] = None if columns is None else ",".join(dict.fromkeys(["position", *columns]))
        if self.direct is not None:
            for batch in self.direct.read(self, asked):
                yield batch if dictionaries else _plain(batch)
            after = asked["after"]
            if asked["limit"] == 0 or self.direct.is_done(asked):
                return

        def end_of(batch: pa.RecordBatch) -> tuple[Position, int]:
            return behind(after, batch.column(0)[-1].as_py()), batch.num_rows

        for batch in self._resumed(asked, StoreReader._batches, end_of):
            yield batch if dictionaries else _plain(batch)

    def messages(
        self,
        after: Position | None = None,
        before: Position | None = None,
        topic: str | None = None,
        start: Time | None = None,
        end: Time | None = None,
        low: float | None = None,
        high: float | None = None,
        limit: int | None = None,
        *,
        scope: Scope = None,
    ) -> Iterator[dict[str, Any]]:
        """The same, one by one, as the node writes them in JSON: for few. With the scope "edge", of all stores of the
        node's edge: if several have such messages, each says its `store`, and `after` and `before` may be cursors
        (`vector.py`)."""
        asked = _asked(after, before, topic, start, end, low, high, limit)
        asked |= {"format": "ndjson", "scope": scope}
        vector: Vector = vector_of(after) if isinstance(after, str) and is_vector(after) else {}

        def end_of(message: dict[str, Any]) -> tuple[Position, int]:
            if "store" not in message:
                return behind(after, message["position"]), 1
            vector[message["store"]] = message["position"]
            return written(vector), 1

        yield from self._resumed(asked, StoreReader._objects, end_of)

    def page(
        self,
        after: Position | None = None,
        before: Position | None = None,
        topic: str | None = None,
        start: Time | None = None,
        end: Time | None = None,
        low: float | None = None,
        high: float | None = None,
        limit: int | None = None,
    ) -> dict[str, Any]:
        """A page of JSON: `messages`, `next` and `more`."""
        asked = _asked(after, before, topic, start, end, low, high, limit)
        return self._json("GET", "/v1/messages", asked)

    def tail(self, topic: str | None = None, after: Position | None = None) -> Iterator[dict[str, Any]]:
        """Messages as they come, from behind a position or from now on, without end. Raises Gone if retention overtakes
        it."""
        asked: dict[str, Any] = {"topic": topic, "after": after}
        tries = Tries(self.retries)
        while True:
            try:
                with self._opened("GET", "/v1/tail", asked, least=LONGEST_SILENCE) as answer:
                    for kind, data in events(answer, tries.progress):
                        if kind == "gone":
                            raise Gone("retention has overtaken the tail", data["first"], data["next"], data["lost"])
                        asked["after"] = behind(after, data["position"])
                        yield data
                raise ConnectionError("the tail has ended")
            except CUT as error:
                tries.failed(error, self.url)

    def latest(self, topic: str) -> dict[str, Any] | None:
        """The last message of a topic; None if there is none that the caller may read."""
        return self._found("GET", f"/v1/topics/{quote(topic, safe='')}/latest")

    def topics(self, filter: str | None = None, *, scope: Scope = None) -> Iterator[dict[str, Any]]:
        """Topics that match, with how many messages there are of each, the first and the last. With the scope "edge",
        those of all stores of the node's edge, each with its `store`."""
        after: str | None = None
        while True:
            page = self.topics_page(filter, after, scope=scope)
            yield from page["topics"]
            after = page["next"]
            if after is None:
                return

    def topics_page(
        self, filter: str | None = None, after: str | None = None, limit: int | None = None, *, scope: Scope = None
    ) -> dict[str, Any]:
        """A page of them: `topics`, and `next`, with which to go on."""
        asked = {"filter": filter, "after": after, "limit": limit, "scope": scope}
        return self._json("GET", "/v1/topics", asked)

    def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> int | None:
        """Returns when the message is on disk, with its position; None: topics like this are not stored. It is tried
        once: a second try could publish it twice."""
        asked = {"qos": qos, "retain": "true" if retain else "false"}
        answer: dict[str, Any] = self._once("POST", f"/v1/topics/{quote(topic, safe='')}", asked, payload)
        position: int | None = answer["position"]
        return position

    # ---- the store and its readers -----------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """What the store holds: `id`, `first`, `next` and more."""
        return self._json("GET", "/v1/store")

    def directory(self) -> Directory | None:
        """The stores of the node's edge; None if it knows of its own only. Raises Unreachable."""
        found = self._found("GET", "/v1/edge")
        try:
            return None if found is None else directory_of(found)
        except ValueError as error:
            raise Unreachable(f"{self.url}: {error}") from error

    def extent(self, filters: Sequence[str] = ("#",), *, may_be_whole: bool = True) -> Extent:
        """What there is for us: who may not read everything is not told of the whole store, but of the topics that it
        may read, of which those that match are looked at."""
        try:
            if may_be_whole:
                status = self.status()
                return Extent(status["id"], status["first"], status["next"])
        except Refused as refused:
            if refused.status != FORBIDDEN:
                raise
        topics = [topic for filter in filters for topic in self.topics(filter)]
        first = min((topic["first"] for topic in topics), default=1)
        last = max((topic["last"] for topic in topics), default=0)
        return Extent(self.store_id(), first, last + 1, False)

    def clock(self) -> tuple[datetime, int]:
        """A moment, and a position: every message that arrived before the moment has a position before that one and
        can be read, and those to come arrive at the moment or later."""
        found = self._json("GET", "/v1/store/clock")
        return datetime.fromisoformat(found["clock"]), found["next"]

    def position_at(self, moment: datetime) -> int:
        """The first position of a message that arrived at the moment or later; the next that will be given, if there
        is none yet. Arrivals never go back, so it is looked for in halves."""
        status = self.status()
        low: int = status["first"]
        high: int = status["next"]
        while low < high:
            middle = (low + high) // 2
            [found] = self.messages(after=middle - 1, before=middle + 1, limit=1)
            if datetime.fromisoformat(found["arrival"]) < moment:
                low = middle + 1
            else:
                high = middle
        return high

    def store_id(self) -> str:
        """Of which store the positions are; every caller may know."""
        id: str = self._json("GET", "/v1/topics", {"limit": 1})["store"]
        return id

    def readers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._json("GET", "/v1/readers")["readers"]
        return found

    def reader(self, name: str) -> dict[str, Any] | None:
        """How far a reader has come: `position`, `lag`, `lost`; None if there is none of this name."""
        return self._found("GET", f"/v1/readers/{quote(name, safe='')}")

    def commit(self, name: str, position: Position) -> dict[str, Any]:
        """The reader has dealt with all up to this position; on disk when this returns. Raises Gone if messages before
        it are not left."""
        body = json.dumps({"position": position}).encode()
        return self._json("PUT", f"/v1/readers/{quote(name, safe='')}", body=body)

    def forget(self, name: str) -> bool:
        """False: there was none of this name."""
        try:
            self._call("DELETE", f"/v1/readers/{quote(name, safe='')}")
        except Refused as refused:
            if refused.status != 404:
                raise
            return False
        return True

    def erase(
        self,
        topic: str | None = None,
        positions: str | None = None,
        *,
        after: Position | None = None,
        before: Position | None = None,
    ) -> tuple[int, int, bool]:
        """Erase a part of what is asked for, for good; how many messages, the position up to which was looked, and
        whether there is more behind it. Needs the token of `rest.token`."""
        asked = {"topic": topic, "positions": positions, "after": after, "before": before}
        tries = Tries(self.retries)
        while True:
            try:
                with self._opened("DELETE", "/v1/messages", asked, least=ERASING) as answer:
                    found = json.loads(answer.read())
                return found["erased"], found["next"], found["more"]
            except CUT as error:
                tries.failed(error, self.url)

    def erased(self, after: int = 0) -> Iterator[tuple[int, int]]:
        """Behind a position: the ranges that were erased, ends included."""
        while True:
            found = self._json("GET", "/v1/erased", {"after": after or None})
            for first, after in found["erased"]:
                yield first, after
            if not found["more"]:
                return

    # ---- answers -----------------------------------------------------------------------------------------------

    def _objects(self, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
        with self._opened("GET", "/v1/messages", asked) as answer:
            for line in lines(answer):
                yield json.loads(line)

    def _batches(self, asked: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        with self._opened("GET", "/v1/messages", asked) as answer, pa.ipc.open_stream(answer) as stream:
            for batch in stream:
                if batch.num_rows:
                    yield batch


def _asked(
    after: Position | None,
    before: Position | None,
    topic: str | None,
    start: Time | None,
    end: Time | None,
    low: float | None,
    high: float | None,
    limit: int | None,
) -> dict[str, Any]:
    asked = {"after": after, "before": before, "topic": topic, "from": _time(start), "to": _time(end)}
    return asked | {"min": low, "max": high, "limit": limit}


def _time(moment: Time | None) -> str | int | float | None:
    return moment.isoformat() if isinstance(moment, datetime) else moment


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([PLAIN.field(name) for name in batch.schema.names]))


__all__ = ["Extent", "Gone", "Position", "Refused", "StoreError", "StoreReader", "Unreachable"]
