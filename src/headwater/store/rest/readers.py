"""Named readers, how far they have come; and the store as a whole. For callers that may read everything."""

from __future__ import annotations

from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headwater.store.entry import iso
from headwater.store.readers import GOOD_NAME
from headwater.store.rest.context import TheContext, TheOperator
from headwater.store.rest.errors import described, unprocessable
from headwater.store.rest.gate import Refused
from headwater.store.rest.parameters import LARGEST, OnlyKnown, position_of
from headwater.store.rest.topics import read_body
from headwater.store.store import Reader, Store, UnknownReader

LONGEST_ORDER: Final = 4096

routes = APIRouter(tags=["readers"], dependencies=[OnlyKnown])

Name = Annotated[str, Path(max_length=300, description="Letters, digits and . _ : @ -", examples=["lakehouse"])]


class ReaderView(BaseModel):
    name: str
    store: str
    position: int = Field(description="The last that it has committed; 0: none.")
    lag: int = Field(description="Messages behind that position.")
    lost: int = Field(description="Messages that retention removed before the reader came to them.")
    created: str = Field(description="ISO 8601, UTC.")
    committed: str = Field(description="When it has committed last.")


class Readers(BaseModel):
    store: str
    readers: list[ReaderView]


class Commit(BaseModel):
    """How far a reader has come."""

    model_config = ConfigDict(extra="forbid", strict=True)

    position: (
        Annotated[int, Field(ge=0, le=LARGEST)]
        | Annotated[str, Field(pattern=r"^(.{1,200}:)?[0-9]{1,19}$", description="`id:number`")]
    ) = Field(description="The last position that it has dealt with; all up to it need not be kept for it.")


class HistoryView(BaseModel):
    url: str = Field(description="Where its objects are, below a folder of the store's id. Readers need credentials.")
    first: int = Field(description="The first position in object storage.")
    end: int = Field(description="Behind the last one; 0: it is not known yet.")
    objects: int
    rows: int
    size: int = Field(description="Bytes in object storage.")
    waiting: int = Field(description="Blocks that are old enough and have not gone there.")
    failures: int = Field(description="Tries that failed since the node started.")
    failure: str = Field(description="What object storage said last; empty: all is well.")
    failed_since: float | None = Field(description="Seconds since 1970.")
    moved_at: float | None = Field(description="When a block went there last; seconds since 1970.")


class StoreView(BaseModel):
    id: str
    first: int = Field(description="The first position that is left.")
    next: int = Field(description="The position that the next message will have.")
    disk_first: int = Field(description="The first position on the node's disk; what is before is in object storage.")
    messages: int
    topics: int
    size: int = Field(description="Bytes on disk.")
    payload_size: int = Field(description="Bytes of payloads.")
    blocks: int
    unsealed: int = Field(description="Messages that are in no block yet.")
    readers: int
    tails: int = Field(description="Live tails that are going on.")
    history: HistoryView | None = Field(description="What is in object storage; null: nothing goes there.")


@routes.head("/store", include_in_schema=False)
@routes.get("/store", tags=["store"], responses=described(401, 403, 422, 503))
async def store_view(context: TheContext, caller: TheOperator) -> StoreView:
    """What the store holds."""
    store = context.store
    found = await context.ask(store.statistics)
    readers = len(store.readers())
    history = await context.gate.history()
    return StoreView(
        **found._asdict(),
        disk_first=store.disk_first,
        messages=found.next - found.first,
        readers=readers,
        tails=len(context.tails),
        history=None if history is None else HistoryView(**history),
    )


class Clock(BaseModel):
    store: str
    clock: str = Field(description="Every message that arrived before this is there; those to come arrive later.")
    next: int = Field(description="The position that the next message will have, at the least.")


@routes.get("/store/clock", tags=["store"], responses=described(401, 403, 422, 503))
async def store_clock(context: TheContext, caller: TheOperator) -> Clock:
    """How far time has come in this store: what was before is settled. Who makes windows of time asks this."""
    moment = await context.gate.settled()
    return Clock(store=context.store.id, clock=iso(moment), next=context.store.next)


@routes.get("/readers", responses=described(401, 403, 422, 503))
async def list_readers(context: TheContext, caller: TheOperator) -> Readers:
    """All named readers, in the order of their names."""
    store = context.store
    return Readers(store=store.id, readers=[_view(each, store) for each in store.readers()])


@routes.get("/readers/{name}", responses=described(401, 403, 404, 422, 503))
async def get_reader(context: TheContext, caller: TheOperator, name: Name) -> ReaderView:
    try:
        return _view(context.store.reader(name), context.store)
    except UnknownReader:
        raise _unknown() from None


@routes.put(
    "/readers/{name}",
    responses=described(401, 403, 409, 410, 413, 422, 503),
    openapi_extra={
        "requestBody": {"required": True, "content": {"application/json": {"schema": Commit.model_json_schema()}}}
    },
)
async def commit(request: Request, context: TheContext, caller: TheOperator, name: Name) -> ReaderView:
    """Commit a position: it is on disk when this is answered. A reader comes into being with its first commit, and
    may go back as far as messages are left (410)."""
    store = context.store
    if not GOOD_NAME.fullmatch(name):
        raise unprocessable(
            "a reader's name has 1 to 128 letters, digits and . _ : @ -, and begins with one of the first"
        )
    position = _position(await read_body(request, LONGEST_ORDER), store)
    if position >= store.next:
        raise Refused(409, "conflict", f"position {position} has not been given yet; the last one is {store.next - 1}")
    try:
        return _view(await context.ask(store.commit, name, position), store)
    except ValueError as error:
        raise Refused(409, "conflict", str(error)) from None


@routes.delete("/readers/{name}", status_code=204, response_model=None, responses=described(401, 403, 404, 422, 503))
async def forget(context: TheContext, caller: TheOperator, name: Name) -> None:
    """Forget a reader: it holds back retention no more."""
    try:
        await context.ask(context.store.forget, name)
    except UnknownReader:
        raise _unknown() from None


def _position(body: bytes, store: Store) -> int:
    try:
        order = Commit.model_validate(orjson.loads(body))
    except orjson.JSONDecodeError:
        raise unprocessable('the body is no JSON; it is written {"position": 123}') from None
    except ValidationError as error:
        raise unprocessable("; ".join(sorted({each["msg"] for each in error.errors()}))) from None
    found = order.position
    return position_of(found, store, "position") if isinstance(found, str) else found


def _view(reader: Reader, store: Store) -> ReaderView:
    shown: dict[str, Any] = reader._asdict() | {"created": iso(reader.created), "committed": iso(reader.committed)}
    return ReaderView(**shown, store=store.id, lag=max(0, store.next - 1 - reader.position))


def _unknown() -> Refused:
    return Refused(404, "not_found", "there is no reader of this name")
