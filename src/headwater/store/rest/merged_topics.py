"""Topics of all stores of an edge as one list, and the last message of a topic wherever it is.

A page of each store is asked for, in the order of topics. What comes behind the end of a page that goes on may not be
complete yet, so the merged page ends before that; a topic is never split between two pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

import orjson
from pydantic import BaseModel, Field

from headwater.store.directory import Directory, Place
from headwater.store.entry import iso
from headwater.store.query import judged
from headwater.store.rest.context import Context
from headwater.store.rest.errors import unprocessable
from headwater.store.rest.formats import objects
from headwater.store.rest.gate import Caller, Refused
from headwater.store.rest.others import Incomplete, Missing
from headwater.store.rest.parameters import judge_of
from headwater.store.store import TopicStatistics
from headwater.store.vector import MOST_STORES, Merge

MOST_OF_OTHER: Final = 10_000
"""Topics that another store is asked for at once."""

Row = dict[str, Any]
Part = tuple[list[Row], str | None]


class EdgeTopic(BaseModel):
    topic: str
    store: str
    messages: int
    first: int
    last: int
    first_time: str
    last_time: str


class EdgeTopicPage(BaseModel):
    """Of several stores of an edge."""

    store: str = Field(description="The one of the node that was asked.")
    topics: list[EdgeTopic] = Field(description="In the order of their names.")
    next: str | None = Field(description="Go on by giving it as `after`; null: this was the last page.")
    missing: list[dict[str, str]] | None = Field(default=None, description="What was left out; only with `partial`.")


async def topics_of_edge(
    context: Context, caller: Caller, filter: str | None, after: str, limit: int, may_lack: bool
) -> bytes | None:
    """None: our own store alone has such topics. Raises Refused."""
    _, places = await _having(context, filter)
    if places is None:
        return None
    asked = [_topics(context, caller, each, filter, after, min(limit, MOST_OF_OTHER)) for each in places]
    parts, missing = await _gathered(asked, may_lack)
    rows, next_page = merged_page(parts, limit)
    head: dict[str, Any] = {"store": context.store.id, "topics": rows, "next": next_page}
    if missing:
        head["missing"] = [each._asdict() for each in missing]
    return orjson.dumps(head)


def merged_page(parts: Sequence[Part], limit: int) -> Part:
    """Rows in the order of topics and stores, of about `limit` topics, and the topic behind which to go on."""
    horizon = min((end for _, end in parts if end is not None), default=None)
    rows = sorted((row for found, _ in parts for row in found), key=lambda row: (row["topic"], row["store"]))
    kept: list[Row] = []
    goes_on = horizon is not None
    for topic, group in groupby(rows, key=lambda row: row["topic"]):
        if len(kept) >= limit or (horizon is not None and topic > horizon):
            goes_on = True
            break
        kept.extend(group)
    if not goes_on:
        return kept, None
    return kept, kept[-1]["topic"] if kept else horizon


async def _topics(context: Context, caller: Caller, place: Place, filter: str | None, after: str, limit: int) -> Part:
    may_read = judge_of(caller)
    if place.id == context.own:
        found, next_page = await context.ask(context.store.topics_page, filter, may_read, after, limit)
        return [_row(each, place.id) for each in found], next_page
    page = await context.others.ask(place, lambda reader: reader.topics_page(filter, after or None, limit))
    try:
        rows = [{**row, "store": place.id} for row in page["topics"] if row["topic"]]
        end = page["next"]
        if page["store"] != place.id:
            raise KeyError("store")
    except (KeyError, TypeError):
        raise Incomplete([Missing(place.id, place.node, place.url, "something else answers there")]) from None
    if may_read is not None:
        allowed = judged(may_read, [row["topic"] for row in rows])
        rows = [row for row, is_allowed in zip(rows, allowed, strict=True) if is_allowed]
    return rows, end


def _row(found: TopicStatistics, store: str) -> Row:
    times = {"first_time": iso(found.first_time), "last_time": iso(found.last_time)}
    return {**found._asdict(), **times, "store": store}


async def latest_of_edge(context: Context, topic: str) -> bytes | None:
    """None: our own store alone has, or has had, the topic. Raises Refused."""
    directory, places = await _having(context, topic)
    if places is None:
        return None
    found, _ = await _gathered([_latest(context, each, topic) for each in places], may_lack=False)
    merge = Merge([each.id for each in places], directory.precedences())
    for place, row in zip(places, found, strict=True):
        merge.give(place.id, [] if row is None else [row], 0)
    last = None
    while (taken := merge.take()) is not None:
        last = taken
    if last is None:
        raise Refused(404, "not_found", "there is no message of this topic, or none that you may read")
    return orjson.dumps({"store": last[0], **last[1]})


async def _latest(context: Context, place: Place, topic: str) -> Row | None:
    if place.id == context.own:
        found = await context.ask(context.store.latest, topic)
        return None if found is None else objects(found)[0]
    row: Row | None = await context.others.ask(place, lambda reader: reader.latest(topic))
    return row


async def _having(context: Context, filter: str | None) -> tuple[Directory, list[Place] | None]:
    directory = await context.others.directory()
    places = directory.holders(filter)
    if not any(each.id != context.own for each in places):
        return directory, None
    if context.store.id and context.store.id not in directory.places:
        places.append(Place(context.store.id, "", "", None))
    if len(places) > MOST_STORES:
        raise unprocessable(f"{len(places)} stores have such topics, and {MOST_STORES} can be asked at once")
    return directory, places


async def _gathered(asked: Sequence[Any], may_lack: bool) -> tuple[list[Any], list[Missing]]:
    found = await asyncio.gather(*asked, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException) and not isinstance(each, Incomplete):
            raise each
    missing = [one for each in found if isinstance(each, Incomplete) for one in each.missing]
    if missing and not may_lack:
        raise Incomplete(missing)
    return [each for each in found if not isinstance(each, BaseException)], missing
