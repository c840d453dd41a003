"""Messages of several stores as one answer: a page of JSON with a cursor, or a stream of lines.

Each store is asked for a page at a time, our own by our threads and others by their REST, and what has come is merged
(`store/vector.py`). At most a page of each store is held, and counted while it is. A store that cannot be asked is an
error, which says which part is missing; who asks for a part gets it, and is told what it lacks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator
from typing import Any, Final
from urllib.parse import urlencode

import orjson
from fastapi import Request, Response
from pydantic import BaseModel, Field

from headwater.store.directory import Place
from headwater.store.entry import iso
from headwater.store.query import Query, judged
from headwater.store.rest.answers import Answer
from headwater.store.rest.asked import Several
from headwater.store.rest.context import Context, answering
from headwater.store.rest.description import StoredMessage
from headwater.store.rest.formats import objects
from headwater.store.rest.gate import Caller, Refused
from headwater.store.rest.negotiation import JSON, MEDIA_TYPES, NDJSON
from headwater.store.rest.others import Incomplete, Missing
from headwater.store.rest.rendering import parts
from headwater.store.rest.streaming import Cut, Stream, Whole
from headwater.store.vector import Merge, Row, Vector, written

PAGE: Final = 1000
"""Messages that a store is asked for at once."""
PAGE_SIZE: Final = 8 << 20
"""Bytes of a page, unless a single message has more."""
PIECE: Final = 200
PIECE_SIZE: Final = 1 << 20
"""Lines, and bytes of them, that a stream sends at once."""
ROW_OVERHEAD: Final = 1000
"""Bytes that a row takes in memory besides its payload, about."""
LACKING: Final = "Headwater-Missing"
"""A header of streams: the stores that are left out."""


class EdgeMessage(StoredMessage):
    store: str = Field(description="Of which store the position is.")


class MissingStore(BaseModel):
    store: str
    node: str
    url: str
    why: str


class EdgePage(BaseModel):
    """Messages of several stores of an edge."""

    messages: list[EdgeMessage] = Field(description="By arrival; of each store in the order of their positions.")
    next: str = Field(description="A cursor: go on by giving it as `after`.")
    more: bool = Field(description="Whether there is more now.")
    missing: list[MissingStore] | None = Field(default=None, description="What was left out; only with `partial`.")


class Merging:
    """Pages of the stores, merged as they come."""

    def __init__(self, context: Context, caller: Caller, query: Query, several: Several, may_lack: bool) -> None:
        self._context = context
        self._caller = caller
        self._query = query._replace(where=None)
        self._where = query.where
        """Asked of what is merged: what it remembers is of this answer, whichever stores that comes from."""
        self._several = several
        self._may_lack = may_lack
        self.missing: list[Missing] = []
        self.held = 0
        """Bytes of rows that are not taken yet, about."""
        self._places = {each.id: each for each in several.places}
        self._merge = Merge(self._places, several.directory.precedences(), several.after)
        self._after: Vector = dict(several.after)

    async def begin(self, size: int) -> None:
        """Every store is asked once. Raises Refused."""
        await self._fill(size)

    async def rows(self, size: int) -> AsyncGenerator[tuple[str, Row], None]:
        """`size`: messages of a page that a store is asked for. Raises Refused."""
        while True:
            await self._fill(size)
            while (found := self._merge.take()) is not None:
                self.held -= _size_of(found[1])
                if self._where is None or self._where.holds_for(found[1]):
                    yield found
            if self._merge.is_over:
                return

    async def has_more(self) -> bool:
        await self._fill(1)
        return not self._merge.is_over

    @property
    def cursor(self) -> str:
        """Stores that could not be asked stay where they were."""
        lacking = {each.store for each in self.missing}
        vector = {id: at for id, at in self._merge.vector.items() if id not in lacking}
        return written({**self._several.after, **self._several.passed, **vector})

    async def _fill(self, size: int) -> None:
        lacking = [self._places[id] for id in self._merge.lacking()]
        found = await asyncio.gather(*(self._page(each, size) for each in lacking), return_exceptions=True)
        failed = [each for each in found if isinstance(each, BaseException)]
        for error in failed:
            if not isinstance(error, Incomplete):
                raise error
        self.missing += [each for error in failed if isinstance(error, Incomplete) for each in error.missing]
        if self.missing and not self._may_lack:
            raise Incomplete(self.missing)
        for place, page in zip(lacking, found, strict=True):
            rows, end = ([], 0) if isinstance(page, BaseException) else page
            self._give(place.id, rows, end)

    def _give(self, store: str, rows: list[Row], end: int | None) -> None:
        if rows:
            self._after[store] = rows[-1]["position"]
        self.held += sum(map(_size_of, rows))
        self._merge.give(store, rows, end)

    async def _page(self, place: Place, size: int) -> tuple[list[Row], int | None]:
        """What comes next of a store; and where it ends, if there is no more."""
        after, before = self._after.get(place.id), self._several.before.get(place.id)
        if before is not None and after is not None and before <= after + 1:
            return [], after
        query = self._query._replace(after=after, before=before)
        if place.id == self._context.own:
            return await self._own_page(query, size)
        return await self._page_of_other(place, query, size)

    async def _own_page(self, query: Query, size: int) -> tuple[list[Row], int | None]:
        context = self._context
        until = context.store.next if query.before is None else min(query.before, context.store.next)
        rows: list[Row] = []
        ended = True
        with answering(context.store):
            async with contextlib.aclosing(context.threads.each(_rows(context, query, size, rows))) as steps:
                async for is_full in steps:
                    ended = not is_full
        if self._where is not None:
            rows = orjson.loads(orjson.dumps(rows))  # properties are text until then
        end = max(until - 1, query.after or 0) if self._caller.sees_all else 0
        return rows, end if ended else None

    async def _page_of_other(self, place: Place, query: Query, size: int) -> tuple[list[Row], int | None]:
        """The other node answers us, and our caller sees of that what it may see here."""
        said = {"topic": query.filter, "low": query.low, "high": query.high, "limit": size, "before": query.before}
        said["start"] = None if query.start is None else iso(query.start)
        said["end"] = None if query.end is None else iso(query.end)
        after = query.after

        def question(reader: Any) -> tuple[list[Row], int | None, int]:
            page = reader.page(None if after is None else f"{place.id}:{after}", **said)
            if page["store"] != place.id:
                raise Refused(503, "unavailable", f"the store {page['store']} answers there")
            last = page["messages"][-1]["position"] if page["messages"] else after or 0
            return self._visible(page["messages"]), None if page["more"] else page["next"] or 0, last

        try:
            rows, end, last = await self._context.others.ask(place, question)
        except (KeyError, TypeError):
            raise Incomplete([Missing(place.id, place.node, place.url, "something else answers there")]) from None
        if end is None and not rows:  # all of it is for others
            return await self._page(place, size) if self._went_on(place, last) else ([], 0)
        return rows, end if end is None or self._caller.sees_all else 0

    def _went_on(self, place: Place, last: int) -> bool:
        before = self._after.get(place.id, -1)
        self._after[place.id] = last
        return last > before

    def _visible(self, rows: list[Row]) -> list[Row]:
        """In a thread."""
        if self._query.may_read is None:
            return rows
        topics = sorted({row["topic"] for row in rows})
        allowed = dict(zip(topics, judged(self._query.may_read, topics), strict=True))
        return [row for row in rows if allowed[row["topic"]]]


def _rows(context: Context, query: Query, limit: int, rows: list[Row]) -> Generator[bool, None, None]:
    """Steps, in threads, that fill a page of our own; whether it is full."""
    size = 0
    for part in parts(context.store, query._replace(limit=limit + 1)):
        if part is not None:
            size += len(part.payload.data)
            found = objects(part.slice(0, limit - len(rows)))
            if rows and size > PAGE_SIZE:
                found = []
            rows.extend(found)
            if len(found) < len(part):
                yield True
                return
        yield False


def _size_of(row: Row) -> int:
    return len(row.get("payload") or "") + len(row.get("payload_base64") or "") + ROW_OVERHEAD


def _as_json(store: str, row: Row) -> bytes:
    return orjson.dumps({"store": store, **row})


# ---- answers -----------------------------------------------------------------------------------------------------


async def merged(
    request: Request,
    context: Context,
    caller: Caller,
    query: Query,
    several: Several,
    form: str,
    limit: int | None,
    may_lack: bool,
    headers: dict[str, str],
) -> Response:
    """`limit` is set for a page of JSON. Raises Refused."""
    merging = Merging(context, caller, query, several, may_lack)
    if form == JSON:
        assert limit is not None
        return await _page(request, context, merging, limit, headers)
    if form == NDJSON:
        return await _stream(request, context, caller, merging, limit, headers)
    raise Refused(
        *(406, "not_acceptable", "this is in several stores, and can be had as JSON or as lines of JSON (ndjson)"),
        stores=[each.id for each in several.places],
    )


async def _page(request: Request, context: Context, merging: Merging, limit: int, headers: dict[str, str]) -> Response:
    with contextlib.ExitStack() as stack:
        answer = stack.enter_context(context.answers.whole(request.scope))
        async with context.others.merges:
            await answer.room()
            lines, more = await _collected(merging, limit, answer)
        head = {"next": merging.cursor, "more": more}
        if merging.missing:
            head["missing"] = [each._asdict() for each in merging.missing]
        body = b'{"messages":[' + b",".join(lines) + b"]," + orjson.dumps(head)[1:]
        answer.hold(len(body))
        if more:
            headers = {**headers, "Link": f'<{_again(request, merging.cursor)}>; rel="next"'}
        return Whole(stack.pop_all(), answer, body, headers, MEDIA_TYPES[JSON])


async def _collected(merging: Merging, limit: int, answer: Answer) -> tuple[list[bytes], bool]:
    lines: list[bytes] = []
    size = 0
    async with contextlib.aclosing(merging.rows(min(limit, PAGE))) as rows:
        async for store, row in rows:
            lines.append(_as_json(store, row))
            size += len(lines[-1])
            if len(lines) == limit or size > PAGE_SIZE:
                break
            answer.hold(size + merging.held)
    return lines, await merging.has_more()


async def _stream(
    request: Request, context: Context, caller: Caller, merging: Merging, limit: int | None, headers: dict[str, str]
) -> Response:
    """Begins when all stores have answered once: what they say can still be an answer of its own."""
    with contextlib.ExitStack() as stack:
        answer = stack.enter_context(context.answers.stream(request.scope))
        await answer.room()
        await merging.begin(min(limit or PAGE, PAGE))
        if merging.missing:
            headers = {**headers, LACKING: ",".join(each.store for each in merging.missing)}
        lines = _lines(context, caller, merging, limit, answer)
        return Stream(stack.pop_all(), lines, headers, MEDIA_TYPES[NDJSON])


async def _lines(
    context: Context, caller: Caller, merging: Merging, limit: int | None, answer: Answer
) -> AsyncGenerator[bytes, None]:
    """Some in each piece. What fails now cuts the answer off, also where a part was asked for: its head is sent."""
    lines: list[bytes] = []
    count = size = 0
    known = len(merging.missing)
    try:
        async with contextlib.aclosing(merging.rows(min(limit or PAGE, PAGE))) as rows:
            async for store, row in rows:
                _check_whole(merging, known)
                lines.append(_as_json(store, row) + b"\n")
                size += len(lines[-1])
                count += 1
                if len(lines) == PIECE or size > PIECE_SIZE or count == limit:
                    answer.hold(size + merging.held)
                    yield b"".join(lines)
                    lines, size = [], 0
                    await _may_go_on(context, caller, answer)
                if count == limit:
                    return
    except Refused as refused:
        raise Cut(refused.detail) from None
    _check_whole(merging, known)
    yield b"".join(lines)


def _check_whole(merging: Merging, known: int) -> None:
    if len(merging.missing) > known:
        raise Cut(f"the store {merging.missing[-1].store} does not answer any more")


async def _may_go_on(context: Context, caller: Caller, answer: Answer) -> None:
    answer.moved()
    if not caller.is_current():
        raise Cut("the caller's rights have changed")
    if context.threads.stopping:
        raise Cut("the node stops")
    await answer.room()


def _again(request: Request, after: str) -> str:
    kept = [(name, value) for name, value in request.query_params.multi_items() if name != "after"]
    return f"{request.url.path}?{urlencode([*kept, ('after', after)])}"
