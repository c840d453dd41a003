"""GET /v1/tail: messages as they come, as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Generator
from typing import Annotated

import orjson
from fastapi import APIRouter, Header, Response
from starlette.types import Receive, Scope, Send

from headwater.store.query import Query
from headwater.store.rest.answers import Answer
from headwater.store.rest.context import Context, TheCaller, TheContext
from headwater.store.rest.errors import described, gone, unprocessable
from headwater.store.rest.formats import objects
from headwater.store.rest.gate import Caller
from headwater.store.rest.parameters import After, Conditions, OnlyKnown, for_caller, position_of
from headwater.store.rest.rendering import Note, parts
from headwater.store.rest.streaming import Streamed
from headwater.store.rest.tails import PAUSE, QUIET
from headwater.store.store import PositionGone, Store

EVENTS = "text/event-stream"

routes = APIRouter(tags=["messages"], dependencies=[OnlyKnown])


@routes.get(
    "/tail",
    response_class=Response,
    responses={
        200: {
            "description": "Events: `id` is the message's position, `data` the message as JSON. An event named `gone` "
            "says which messages retention removed before this tail came to them.",
            "content": {EVENTS: {"schema": {"type": "string"}}},
        },
        **described(401, 403, 410, 422, 429, 503),
    },
)
async def tail(
    context: TheContext,
    caller: TheCaller,
    query: Conditions,
    after: After = None,
    last_event_id: Annotated[
        str | None, Header(max_length=220, description="Where an interrupted tail goes on; it counts before `after`.")
    ] = None,
) -> Response:
    """Messages from now on, or from behind a position on, as they come. A tail never ends by itself."""
    store = context.store
    position = store.next - 1
    if last_event_id is not None and last_event_id.strip():
        position = _resumed(last_event_id.strip(), store)
    elif after is not None:
        position = position_of(after, store, "after")
    if position + 1 < store.first:
        raise gone(PositionGone(position + 1, store.first), store)
    return EventStream(context, caller, for_caller(query, caller), position)


def _resumed(text: str, store: Store) -> int:
    number = text.rpartition(":")[2]
    if not (number.isascii() and number.isdigit() and len(number) < 20):
        raise unprocessable("Last-Event-ID is no position")
    return position_of(text, store, "Last-Event-ID")


class EventStream(Streamed):
    def __init__(self, context: Context, caller: Caller, query: Query, position: int) -> None:
        self._context = context
        self._caller = caller
        self._query = query
        self._position = position
        self._more = asyncio.Event()
        self._answer: Answer
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff"}
        super().__init__(self._events(), headers=headers, media_type=EVENTS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = self._context  # before the answer begins: there may be too many
        with context.tails.told(self._more), context.answers.stream(scope) as self._answer:
            await super().__call__(scope, receive, send)

    async def _events(self) -> AsyncGenerator[bytes, None]:
        context = self._context
        sent = time.monotonic()
        yield b"retry: 1000\n\n"
        while not context.threads.stopping and self._caller.is_current():
            self._more.clear()
            until = context.store.next
            if self._position + 1 < until:
                async with contextlib.aclosing(self._up_to(until)) as new:
                    async for events in new:
                        if events:
                            self._answer.hold(2 * len(events))
                            yield events
                            sent = time.monotonic()
                self._answer.note(0)
                self._answer.hold(0)
                await asyncio.sleep(PAUSE)
            else:
                await _wait(self._more, sent + QUIET - time.monotonic())
            if time.monotonic() - sent >= QUIET:
                yield b": still here\n\n"
                sent = time.monotonic()

    async def _up_to(self, until: int) -> AsyncGenerator[bytes, None]:
        store = self._context.store
        query = self._query._replace(after=self._position, before=until)
        try:
            async with contextlib.aclosing(
                self._context.threads.each(_events(store, query, self._answer.note), self._answer)
            ) as steps:
                async for events in steps:
                    yield events
        except PositionGone as error:
            yield b"event: gone\ndata: " + orjson.dumps(gone(error, store).more) + b"\n\n"
            self._position = store.first - 1
        else:
            self._position = until - 1


async def _wait(more: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(more.wait(), max(0.0, seconds))


def _events(store: Store, query: Query, note: Note) -> Generator[bytes, None, None]:
    """In a thread."""
    for part in parts(store, query, note=note):
        rows = [] if part is None else objects(part)
        yield b"".join(
            [f"id: {store.id}:{row['position']}\ndata: ".encode() + orjson.dumps(row) + b"\n\n" for row in rows]
        )
