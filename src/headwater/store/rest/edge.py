"""Where messages are that are not in this store: what readers follow topics by (docs/edge-tiers.md)."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from headwater.store.rest.context import TheCaller, TheContext, operator_of
from headwater.store.rest.errors import described
from headwater.store.rest.gate import Refused
from headwater.store.rest.parameters import OnlyKnown

routes = APIRouter(tags=["edge"], dependencies=[OnlyKnown])


@routes.get("/edge", responses=described(401, 403, 404, 422, 503))
async def show_edge(context: TheContext, caller: TheCaller) -> dict[str, Any]:
    """Nodes, who owns which topics, and which positions of which store have them; for those who may read everything.
    404: this node is part of no edge, which everybody may know."""
    found = await context.gate.edge()
    if found is None:
        raise Refused(404, "not_found", "this node is part of no edge (edge.name)")
    await operator_of(caller)
    return found
