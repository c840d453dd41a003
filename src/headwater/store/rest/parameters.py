"""What requests say in their path and query, read strictly: what is not understood is refused, with the reason."""

from __future__ import annotations

import re
from typing import Annotated, Final
from urllib.parse import unquote_to_bytes

from fastapi import Depends, Query, Request
from fastapi.dependencies.models import Dependant

from headwater.routing.conditions.errors import ConditionError
from headwater.routing.conditions.tokens import LONGEST
from headwater.routing.topics import (
    LEVELS_ASKED,
    LONGEST_TOPIC,
    InvalidTopicFilter,
    InvalidTopicName,
    check_filter,
    check_name,
)
from headwater.store.entry import EARLIEST, LATEST
from headwater.store.extract import moment
from headwater.store.query import Judge
from headwater.store.query import Query as StoreQuery
from headwater.store.rest.errors import unprocessable
from headwater.store.rest.gate import Caller
from headwater.store.store import Store
from headwater.store.where import Where as Content
from headwater.suggestion import unknown

LONGEST_HEADER: Final = 8000
"""Characters of a header that is left out rather than be longer: many clients take no more."""
LARGEST: Final = (1 << 63) - 1
NUMBER: Final = re.compile(r"[+-]?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?")
WHOLE: Final = re.compile(r"[+-]?[0-9]{1,30}")
POSITION: Final = r"^(.{1,200}:)?[0-9]{1,19}$"
NO_TIME: Final = LATEST + 1

TopicFilter = Annotated[
    str | None,
    Query(
        max_length=LONGEST_TOPIC,
        description="A topic filter, as in a subscription: `#` does not match topics that begin with `$`. Without it, "
        "all topics.",
        examples=["plant/+/temperature"],
    ),
]
From = Annotated[
    str | None,
    Query(
        alias="from",
        max_length=100,
        description="Measured at this time or later: ISO 8601 (UTC if it names no zone; `+` is written `%2B` in a URL) "
        "or a number since 1970, in seconds, ms, µs or ns by its size.",
        examples=["2026-01-31T12:00:00Z"],
    ),
]
To = Annotated[str | None, Query(max_length=100, description="Measured before this time; as `from`.")]
Min = Annotated[float | None, Query(allow_inf_nan=False, description="With a value of at least this.")]
Max = Annotated[float | None, Query(allow_inf_nan=False, description="With a value of at most this.")]
Where = Annotated[
    str | None,
    Query(
        alias="filter",
        max_length=LONGEST,
        description="A condition on the content, as subscriptions have them (docs/content-filters.md). `changed` and "
        "`limit` are about what this answer has; their time is that of arrival.",
        examples=["value > 30 and unit = 'C'"],
    ),
]
After = Annotated[
    str | None,
    Query(
        max_length=220,
        pattern=POSITION,
        description="After this position, which may have the store's id in front: `id:number`. Without it, from the "
        "first message that is left.",
    ),
]
Before = Annotated[str | None, Query(max_length=220, pattern=POSITION, description="Before this position; as `after`.")]


async def only_known(request: Request) -> None:
    """A parameter that is misspelt would otherwise be a condition that is not there."""
    query = request.scope.get("query_string", b"")
    try:
        unquote_to_bytes(query).decode()
    except UnicodeDecodeError:
        raise unprocessable("the query is not in UTF-8") from None
    known = _names(request.scope["route"].dependant)
    seen = set()
    for name, _ in request.query_params.multi_items():
        if name not in known:
            raise unprocessable(unknown("parameter", name, sorted(known)))
        if name in seen:
            raise unprocessable(f"the parameter {name!r} is given twice")
        seen.add(name)


OnlyKnown = Depends(only_known)


def _names(dependant: Dependant) -> set[str]:
    names = {field.alias for field in dependant.query_params}
    return names.union(*(_names(each) for each in dependant.dependencies))


async def conditions(
    topic: TopicFilter = None,
    start: From = None,
    end: Annotated[To, Query(alias="to")] = None,
    low: Annotated[Min, Query(alias="min")] = None,
    high: Annotated[Max, Query(alias="max")] = None,
    where: Annotated[Where, Query(alias="filter")] = None,
) -> StoreQuery:
    """Which messages, wherever they are."""
    query = StoreQuery(
        filter=None if topic is None else checked_filter(topic, "topic"),
        start=None if start is None else time_of(start, "from"),
        end=None if end is None else time_of(end, "to"),
        low=low,
        high=high,
        where=None if where is None else where_of(where),
    )
    if query.start is not None and query.end is not None and query.start > query.end:
        raise unprocessable("`from` is later than `to`")
    if low is not None and high is not None and low > high:
        raise unprocessable("`min` is greater than `max`")
    return query


def where_of(text: str) -> Content:
    try:
        return Content(text)
    except ConditionError as error:
        raise unprocessable(f"`filter`: {error}") from None


Conditions = Annotated[StoreQuery, Depends(conditions)]


def for_caller(query: StoreQuery, caller: Caller) -> StoreQuery:
    return query._replace(may_read=judge_of(caller))


def judge_of(caller: Caller) -> Judge | None:
    """None: nothing has to be judged."""
    return None if caller.is_unrestricted else Judge(caller.may_read, caller.may_read_each)


def position_of(text: str, store: Store, name: str) -> int:
    """Of this store, as `number` or `id:number`."""
    id, colon, number = text.rpartition(":")
    if colon and id != store.id:
        raise unprocessable(f"`{name}` is a position of another store; this one's begin with {store.id}:")
    position = int(number)
    if position > LARGEST:
        raise unprocessable(f"`{name}` is beyond any position")
    return position


def time_of(text: str, name: str) -> int:
    """In microseconds."""
    found: str | int | float = text
    if WHOLE.fullmatch(text):
        found = int(text)
    elif NUMBER.fullmatch(text):
        found = float(text)
    time = moment(found, 0.0, NO_TIME)
    if time == NO_TIME or not EARLIEST <= time <= LATEST:
        hint = "; a + in a URL is written %2B" if " " in text else ""
        raise unprocessable(f"`{name}` must be ISO 8601 or a Unix timestamp{hint}")
    return time


def checked_filter(filter: str, name: str) -> str:
    try:
        if len(filter.encode()) > LONGEST_TOPIC:
            raise InvalidTopicFilter(f"the topic filter is longer than {LONGEST_TOPIC} bytes")
        check_filter(filter, LEVELS_ASKED)
    except InvalidTopicFilter as error:
        raise unprocessable(f"`{name}`: {error}") from None
    return filter


def topic_of(request: Request, before: str, behind: str = "") -> str:
    """The topic in a path, between two texts. It is taken from the path as it was sent: what a server makes of it is
    not always what was meant (bytes that are no UTF-8, say)."""
    raw: bytes = request.scope["raw_path"]
    quoted = raw.partition(b"?")[0].removeprefix(before.encode())
    if behind:
        if not quoted.endswith(behind.encode()):
            raise unprocessable(f"a path like this ends with {behind}")
        quoted = quoted[: -len(behind)]
    try:
        topic = unquote_to_bytes(quoted).decode()
        if len(topic.encode()) > LONGEST_TOPIC:
            raise InvalidTopicName(f"the topic name is longer than {LONGEST_TOPIC} bytes")
        check_name(topic, LEVELS_ASKED)
    except UnicodeDecodeError:
        raise unprocessable("the topic is not in UTF-8") from None
    except InvalidTopicName as error:
        raise unprocessable(str(error)) from None
    return topic
