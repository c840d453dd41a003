"""The paths below /v1. What is the broker's is asked of it by name (reach.py, desk.py)."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from headwater.disk.errors import StorageError
from headwater.node.admin import views
from headwater.node.admin.reach import Reach
from headwater.node.admin.token import scheme
from headwater.node.advice.document import Advice
from headwater.node.bridge.view import BridgeView
from headwater.node.forwarding.view import ForwardView
from headwater.node.operations.worker_figures import WorkerSeen
from headwater.node.protocol.group_view import GroupView
from headwater.node.protocol.statistics import Statistics
from headwater.node.protocol.tracing import TooManyTraces
from headwater.wire.primitives import UINT16_MAX, UINT32_MAX
from headwater.wire.reasons import ADMINISTRATIVE_ACTION

NDJSON = "application/x-ndjson"


async def reach_of(request: Request) -> Reach:
    found: Reach = request.app.state.reach
    return found


async def on_disk(reach: Reach, operation: str, **arguments: Any) -> Any:
    """Whoever changes what outlives the broker is answered as clients are: when it is there."""
    try:
        return await reach.ask(operation, **arguments)
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
Limit = Annotated[int, Query(ge=1, le=views.MOST_ITEMS, description="Most items on the page.")]
Offset = Annotated[int, Query(ge=0, le=1 << 31, description="`next` of the page before.")]
ClientId = Annotated[str, Path(min_length=1, max_length=UINT16_MAX)]
Topic = Annotated[str, Query(min_length=1, max_length=UINT16_MAX, description="A topic name.")]


def as_json(page: bytes) -> Response:
    """FastAPI would check what we have just made, which takes three times as long."""
    return Response(page, media_type="application/json")


@routes.get("/statistics")
async def statistics(reach: TheReach) -> Statistics:
    """What the broker holds and has done."""
    found: Statistics = await reach.ask("statistics")
    return found


@routes.get("/workers")
async def list_workers(reach: TheReach) -> list[WorkerSeen]:
    """The processes that serve clients together; none: there is one process (docs/workers.md)."""
    found: list[WorkerSeen] = await reach.ask("workers")
    return found


# ---- clients and sessions ----------------------------------------------------------------------------------------


@routes.get("/clients", response_model=views.Page[views.ClientView])
async def list_clients(reach: TheReach, offset: Offset = 0, limit: Limit = 100) -> Response:
    """Clients that are connected. Who comes or goes while pages are turned may be missed or seen twice."""
    return as_json(await reach.ask("clients", offset=offset, limit=limit))


@routes.get("/clients/{client_id:path}", responses=NOT_FOUND)
async def get_client(reach: TheReach, client_id: ClientId) -> views.ClientView:
    client = await reach.ask("client", client_id=client_id)
    if client is None:
        raise HTTPException(404, "this client is not connected")
    return views.ClientView(**client)


class Order(BaseModel):
    """What callers send: exactly as described, and nothing else."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Kick(Order):
    client_id: str = Field(min_length=1, max_length=UINT16_MAX)
    reason: int = Field(
        default=ADMINISTRATIVE_ACTION, ge=0x80, le=0xFF, description="The reason code that a 5.0 client is told."
    )
    server_reference: str | None = Field(default=None, max_length=UINT16_MAX, description="Where it is to go instead.")


@routes.post("/kick", status_code=204, response_model=None, responses=NOT_FOUND)
async def kick(reach: TheReach, order: Kick) -> None:
    """End a client's connection; its session stays."""
    if not await reach.ask("kick", **order.model_dump()):
        raise HTTPException(404, "this client is not connected")


BanKind = Literal["address", "user", "client"]


class BanOrder(Order):
    kind: BanKind
    value: str = Field(min_length=1, max_length=UINT16_MAX, description="An IP address, a user name or a client id.")
    seconds: float | None = Field(default=None, gt=0, le=UINT32_MAX, description="Without it, until it is lifted.")
    reason: str = Field(default="by the admin API", max_length=200, description="For those who read the list.")


@routes.get("/bans")
async def list_bans(reach: TheReach, offset: Offset = 0, limit: Limit = 100) -> views.Page[views.BanView]:
    """Those who may not connect."""
    return views.Page[views.BanView](**await reach.ask("bans", offset=offset, limit=limit))


