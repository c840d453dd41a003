"""Which stores a question is about: this node's own, another one, or several.

What names a position of one store is about that store. What names none, or a cursor over several, is about all stores
of the edge that have, or have had, such topics. If that is this node's own store alone, it is answered as if there were
no other; if it is one other, the caller is sent there; else it is answered from all of them (`merged.py`).
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Annotated, Final, Literal, NamedTuple
from urllib.parse import urlencode

from fastapi import Header, Query, Request, Response

from headwater.store.directory import Directory, Place
from headwater.store.rest.context import Context
from headwater.store.rest.errors import unprocessable
from headwater.store.rest.gate import Refused
from headwater.store.vector import LONGEST, MOST_STORES, ONE, MalformedVector, Vector, is_vector, vector_of

POSITION: Final = rf"^((.{{1,200}}:)?[0-9]{{1,19}}|{ONE}(,{ONE})*,?)$"
ELSEWHERE: Final = 307

AfterAll = Annotated[
    str | None,
    Query(
        max_length=LONGEST,
        pattern=POSITION,
        description="After this position, which may have the store's id in front: `id:number`; or after those of "
        "several stores of the edge, `id:number,id:number`. Without it, from the first message that is left.",
    ),
]
BeforeAll = Annotated[str | None, Query(max_length=LONGEST, pattern=POSITION, description="Before this; as `after`.")]
Scope = Annotated[
    Literal["store", "edge"] | None,
    Query(description="`store`: of this node's own store only; `edge`, and without it: of all stores of its edge."),
]
ScopeHeader = Annotated[str | None, Header(alias="Headwater-Scope", include_in_schema=False)]
Partial = Annotated[bool, Query(description="Whether to answer without the stores that cannot be asked now.")]


class Several(NamedTuple):
    """Stores to be asked together; `after` and `before` are positions in each. `passed` are those that have ended, and
    that the cursor has behind it."""

    places: list[Place]
    directory: Directory
    after: Vector
    before: Vector
    passed: Vector


async def asked_of(
    request: Request, context: Context, scope: str | None, filter: str | None, after: str | None, before: str | None
) -> Several | Response | None:
    """None: this node's own store. A response sends the caller to another node. Raises Refused."""
    vectors = [each for each in (after, before) if each is not None and is_vector(each)]
    if scope == "store":
        if vectors:
            raise unprocessable("a cursor over several stores needs the scope `edge`")
        return None
    directory = await context.others.directory()
    positions = [each for each in (after, before) if each is not None and not is_vector(each)]
    if positions and vectors:
        raise unprocessable("`after` and `before` are both positions of one store, or both cursors over several")
    if positions:
        return _of_one(request, context, directory, positions)
    begin, end = _vector(after, "after"), _vector(before, "before")
    known = {context.store.id: Place(context.store.id, "", "", None), **directory.places}
    _check_known({**begin, **end}, known)
    places = _having(context, directory, filter)
    if not vectors and len(places) == 1:
        [place] = places
        return None if place.id == context.own else _sent(request, place)
    passed = {id: position for id, position in begin.items() if _is_passed(known[id], position)}
    places = [each for each in places if each.id not in passed]
    if len(places) > MOST_STORES:
        raise unprocessable(
            f"{len(places)} stores have such topics, and {MOST_STORES} can be asked at once; name a topic, or a store"
        )
    for id, first in directory.withheld(time.time()).items():
        end[id] = min(first, end.get(id, first))
    return Several(places, directory, begin, end, passed)


def _of_one(request: Request, context: Context, directory: Directory, positions: list[str]) -> Response | None:
    named = (each.rpartition(":")[0] or context.store.id for each in positions)
    ids = {id for id in named if id and id != context.own}
    if len(ids) == 1 and (place := directory.places.get(next(iter(ids)))) is not None:
        return _sent(request, place)
    return None  # what is wrong with others is said where positions are read


def _vector(text: str | None, name: str) -> Vector:
    try:
        return {} if text is None else vector_of(text)
    except MalformedVector as error:
        raise Refused(400, "malformed", f"`{name}`: {error}") from None


def _check_known(vector: Vector, known: Collection[str]) -> None:
    for id in vector:
        if id not in known:
            raise unprocessable(f"the cursor names the store {id}, which is none of this edge")


def _having(context: Context, directory: Directory, filter: str | None) -> list[Place]:
    """Our own store counts even if nobody says what it has."""
    own = context.store.id
    found = directory.holders(filter)
    if own and own not in directory.places:
        found.append(Place(own, "", "", None))
    return sorted(found) or [Place(own, "", "", None)]


def _is_passed(place: Place, position: int) -> bool:
    return place.ended is not None and position >= place.ended


def _sent(request: Request, place: Place) -> Response:
    """To the node that has it. It is told to look into its own store, so that nobody is sent around."""
    if not place.url:
        raise Refused(503, "unavailable", f"the store {place.id} at {place.node} does not say where its REST is")
    kept = [(name, value) for name, value in request.query_params.multi_items() if name not in ("scope", "partial")]
    path = request.scope["raw_path"].partition(b"?")[0].decode("ascii")
    location = f"{place.url}{path}?{urlencode([*kept, ('scope', 'store')])}"
    return Response(status_code=ELSEWHERE, headers={"Location": location, "Cache-Control": "no-store"})
