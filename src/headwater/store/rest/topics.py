"""Topics: which there are, the latest message of one, and publishing to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final
from urllib.parse import quote

import orjson
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field
from starlette.convertors import Convertor, register_url_convertor

from headwater.routing.topics import LONGEST_TOPIC
from headwater.store.entry import iso
from headwater.store.rest.asked import Partial, Scope, ScopeHeader
from headwater.store.rest.context import Context, TheCaller, TheContext
from headwater.store.rest.description import StoredMessage
from headwater.store.rest.errors import described, unprocessable
from headwater.store.rest.formats import objects
from headwater.store.rest.gate import Caller, Publication, Refused
from headwater.store.rest.merged_topics import EdgeTopicPage, latest_of_edge, topics_of_edge
from headwater.store.rest.parameters import LONGEST_HEADER, OnlyKnown, checked_filter, judge_of, topic_of
from headwater.store.rest.rendering import ROWS
from headwater.store.store import Store, TopicStatistics

MOST: Final = 10_000
LONGEST_EXPIRY: Final = 0xFFFFFFFF
MOST_PROPERTIES: Final = 100
USER_PROPERTY: Final = b"headwater-user-property"
FORM: Final = "application/x-www-form-urlencoded"
"""What curl says unless it is told otherwise, and nobody means."""
LATEST: Final = "/latest"
NO_STORE: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class TopicConvertor(Convertor[str]):
    """Any text at all: topics have slashes in them, and may have line breaks."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("topic", TopicConvertor())
routes = APIRouter(tags=["topics"], dependencies=[OnlyKnown])


class TopicView(BaseModel):
    topic: str
    messages: int = Field(description="How many are left.")
    first: int = Field(description="The position of the first that is left.")
    last: int = Field(description="The position of the last.")
    first_time: str = Field(description="When that one was measured. ISO 8601, UTC.")
    last_time: str = Field(description="When that one was measured.")


class TopicPage(BaseModel):
    store: str
    topics: list[TopicView] = Field(description="In the order of their names.")
    next: str | None = Field(description="Go on by giving it as `after`; null: this was the last page.")


@routes.get(
    "/topics",
    response_class=Response,
    responses={200: {"model": TopicPage | EdgeTopicPage, "description": "A page."}, **described(401, 403, 422, 503)},
)
async def list_topics(
    context: TheContext,
    caller: TheCaller,
    filter: Annotated[
        str | None, Query(max_length=LONGEST_TOPIC, description="A topic filter; without it, all topics.")
    ] = None,
    after: Annotated[str, Query(max_length=LONGEST_TOPIC, description="`next` of the page before.")] = "",
    limit: Annotated[int, Query(ge=1, le=MOST, description="Most topics on the page.")] = 1000,
    scope: Scope = None,
    partial: Partial = False,
    said_scope: ScopeHeader = None,
) -> Response:
    """Topics of which there are messages, as far as the caller may subscribe to them. If the edge has several stores
    with such topics, those of all; a topic that has moved is there once for each store that has messages of it."""
    if filter is not None:
        checked_filter(filter, "filter")
    if (scope or said_scope) != "store":
        merged = await topics_of_edge(context, caller, filter, after, limit, partial)
        if merged is not None:
            return Response(merged, media_type="application/json", headers=NO_STORE)
    body = await context.ask(_page, context.store, filter, judge_of(caller), after, limit)
    return Response(body, media_type="application/json", headers=NO_STORE)


def _page(store: Store, filter: str | None, may_read: Callable[[str], bool] | None, after: str, limit: int) -> bytes:
    """In a thread, and in pieces, between which others have their turn."""
    found, next_page = store.topics_page(filter, may_read, after, limit)
    rows = [
        orjson.dumps([_view(each) for each in found[start : start + ROWS]])[1:-1]
        for start in range(0, len(found), ROWS)
    ]
    head = orjson.dumps({"store": store.id})[:-1] + b',"topics":['
    return head + b",".join(rows) + b"]," + orjson.dumps({"next": next_page})[1:]


def _view(found: TopicStatistics) -> dict[str, object]:
    return {
        **found._asdict(),
        "first_time": iso(found.first_time),
        "last_time": iso(found.last_time),
    }


@routes.head("/topics/{topic:topic}/latest", include_in_schema=False)
@routes.get(
    "/topics/{topic:topic}/latest",
    response_class=Response,
    responses={
        200: {"model": StoredMessage, "description": "The message."},
        **described(401, 403, 404, 422, 503),
    },
)
async def latest(
    request: Request,
    context: TheContext,
    caller: TheCaller,
    topic: str,
    scope: Scope = None,
    said_scope: ScopeHeader = None,
) -> Response:
    """The last message of a topic. One that the caller may not subscribe to is as one that is not there. If several
    stores of the edge have, or have had, the topic, they are all asked, and it says its `store`."""
    topic = topic_of(request, "/v1/topics/", LATEST)
    if (scope or said_scope) != "store" and caller.may_read(topic):
        of_edge = await latest_of_edge(context, topic)
        if of_edge is not None:
            return Response(of_edge, media_type="application/json", headers=NO_STORE)
    found = await context.ask(context.store.latest, topic)
    if found is None or not caller.may_read(topic):
        raise Refused(404, "not_found", "there is no message of this topic, or none that you may read")
    return Response(orjson.dumps(objects(found)[0]), media_type="application/json", headers=NO_STORE)