@routes.post("/bans", status_code=201)
async def ban(reach: TheReach, order: BanOrder) -> views.BanView:
    """Refuse an address, a user or a client from now on, and end its connections; forgotten by a restart."""
    return views.BanView(**await reach.ask("ban", **order.model_dump()))


@routes.delete("/bans", status_code=204, response_model=None, responses=NOT_FOUND)
async def lift_ban(
    reach: TheReach, kind: BanKind, value: Annotated[str, Query(min_length=1, max_length=UINT16_MAX)]
) -> None:
    if not await reach.ask("lift_ban", kind=kind, value=value):
        raise HTTPException(404, "there is no such ban")


@routes.get("/sessions", response_model=views.Page[views.SessionView])
async def list_sessions(reach: TheReach, offset: Offset = 0, limit: Limit = 100) -> Response:
    """All sessions, with and without a connection."""
    return as_json(await reach.ask("sessions", offset=offset, limit=limit))


@routes.get("/sessions/{client_id:path}", responses=NOT_FOUND)
async def get_session(reach: TheReach, client_id: ClientId) -> views.SessionView:
    session = await reach.ask("session", client_id=client_id)
    if session is None:
        raise HTTPException(404, "there is no such session")
    return views.SessionView(**session)


@routes.delete(
    "/sessions/{client_id:path}", status_code=204, response_model=None, responses={**NOT_FOUND, **DISK_FAILED}
)
async def end_session(reach: TheReach, client_id: ClientId) -> None:
    """End a session with all that waits in it; its client, if connected, is disconnected."""
    if not await on_disk(reach, "end_session", client_id=client_id):
        raise HTTPException(404, "there is no such session")


@routes.get("/subscriptions", response_model=views.SubscriptionPage)
async def list_subscriptions(
    reach: TheReach,
    client_id: Annotated[str | None, Query(max_length=UINT16_MAX, description="Only this client's.")] = None,
    after: Annotated[str, Query(pattern=r"^[0-9]{1,9}:[0-9]{1,9}$", description="`next` of the page before.")] = "0:0",
    limit: Limit = 100,
) -> Response:
    """A page may be short, or empty, and not the last one: see `next`."""
    return as_json(await reach.ask("subscriptions", client_id=client_id, after=after, limit=limit))


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
        return SnapshotView(**await reach.ask("snapshot"))
    except StorageError as error:
        raise HTTPException(409, str(error)) from error


# ---- bridges -----------------------------------------------------------------------------------------------------


@routes.get("/bridges")
async def list_bridges(reach: TheReach) -> list[BridgeView]:
    """The bridges that run, and what went over them since the broker started."""
    found: list[BridgeView] = await reach.ask("bridges")
    return found


# ---- forwards ----------------------------------------------------------------------------------------------------


@routes.get("/forwards")
async def list_forwards(reach: TheReach) -> list[ForwardView]:
    """The forwards of the delivery store that run, and what became of messages since the broker started."""
    found: list[ForwardView] = await reach.ask("forwards")
    return found


# ---- shared groups -----------------------------------------------------------------------------------------------


@routes.get("/groups", response_model=list[GroupView])
async def list_groups(reach: TheReach) -> Response:
    """The first shared groups, with what their dispatchers believe of their members."""
    return as_json(await reach.ask("groups"))


@routes.get("/advice")
async def list_advice(reach: TheReach) -> list[Advice]:
    """The first of what is in force of advice from outside."""
    found: list[Advice] = await reach.ask("advice")
    return found


class Choice(Order):
    pattern: str = Field(max_length=UINT16_MAX, description="Of groups, such as `$share/+/jobs/#`.")
    dispatcher: str = Field(max_length=100)


class Changed(BaseModel):
    changed: int = Field(description="Groups that chose otherwise before.")


@routes.put("/dispatcher")
async def use_dispatcher(reach: TheReach, choice: Choice) -> Changed:
    """From now on groups that the pattern covers choose by this dispatcher; not kept over a restart."""
    try:
        return Changed(changed=await reach.ask("use_dispatcher", **choice.model_dump()))
    except ValueError as error:
        raise HTTPException(400, str(error)) from error


