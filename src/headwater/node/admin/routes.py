"""The paths below /v1. They run in the API's own thread; what is the broker's is asked of its loop (reach.py)."""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from headwater.disk.errors import StorageError
from headwater.message import NEVER, Message
from headwater.node.access.limits import Ban
from headwater.node.admin import views
from headwater.node.admin.figures import Figures
from headwater.node.admin.reach import Reach
from headwater.node.admin.token import scheme
from headwater.node.advice.document import Advice
from headwater.node.bridge.view import BridgeView
from headwater.node.broker import Broker
from headwater.node.group_view import GroupView
from headwater.node.statistics import Statistics
from headwater.node.tracing import TooManyTraces, Trace, Tracing
from headwater.routing.topics import InvalidTopicFilter, check_filter
from headwater.wire.reasons import ADMINISTRATIVE_ACTION

MOST_GROUPS = 100
NDJSON = "application/x-ndjson"


async def reach_of(request: Request) -> Reach:
    found: Reach = request.app.state.reach
    return found


async def pages_of(request: Request) -> views.Pages:
    found: views.Pages = request.app.state.pages
    return found


async def figures_of(request: Request) -> Figures:
    found: Figures = request.app.state.figures
    return found


async def on_disk(reach: Reach) -> None:
    """Whoever changes what outlives the broker is answered as clients are: when it is there."""
    try:
        await reach.wait(reach.broker.committed())
    except StorageError as error:
        raise HTTPException(503, str(error)) from error


NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"description": "There is no such thing."}}
DISK_FAILED: dict[int | str, dict[str, Any]] = {
    503: {"description": "The disk has failed: it was done, and may not outlive the broker, which stops."}
}
routes = APIRouter(
    prefix="/v1",
    dependencies=[Depends(scheme)],  # for the description: the token was asked for before (token.py)
    responses={
        400: {"description": "The request cannot be used; `detail` says why."},
        401: {"description": "The token is missing or wrong."},
    },
)

TheReach = Annotated[Reach, Depends(reach_of)]
TheFigures = Annotated[Figures, Depends(figures_of)]
ThePages = Annotated[views.Pages, Depends(pages_of)]
Limit = Annotated[int, Query(ge=1, le=views.MOST_ITEMS, description="Most items on the page.")]
Offset = Annotated[int, Query(ge=0, le=1 << 31, description="`next` of the page before.")]
ClientId = Annotated[str, Path(min_length=1, max_length=65535)]
Topic = Annotated[str, Query(min_length=1, max_length=65535, description="A topic name.")]


def as_json(page: bytes) -> Response:
    """FastAPI would check what we have just made, which takes three times as long."""
    return Response(page, media_type="application/json")


@routes.get("/statistics")
async def statistics(figures: TheFigures) -> Statistics:
    """What the broker holds and has done."""
    return await figures.statistics()


# ---- clients and sessions ----------------------------------------------------------------------------------------


@routes.get("/clients", response_model=views.Page[views.ClientView])
async def list_clients(pages: ThePages, offset: Offset = 0, limit: Limit = 100) -> Response:
    """Clients that are connected. Who comes or goes while pages are turned may be missed or seen twice."""
    return as_json(await pages.clients(offset, limit))


@routes.get("/clients/{client_id:path}", responses=NOT_FOUND)
async def get_client(reach: TheReach, client_id: ClientId) -> views.ClientView:
    client = await reach.ask(lambda broker: views.find_client(broker.server, client_id))
    if client is None:
        raise HTTPException(404, "this client is not connected")
    return views.ClientView(**client)


class Order(BaseModel):
    """What callers send: exactly as described, and nothing else."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Kick(Order):
    client_id: str = Field(min_length=1, max_length=65535)
    reason: int = Field(
        default=ADMINISTRATIVE_ACTION, ge=0x80, le=0xFF, description="The reason code that a 5.0 client is told."
    )
    server_reference: str | None = Field(default=None, max_length=65535, description="Where it is to go instead.")


@routes.post("/kick", status_code=204, response_model=None, responses=NOT_FOUND)
async def kick(reach: TheReach, order: Kick) -> None:
    """End a client's connection; its session stays."""
    if not await reach.ask(lambda broker: broker.disconnect(order.client_id, order.reason, order.server_reference)):
        raise HTTPException(404, "this client is not connected")