# ---- publishing --------------------------------------------------------------------------------------------------


class Published(BaseModel):
    store: str
    position: int | None = Field(description="Null: topics like this are not stored.")


Qos = Annotated[int, Query(ge=0, le=2, description="As which it is delivered.")]
Expiry = Annotated[int | None, Query(ge=1, le=LONGEST_EXPIRY, description="Seconds it may wait for subscribers.")]
ANSWERS: Final = {
    201: {"model": Published, "description": "It is on disk, at this position."},
    202: {"model": Published, "description": "It is on its way to subscribers; topics like this are not stored."},
    **described(401, 403, 413, 422, 429, 503),
}
BODY: Final = {
    "requestBody": {
        "description": "The payload. `Content-Type` becomes the message's content type.",
        "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}},
    },
    "parameters": [
        {
            "name": "Headwater-User-Property",
            "in": "header",
            "required": False,
            "description": "A user property, `name=value`; the header may be repeated.",
            "schema": {"type": "string", "pattern": "^[!-<>-~]{1,50}=[!-~]{0,50}$"},
        }
    ],
}


@routes.put("/topics/{topic:topic}", status_code=201, response_class=Response, responses=ANSWERS, openapi_extra=BODY)
async def replace(
    request: Request,
    context: TheContext,
    caller: TheCaller,
    topic: str,
    qos: Qos = 1,
    retain: Annotated[bool, Query(description="Whether new subscribers get it at once.")] = True,
    expiry: Expiry = None,
) -> Response:
    """Publish a message that is the topic's value from now on: it is retained, and those before it are kept, too."""
    return await _publish(request, context, caller, qos, retain, expiry)


@routes.post("/topics/{topic:topic}", status_code=201, response_class=Response, responses=ANSWERS, openapi_extra=BODY)
async def publish(
    request: Request,
    context: TheContext,
    caller: TheCaller,
    topic: str,
    qos: Qos = 1,
    retain: Annotated[bool, Query(description="Whether new subscribers get it at once.")] = False,
    expiry: Expiry = None,
) -> Response:
    """Publish a message."""
    return await _publish(request, context, caller, qos, retain, expiry)


async def _publish(
    request: Request, context: Context, caller: Caller, qos: int, retain: bool, expiry: int | None
) -> Response:
    topic = topic_of(request, "/v1/topics/")
    if not caller.may_publish(topic):  # before the payload is taken in
        raise Refused(403, "forbidden", "you may not publish to this topic")
    publication = Publication(
        topic,
        await read_body(request, context.gate.largest_payload),
        qos,
        retain,
        _content_type(request),
        tuple(_user_properties(request)),
        expiry,
    )
    position = await context.gate.publish(caller, publication)
    said = {"store": context.store.id, "position": position}
    headers = dict(NO_STORE)
    place = f"/v1/topics/{quote(topic)}{LATEST}"
    if len(place) <= LONGEST_HEADER:
        headers["Location"] = place
    return Response(orjson.dumps(said), 201 if position is not None else 202, headers, "application/json")


async def read_body(request: Request, most: int) -> bytes:
    """Raises Refused (413) as soon as it is too large."""
    too_large = Refused(413, "too_large", f"a payload has at most {most} bytes here")
    said = request.headers.get("content-length", "")
    if said.isascii() and said.isdigit() and int(said) > most:
        raise too_large
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > most:
            raise too_large
    return b"".join(parts)


def _content_type(request: Request) -> str | None:
    for name, value in request.headers.raw:
        if name == b"content-type":
            text = _text(value, "Content-Type").strip()
            return None if not text or text.partition(";")[0].strip().lower() == FORM else text
    return None


def _user_properties(request: Request) -> list[tuple[str, str]]:
    found = []
    for name, value in request.headers.raw:
        if name == USER_PROPERTY:
            key, equals, text = _text(value, "Headwater-User-Property").partition("=")
            if not equals:
                raise unprocessable("Headwater-User-Property: it is written name=value")
            found.append((key.strip(), text.strip()))
    if len(found) > MOST_PROPERTIES:
        raise unprocessable(f"a message has at most {MOST_PROPERTIES} user properties here")
    return found


def _text(value: bytes, name: str) -> str:
    """What MQTT takes as text."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise unprocessable(f"{name}: it is not in UTF-8") from None
    if "\0" in text or len(value) > LONGEST_TOPIC:
        raise unprocessable(f"{name}: it has a null character, or more than {LONGEST_TOPIC} bytes")
    return text
