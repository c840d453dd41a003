"""GET /v1/messages: what a query selects, as a page of JSON or as a stream."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Generator
from typing import Annotated, Final, Literal
from urllib.parse import urlencode

import orjson
from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, Field

from headwater.store.columns import NAMES
from headwater.store.query import Query as StoreQuery
from headwater.store.rest.asked import AfterAll, BeforeAll, Partial, Scope, ScopeHeader, asked_of
from headwater.store.rest.context import Context, TheCaller, TheContext, answering
from headwater.store.rest.description import StoredMessage
from headwater.store.rest.errors import described, unprocessable
from headwater.store.rest.formats import objects
from headwater.store.rest.gate import Caller
from headwater.store.rest.merged import EdgePage, merged
from headwater.store.rest.negotiation import ARROW, JSON, MEDIA_TYPES, takes_gzip, wanted_form
from headwater.store.rest.parameters import (
    LARGEST,
    LONGEST_HEADER,
    Conditions,
    OnlyKnown,
    for_caller,
    position_of,
)
from headwater.store.rest.rendering import Arrow, check_arrow, gzipped, parts, steps
from headwater.store.rest.streaming import Whole, streamed
from headwater.store.store import Store
from headwater.suggestion import unknown

PAGE_SIZE: Final = 8 << 20
"""Bytes of payloads on a page of JSON, unless a single message has more."""
USUAL: Final = 1000
"""Messages of a page for which no limit is given."""
LEAST_GZIPPED: Final = 1000
"""Bytes below which compressing is not worth while."""
VARY: Final = "Accept, Accept-Encoding, Authorization"

routes = APIRouter(tags=["messages"], dependencies=[OnlyKnown])


class MessagePage(BaseModel):
    store: str = Field(description="The store's id, which stands in front of positions elsewhere: `id:number`.")
    messages: list[StoredMessage] = Field(description="In the order of their positions.")
    next: int | None = Field(
        description="Go on by giving it as `after`; null: nothing was found, begin as this time. Callers that may read "
        "everything get the last position that was looked at, others the last that they may know of."
    )
    more: bool = Field(description="Whether there is more now: the page has reached `limit`, or 8 MiB of payloads.")


@routes.get(
    "/messages",
    response_class=Response,
    responses={
        200: {
            "model": MessagePage | EdgePage,
            "description": "A page of JSON; or all messages as a stream of lines of JSON, CSV or Arrow. Messages of "
            "several stores say of which they are.",
            "content": {
                "application/x-ndjson": {"schema": {"type": "string", "description": "A message on each line."}},
                "text/csv": {"schema": {"type": "string", "description": "With a line of names."}},
                "application/vnd.apache.arrow.stream": {"schema": {"type": "string", "format": "binary"}},
            },
            "headers": {"Link": {"description": "The next page, if there is one.", "schema": {"type": "string"}}},
        },
        307: {"description": "Another node has it all; `Location` says where."},
        **described(400, 401, 403, 406, 410, 422, 503),
    },
)
async def messages(
    request: Request,
    context: TheContext,
    caller: TheCaller,
    query: Conditions,
    after: AfterAll = None,
    before: BeforeAll = None,
    limit: Annotated[
        int | None,
        Query(ge=1, le=LARGEST, description="Most messages. A page of JSON has 1,000 without it; a stream has all."),
    ] = None,
    format: Annotated[
        Literal["json", "ndjson", "csv", "arrow"] | None, Query(description="Instead of `Accept`.")
    ] = None,
    compression: Annotated[
        Literal["none", "lz4", "zstd"], Query(description="Of the buffers inside an Arrow stream.")
    ] = "none",
    columns: Annotated[
        str | None, Query(max_length=300, description="Of an Arrow stream: those that are wanted, with commas.")
    ] = None,
    scope: Scope = None,
    partial: Partial = False,
    said_scope: ScopeHeader = None,
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
    accept_encoding: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> Response:
    """Messages in the order of their positions: of some topics, measured in some time, with some values.

    What a caller may not subscribe to is not there. JSON comes in pages: follow `next`, or the header `Link`. Lines of
    JSON, CSV and Arrow are streams without an end of their own; a stream that is cut off lacks its last chunk, and
    reading goes on with `after`.

    If the edge has several stores, a question that names none is about all that have such topics."""
    form = wanted_form(format, accept)
    several = await asked_of(request, context, scope or said_scope, query.filter, after, before)
    if isinstance(several, Response):
        return several
    if several is not None:
        limit = _limit_of(context, limit) if form == JSON else limit
        query = for_caller(query, caller)
        return await merged(request, context, caller, query, several, form, limit, partial, _headers(False))
    query = for_caller(_between(query, context.store, after, before), caller)
    gzip = takes_gzip(accept_encoding)
    if form == JSON:
        return await _page(request, context, caller, query, limit, gzip)
    if form == ARROW:
        check_arrow()
        gzip = False
    elif compression != "none":
        raise unprocessable("`compression` is for Arrow; others are compressed if `Accept-Encoding` asks for it")
    elif columns is not None:
        raise unprocessable("`columns` is for Arrow")
    arrow = Arrow(None if compression == "none" else compression, _columns(columns))
    made = functools.partial(steps, context.store, query._replace(limit=limit), form, gzip, arrow)
    with answering(context.store):
        return await streamed(
            context.answers, context.threads, request.scope, made, caller, MEDIA_TYPES[form], _headers(gzip)
        )


def _columns(said: str | None) -> tuple[str, ...]:
    if said is None:
        return NAMES
    wanted = tuple(dict.fromkeys(said.split(",")))
    for name in wanted:
        if name not in NAMES:
            raise unprocessable(f"`columns`: {unknown('column', name, NAMES)}")
    return wanted


def _between(query: StoreQuery, store: Store, after: str | None, before: str | None) -> StoreQuery:
    query = query._replace(
        after=None if after is None else position_of(after, store, "after"),
        before=None if before is None else position_of(before, store, "before"),
    )
    if query.after is not None and query.before is not None and query.before <= query.after:
        raise unprocessable("`before` is not greater than `after`")
    return query


def _headers(gzip: bool) -> dict[str, str]:
    headers = {"Vary": VARY, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return headers | {"Content-Encoding": "gzip"} if gzip else headers


# ---- a page of JSON ----------------------------------------------------------------------------------------------


class _Page:
    def __init__(self) -> None:
        self.rows: list[bytes] = []
        """JSON objects, some in each, with commas between them."""
        self.count = 0
        self.last: int | None = None
        self.more = False


async def _page(
    request: Request, context: Context, caller: Caller, query: StoreQuery, limit: int | None, gzip: bool
) -> Response:
    limit = _limit_of(context, limit)
    with contextlib.ExitStack() as stack:
        answer = stack.enter_context(context.answers.whole(request.scope))
        async with context.pages:
            await answer.room()
            body, headers = await _made(request, context, caller, query, limit, gzip)
            answer.hold(len(body))
        return Whole(stack.pop_all(), answer, body, headers, MEDIA_TYPES[JSON])


def _limit_of(context: Context, limit: int | None) -> int:
    most = context.limits.page
    limit = min(USUAL, most) if limit is None else limit
    if limit > most:
        raise unprocessable(f"`limit` is at most {most} for JSON; lines of JSON (format=ndjson) have no such limit")
    return limit


async def _made(
    request: Request, context: Context, caller: Caller, query: StoreQuery, limit: int, gzip: bool
) -> tuple[bytes, dict[str, str]]:
    store = context.store
    until = store.next if query.before is None else min(query.before, store.next)
    page = _Page()
    with answering(store):
        async with contextlib.aclosing(context.threads.each(_collect(store, query, limit, page))) as steps:
            async for _ in steps:
                if await request.is_disconnected():
                    break
    last = query.after if page.last is None else page.last
    if not page.more and caller.sees_all:
        last = max(until - 1, last or 0)
    head = orjson.dumps({"store": store.id})[:-1] + b',"messages":['
    tail = b"]," + orjson.dumps({"next": last, "more": page.more})[1:]
    body = head + b",".join(page.rows) + tail
    headers = _headers(gzip and len(body) >= LEAST_GZIPPED)
    link = f'<{_again(request, f"{store.id}:{last}")}>; rel="next"' if page.more else ""
    if link and len(link) <= LONGEST_HEADER:
        headers["Link"] = link
    if "Content-Encoding" in headers:
        body = await context.threads.run(gzipped, body)
    return body, headers


def _collect(store: Store, query: StoreQuery, limit: int, page: _Page) -> Generator[bool, None, None]:
    """Steps, in threads, that fill the page."""
    size = 0
    for part in parts(store, query._replace(limit=limit + 1)):
        if part is not None:
            size += len(part.payload.data)
            room = limit - page.count
            if not room or (page.count and size > PAGE_SIZE):
                page.more = True
                return
            kept = part.slice(0, room)
            page.rows.append(orjson.dumps(objects(kept))[1:-1])
            page.count += len(kept)
            page.last = int(kept.position[-1])
            if len(kept) < len(part):
                page.more = True
                return
        yield True


def _again(request: Request, after: str) -> str:
    """The same question, behind this position."""
    kept = [(name, value) for name, value in request.query_params.multi_items() if name != "after"]
    return f"{request.url.path}?{urlencode([*kept, ('after', after)])}"
