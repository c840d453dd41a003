"""The paths below /v1/hand-over: how another node takes this one's delivery store over (docs/edge.md)."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field

from headwater.disk.errors import StorageError
from headwater.node.admin.reach import Reach
from headwater.node.admin.routes import Order, TheReach, routes
from headwater.node.delivery.handing_over import LONGEST_FREEZE

LONGEST_NAME: Final = 200

hand_over_routes = APIRouter(
    prefix=f"{routes.prefix}/hand-over",
    dependencies=routes.dependencies,
    responses={**routes.responses, 409: {"description": "Not now; `detail` says why."}},
)


class FenceView(BaseModel):
    store: str
    hand_over: str
    to: str
    position: int = Field(description="The last that was given here.")


class HandOverView(BaseModel):
    store: str
    hand_over: str = Field(description="The id of the one that goes on; empty: none.")
    to: str
    frozen: float | None = Field(description="Seconds for which nothing has been taken; null: messages are taken.")
    fence: FenceView | None = Field(description="Once the store is another node's.")


class CopiedFile(BaseModel):
    name: str
    size: int
    sha256: str


class CopyView(BaseModel):
    files: list[CopiedFile]
    first: int
    next: int


class Begin(Order):
    to: str = Field(min_length=1, max_length=LONGEST_NAME, description="The node that takes it over.")


class Freeze(Order):
    seconds: float = Field(gt=0, le=LONGEST_FREEZE, description="After which messages are taken again.")


class FenceOrder(Order):
    position: int = Field(ge=0, description="The last that the target has.")


Id = Annotated[str, Field(max_length=64)]


async def _ask(reach: Reach, operation: str, **arguments: Any) -> Any:
    try:
        return await reach.ask(operation, **arguments)
    except (ValueError, StorageError) as error:
        raise HTTPException(409, str(error)) from error


@hand_over_routes.get("")
async def show_hand_over(reach: TheReach) -> HandOverView:
    """Whether the store is this node's, and what goes on."""
    return HandOverView(**await _ask(reach, "hand_over_state"))


@hand_over_routes.post("", status_code=201)
async def begin_hand_over(reach: TheReach, order: Begin) -> HandOverView:
    """A hand-over begins; one that came to nothing is forgotten."""
    return HandOverView(**await _ask(reach, "begin_hand_over", to=order.to))


@hand_over_routes.post("/{id}/copy", status_code=201)
async def copy_for_hand_over(reach: TheReach, id: Id) -> CopyView:
    """Copy what is on disk; the files of the copy before are gone then."""
    return CopyView(**await _ask(reach, "copy_for_hand_over", hand_over=id))


@hand_over_routes.get("/{id}/file", response_class=FileResponse)
async def file_for_hand_over(
    reach: TheReach, id: Id, name: Annotated[str, Query(max_length=LONGEST_NAME, description="As the copy names it.")]
) -> FileResponse:
    """A file of the last copy."""
    return FileResponse(await _ask(reach, "file_for_hand_over", hand_over=id, name=name))


@hand_over_routes.post("/{id}/freeze")
async def freeze_for_hand_over(reach: TheReach, id: Id, order: Freeze) -> HandOverView:
    """Take nothing more: publishers wait. Answered when all that was taken is on disk."""
    return HandOverView(**await _ask(reach, "freeze_for_hand_over", hand_over=id, seconds=order.seconds))


@hand_over_routes.post("/{id}/fence")
async def fence_for_hand_over(reach: TheReach, id: Id, order: FenceOrder) -> HandOverView:
    """Give the store to the target, which has all up to this position. This cannot be undone."""
    return HandOverView(**await _ask(reach, "fence_for_hand_over", hand_over=id, position=order.position))


@hand_over_routes.post("/{id}/release")
async def release_hand_over(reach: TheReach, id: Id) -> HandOverView:
    """Read from publishers again; before the fence, this ends the hand-over."""
    return HandOverView(**await _ask(reach, "release_hand_over", hand_over=id))