BanKind = Literal["address", "user", "client"]


class BanOrder(Order):
    kind: BanKind
    value: str = Field(min_length=1, max_length=65535, description="An IP address, a user name or a client id.")
    seconds: float | None = Field(default=None, gt=0, le=0xFFFFFFFF, description="Without it, until it is lifted.")
    reason: str = Field(default="by the admin API", max_length=200, description="For those who read the list.")


class BanView(BaseModel):
    kind: str
    value: str
    remaining: float | None = Field(description="Seconds; null: until it is lifted.")
    reason: str


@routes.get("/bans")
async def list_bans(reach: TheReach, offset: Offset = 0, limit: Limit = 100) -> views.Page[BanView]:
    """Those who may not connect."""
    now = time.monotonic()
    bans = await reach.ask(lambda broker: broker.server.access.bans.all(now))
    items = [_ban_view(each, now) for each in bans[offset : offset + limit]]
    return views.Page(items=items, next=views.next_offset(offset, len(items), len(bans)))


@routes.post("/bans", status_code=201)
async def ban(reach: TheReach, order: BanOrder) -> BanView:
    """Refuse an address, a user or a client from now on, and end its connections; forgotten by a restart."""
    made = await reach.ask(lambda broker: broker.ban(order.kind, order.value, order.seconds, order.reason))
    return _ban_view(made, time.monotonic())


@routes.delete("/bans", status_code=204, response_model=None, responses=NOT_FOUND)
async def lift_ban(
    reach: TheReach, kind: BanKind, value: Annotated[str, Query(min_length=1, max_length=65535)]
) -> None:
    if not await reach.ask(lambda broker: broker.lift_ban(kind, value)):
        raise HTTPException(404, "there is no such ban")


def _ban_view(made: Ban, now: float) -> BanView:
    remaining = None if made.until == NEVER else max(0.0, made.until - now)
    return BanView(kind=made.kind, value=made.value, remaining=remaining, reason=made.reason)


@routes.get("/sessions", response_model=views.Page[views.SessionView])
async def list_sessions(pages: ThePages, offset: Offset = 0, limit: Limit = 100) -> Response:
    """All sessions, with and without a connection."""
    return as_json(await pages.sessions(offset, limit))


@routes.get("/sessions/{client_id:path}", responses=NOT_FOUND)
async def get_session(reach: TheReach, client_id: ClientId) -> views.SessionView:
    session = await reach.ask(lambda broker: views.find_session(broker.server, client_id))
    if session is None:
        raise HTTPException(404, "there is no such session")
    return views.SessionView(**session)


@routes.delete(
    "/sessions/{client_id:path}", status_code=204, response_model=None, responses={**NOT_FOUND, **DISK_FAILED}
)
async def end_session(reach: TheReach, client_id: ClientId) -> None:
    """End a session with all that waits in it; its client, if connected, is disconnected."""

    def end(broker: Broker) -> bool:
        session = broker.server.sessions.get(client_id)
        if session is None:
            return False
        session.expiry_interval = 0
        if not broker.disconnect(client_id, ADMINISTRATIVE_ACTION):
            broker.server.ending.remove(session)
            broker.server.plane.wake()
        return True

    if not await reach.ask(end):
        raise HTTPException(404, "there is no such session")
    await on_disk(reach)


@routes.get("/subscriptions", response_model=views.SubscriptionPage)
async def list_subscriptions(
    pages: ThePages,
    client_id: Annotated[str | None, Query(max_length=65535, description="Only this client's.")] = None,
    after: Annotated[str, Query(pattern=r"^[0-9]{1,9}:[0-9]{1,9}$", description="`next` of the page before.")] = "0:0",
    limit: Limit = 100,
) -> Response:
    """A page may be short, or empty, and not the last one: see `next`."""
    return as_json(await pages.subscriptions(client_id, after, limit))