# ---- messages ----------------------------------------------------------------------------------------------------


@routes.get("/retained", response_model=views.Page[views.RetainedView])
async def list_retained(
    reach: TheReach,
    filter: Annotated[str, Query(min_length=1, max_length=UINT16_MAX, description="A topic filter.")] = "#",
    offset: Offset = 0,
    limit: Limit = 100,
) -> Response:
    """Retained messages without their payloads. A page may be short, or empty, and not the last one: see `next`."""
    try:
        return as_json(await reach.ask("retained", filter=filter, offset=offset, limit=limit))
    except ValueError as error:
        raise HTTPException(400, str(error)) from error


@routes.get("/retained/message", responses=NOT_FOUND)
async def get_retained(reach: TheReach, topic: Topic) -> views.RetainedMessage:
    message = await reach.ask("retained_message", topic=topic)
    if message is None:
        raise HTTPException(404, "nothing is retained for this topic")
    return views.RetainedMessage(**message)


@routes.delete("/retained/message", status_code=204, response_model=None, responses={**NOT_FOUND, **DISK_FAILED})
async def delete_retained(reach: TheReach, topic: Topic) -> None:
    """By an empty retained message, which subscribers get, as clients do it."""
    if not await on_disk(reach, "delete_retained", topic=topic):
        raise HTTPException(404, "nothing is retained for this topic")


class Publication(Order):
    topic: str = Field(min_length=1, max_length=UINT16_MAX)
    payload: str = Field(default="", description="Text; for other bytes there is `payload_base64`.")
    payload_base64: str | None = None
    qos: int = Field(default=0, ge=0, le=2)
    retain: bool = False
    expiry: float | None = Field(default=None, gt=0, le=UINT32_MAX, description="Seconds.")
    content_type: str | None = Field(default=None, max_length=UINT16_MAX)
    response_topic: str | None = Field(default=None, max_length=UINT16_MAX)
    user_properties: list[Annotated[list[str], Field(min_length=2, max_length=2)]] = Field(default=[], max_length=100)


@routes.post("/publish", status_code=204, response_model=None, responses=DISK_FAILED)
async def publish(reach: TheReach, publication: Publication) -> None:
    """Publish a message as the broker's own."""
    try:
        payload = _payload(publication)
        _check_texts(publication)
        order = publication.model_dump(exclude={"payload", "payload_base64"})
        await on_disk(reach, "publish", body=payload, **order)
    except ValueError as error:
        raise HTTPException(400, str(error)) from error


def _payload(publication: Publication) -> bytes:
    if publication.payload_base64 is None:
        return publication.payload.encode()
    try:
        return base64.b64decode(publication.payload_base64, validate=True)
    except binascii.Error as error:
        raise ValueError(f"payload_base64: {error}") from error


def _check_texts(publication: Publication) -> None:
    texts = [publication.topic, publication.content_type or "", publication.response_topic or ""]
    for text in (*texts, *(part for pair in publication.user_properties for part in pair)):
        if len(text.encode()) > UINT16_MAX or "\0" in text:
            raise ValueError("a text is longer than 65,535 bytes, or has a null character in it")


# ---- traces ------------------------------------------------------------------------------------------------------


class TraceOrder(Order):
    client_id: str = Field(min_length=1, max_length=UINT16_MAX)
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
async def trace(reach: TheReach, order: TraceOrder) -> Response:
    """The packets of one client, without secrets and payloads. The broker is slower meanwhile."""
    wanted = order.model_dump(exclude={"to"})
    try:
        if order.to == "log":
            await reach.ask("trace_to_log", **wanted)
            return Response(status_code=202)
        return StreamingResponse(_lines(reach, await reach.ask("start_trace", **wanted)), media_type=NDJSON)
    except TooManyTraces as error:
        raise HTTPException(429, "as many traces are going on as may") from error


async def _lines(reach: Reach, number: int) -> AsyncIterator[str]:
    try:
        while records := await reach.ask("taken", number=number):
            yield "".join([json.dumps(record, ensure_ascii=False) + "\n" for record in records])
    finally:
        await asyncio.shield(reach.ask("end_trace", number=number))
