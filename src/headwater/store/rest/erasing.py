"""DELETE /v1/messages and GET /v1/erased: messages erased for good, and which positions were."""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from headwater.store.erasing import MOST_RANGES, Doomed, joined
from headwater.store.rest.context import TheCaller, TheContext, TheOperator
from headwater.store.rest.errors import described, unprocessable
from headwater.store.rest.gate import Refused
from headwater.store.rest.parameters import After, Before, OnlyKnown, TopicFilter, checked_filter, position_of

LONGEST: Final = 40_000
"""Characters of positions: most servers take no longer line."""
PAGE: Final = 10_000
"""Ranges of a page."""
RANGES: Final = re.compile(r"[0-9]{1,18}(-[0-9]{1,18})?(,[0-9]{1,18}(-[0-9]{1,18})?)*")

routes = APIRouter(tags=["erasing"], dependencies=[OnlyKnown])


class ErasedView(BaseModel):
    store: str
    erased: int = Field(description="Messages that this call has erased: they are in no file of the store any more.")
    next: int = Field(description="All up to this position was looked at: the `after` of the next call.")
    more: bool = Field(description="Whether there is more to be looked at.")


class ErasedRanges(BaseModel):
    store: str
    erased: list[list[int]] = Field(description="First and last positions, in order.")
    more: bool = Field(description="Whether there are more: go on behind the last position that is named.")


@routes.delete("/messages", responses=described(401, 403, 422, 503))
async def erase(
    context: TheContext,
    caller: TheCaller,
    topic: TopicFilter = None,
    positions: Annotated[
        str | None,
        Query(max_length=LONGEST, description="Instead of `topic`: ranges with commas between them: `4,10-19`."),
    ] = None,
    after: After = None,
    before: Before = None,
) -> ErasedView:
    """Erase messages of some topics, or at some positions, for good. For who shows the token of `rest.token`.

    A call does a bounded part: go on with `after`, until `more` is false. What is killed in between is done again by
    the same call."""
    if not caller.may_erase:
        raise Refused(403, "forbidden", "this needs the token of `rest.token`")
    store = context.store
    if (topic is None) == (positions is None):
        raise unprocessable("say what: `topic` or `positions`, one of them")
    doomed = Doomed(
        filter=None if topic is None else checked_filter(topic, "topic"),
        positions=() if positions is None else ranges_in(positions),
        after=0 if after is None else position_of(after, store, "after"),
    )
    if before is not None:
        doomed = doomed._replace(last=position_of(before, store, "before") - 1)
    async with context.erasing:
        found = await context.ask(store.erase, doomed)
    return ErasedView(store=store.id, erased=found.messages, next=found.position, more=found.more)


@routes.get("/erased", responses=described(401, 403, 422, 503))
async def erased(context: TheContext, caller: TheOperator, after: After = None) -> ErasedRanges:
    """Positions of messages that were erased, and that retention has not removed since."""
    store = context.store
    found = await context.ask(store.erased, 0 if after is None else position_of(after, store, "after"), PAGE + 1)
    return ErasedRanges(store=store.id, erased=[list(each) for each in found[:PAGE]], more=len(found) > PAGE)


def ranges_in(text: str) -> list[tuple[int, int]]:
    """Raises Refused (422)."""
    if not RANGES.fullmatch(text):
        raise unprocessable("`positions` is written 4,10-19")
    found = [(int(first), int(last or first)) for first, _, last in (each.partition("-") for each in text.split(","))]
    if len(found) > MOST_RANGES:
        raise unprocessable(f"`positions` has at most {MOST_RANGES} ranges")
    if any(first > last for first, last in found):
        raise unprocessable("`positions` has a range that ends before it begins")
    return joined([], found)