# ---- data --------------------------------------------------------------------------------------------------------


class SnapshotView(BaseModel):
    folder: str = Field(description="The data folder, on the broker's machine.")
    name: str = Field(description="Of the copy in it. Whoever asked deletes it; the next start does, at the latest.")
    schema_: int = Field(serialization_alias="schema")


@routes.post(
    "/snapshot",
    status_code=201,
    responses={409: {"description": "Nothing is kept on disk, or it cannot be copied; `detail` says why."}},
)
async def take_snapshot(reach: TheReach) -> SnapshotView:
    """Copy what is on disk, inside the data folder. `headwater backup` and `headwater export` do the rest."""
    try:
        taken = await reach.wait(reach.broker.snapshot())
    except StorageError as error:
        raise HTTPException(409, str(error)) from error
    return SnapshotView(folder=str(taken.folder.absolute()), name=taken.name, schema_=taken.schema)


# ---- bridges -----------------------------------------------------------------------------------------------------


@routes.get("/bridges")
async def list_bridges(reach: TheReach) -> list[BridgeView]:
    """The bridges that run, and what went over them since the broker started."""
    return await reach.ask(lambda broker: broker.bridges())


# ---- shared groups -----------------------------------------------------------------------------------------------


@routes.get("/groups")
async def list_groups(figures: TheFigures) -> list[GroupView]:
    """The first shared groups, with what their dispatchers believe of their members."""
    return await figures.groups()


@routes.get("/advice")
async def list_advice(reach: TheReach) -> list[Advice]:
    """The first of what is in force of advice from outside."""
    return await reach.ask(lambda broker: broker.advice()[:MOST_GROUPS])


class Choice(Order):
    pattern: str = Field(max_length=65535, description="Of groups, such as `$share/+/jobs/#`.")
    dispatcher: str = Field(max_length=100)


class Changed(BaseModel):
    changed: int = Field(description="Groups that chose otherwise before.")


@routes.put("/dispatcher")
async def use_dispatcher(reach: TheReach, choice: Choice) -> Changed:
    """From now on groups that the pattern covers choose by this dispatcher; not kept over a restart."""
    try:
        changed = await reach.ask(lambda broker: broker.use_dispatcher(choice.pattern, choice.dispatcher))
        return Changed(changed=changed)
    except ValueError as error:
        raise HTTPException(400, str(error)) from error


# ---- messages ----------------------------------------------------------------------------------------------------


@routes.get("/retained", response_model=views.Page[views.RetainedView])
async def list_retained(
    reach: TheReach,
    pages: ThePages,
    filter: Annotated[str, Query(min_length=1, max_length=65535, description="A topic filter.")] = "#",
    offset: Offset = 0,
    limit: Limit = 100,
) -> Response:
    """Retained messages without their payloads. A page may be short, or empty, and not the last one: see `next`."""
    try:
        check_filter(filter, reach.broker.config.max_topic_levels)
    except InvalidTopicFilter as error:
        raise HTTPException(400, str(error)) from error
    return as_json(await pages.retained(filter, offset, limit))


@routes.get("/retained/message", responses=NOT_FOUND)
async def get_retained(reach: TheReach, topic: Topic) -> views.RetainedMessage:
    message = await reach.ask(lambda broker: broker.server.router.retained.get(topic))
    now = time.monotonic()
    if message is None or message.expires_at <= now:
        raise HTTPException(404, "nothing is retained for this topic")
    return views.retained_message(message, now)


