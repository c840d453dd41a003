"""The paths below /v1/edge: who owns which topics, and orders to have another node own some (docs/edge-tiers.md)."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, Field

from headwater.edge.ownership import LONGEST_FILTER
from headwater.node.admin.routes import Order, TheReach, routes
from headwater.peering.frames.frame import MAX_NODE_ID

NO_EDGE: Final = "this node is part of no edge: set edge.name (docs/edge-tiers.md)"

edge_routes = APIRouter(
    prefix=f"{routes.prefix}/edge",
    dependencies=routes.dependencies,
    responses={**routes.responses, 404: {"description": "This node is part of no edge (`edge.name`)."}},
)

Filter = Annotated[str, Field(min_length=1, max_length=LONGEST_FILTER, description="A topic filter.")]
DryRun = Annotated[bool, Field(description="Only say what would be.")]


class Split(Order):
    filter: Filter
    to: str = Field(min_length=1, max_length=MAX_NODE_ID, description="The delivery node that owns it from now on.")
    dry_run: DryRun = False


class Join(Order):
    filter: Filter
    dry_run: DryRun = False


class Done(BaseModel):
    text: str = Field(description="From where to where the filter goes.")


async def asked(reach: TheReach, operation: str, **arguments: Any) -> Any:
    """What is not None. ValueErrors of the node are the caller's mistakes."""
    try:
        found = await reach.ask(operation, **arguments)
    except ValueError as error:
        raise HTTPException(400, str(error)) from error
    if found is None:
        raise HTTPException(404, NO_EDGE)
    return found


@edge_routes.get("")
async def show_edge(reach: TheReach) -> dict[str, Any]:
    """Nodes, who owns what, what is being moved, and which messages are in which store, as this node sees them."""
    found: dict[str, Any] = await asked(reach, "edge")
    return found


@edge_routes.post("/split")
async def split(reach: TheReach, order: Split) -> Done:
    """Have a node own a filter from now on. The answer comes when that is decided; `moves` of `GET /v1/edge` says how
    far it is."""
    return Done(**await asked(reach, "edge_split", **order.model_dump()))


@edge_routes.post("/join")
async def join(reach: TheReach, order: Join) -> Done:
    """Give a filter to the owner of the filter around it."""
    return Done(**await asked(reach, "edge_join", **order.model_dump()))