@routes.delete("/retained/message", status_code=204, response_model=None, responses={**NOT_FOUND, **DISK_FAILED})
async def delete_retained(reach: TheReach, topic: Topic) -> None:
    """By an empty retained message, which subscribers get, as clients do it."""

    def delete(broker: Broker) -> bool:
        message = broker.server.router.retained.get(topic)
        if message is None:
            return False
        broker.publish(Message(message.topic, b"", message.qos, True))
        return True

    if not await reach.ask(delete):
        raise HTTPException(404, "nothing is retained for this topic")
    await on_disk(reach)


class Publication(Order):
    topic: str = Field(min_length=1, max_length=65535)
    payload: str = Field(default="", description="Text; for other bytes there is `payload_base64`.")
    payload_base64: str | None = None
    qos: int = Field(default=0, ge=0, le=2)
    retain: bool = False
    expiry: float | None = Field(default=None, gt=0, le=0xFFFFFFFF, description="Seconds.")
    content_type: str | None = Field(default=None, max_length=65535)
    response_topic: str | None = Field(default=None, max_length=65535)
    user_properties: list[Annotated[list[str], Field(min_length=2, max_length=2)]] = Field(default=[], max_length=100)


@routes.post("/publish", status_code=204, response_model=None, responses=DISK_FAILED)
async def publish(reach: TheReach, publication: Publication) -> None:
    """Publish a message as the broker's own."""
    try:
        message = _message(publication, time.monotonic())
        await reach.ask(lambda broker: broker.publish(message))
    except ValueError as error:
        raise HTTPException(400, str(error)) from error
    if message.qos or message.retain:
        await on_disk(reach)


def _message(publication: Publication, now: float) -> Message:
    payload = publication.payload.encode()
    if publication.payload_base64 is not None:
        try:
            payload = base64.b64decode(publication.payload_base64, validate=True)
        except binascii.Error as error:
            raise ValueError(f"payload_base64: {error}") from error
    texts = [publication.topic, publication.content_type or "", publication.response_topic or ""]
    for text in (*texts, *(part for pair in publication.user_properties for part in pair)):
        if len(text.encode()) > 65535 or "\0" in text:
            raise ValueError("a text is longer than 65,535 bytes, or has a null character in it")
    return Message(
        publication.topic,
        payload,
        publication.qos,
        publication.retain,
        expires_at=NEVER if publication.expiry is None else now + publication.expiry,
        content_type=publication.content_type,
        response_topic=publication.response_topic,
        user_properties=[(name, value) for name, value in publication.user_properties] or None,
    )


# ---- traces ------------------------------------------------------------------------------------------------------


class TraceOrder(Order):
    client_id: str = Field(min_length=1, max_length=65535)
    seconds: float = Field(default=60.0, gt=0, le=3600)
    packets: int = Field(default=1000, ge=1, le=100_000, description="It ends after so many.")
    to: Literal["response", "log"] = Field(default="response", description="Where the packets are written.")


@routes.post(
    "/trace",
    response_class=Response,
    responses={
        200: {"description": "Packets as they come and go, one JSON object per line.", "content": {NDJSON: {}}},
        202: {"description": "They go to the log."},
        429: {"description": "As many traces are going on as may."},
    },
)
async def trace(request: Request, reach: TheReach, order: TraceOrder) -> Response:
    """The packets of one client, without secrets and payloads. The broker is slower meanwhile."""
    tracing: Tracing = request.app.state.tracing
    try:
        if order.to == "log":
            await reach.ask(lambda broker: tracing.start_to_log(order.client_id, order.seconds, order.packets))
            return Response(status_code=202)
        started = await reach.ask(lambda broker: tracing.start(order.client_id, order.seconds, order.packets))
        return StreamingResponse(_lines(reach, started), media_type=NDJSON)
    except TooManyTraces as error:
        raise HTTPException(429, "as many traces are going on as may") from error


async def _lines(reach: Reach, started: Trace) -> AsyncIterator[str]:
    try:
        while records := await reach.wait(started.taken()):
            yield "".join([json.dumps(record, ensure_ascii=False) + "\n" for record in records])
    finally:
        reach.tell(partial(started.end, "nobody reads it"))
