"""The paths below /v1/cluster: who is in the cluster, where messages go, and orders to this node (docs/cluster.md)."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, Field

from headwater.node.admin.routes import Order, TheReach, Topic, routes
from headwater.peering.frames.frame import MAX_NODE_ID
from headwater.peering.membership.bounds import MAX_SEEDS

NOT_CLUSTERED: Final = "this node is in no cluster: start it with --cluster NAME (cluster.name)"
LONGEST_ADDRESS: Final = 300

cluster_routes = APIRouter(
    prefix=f"{routes.prefix}/cluster",
    dependencies=routes.dependencies,
    responses={**routes.responses, 404: {"description": "This node is in no cluster (`cluster.name`)."}},
)


# ---- what is shown: the fields of node/links/view.py -------------------------------------------------------------


class NodeView(BaseModel):
    node: str
    state: str = Field(description="As this node sees it: live, suspected, dead or left.")
    address: str = Field(description="Where other nodes reach it.")
    generation: int = Field(description="Higher after each restart.")
    phi: float = Field(description="How surely it is away: 8 is one wrong alarm in 100,000,000.")
    since: float = Field(description="Seconds that it has been in this state.")
    reason: str = Field(description="Why it is in this state.")
    mqtt: str = Field(description="Where its clients connect, as `host:port`; empty: it does not say so.")
    software: str
    phase: str = Field(description="serving: it takes clients; else catching up, draining or drained.")


class DrainView(BaseModel):
    state: str = Field(description="draining; drained: nothing is left.")
    stays: bool = Field(description="Whether it stays a member.")
    clients: int = Field(description="Connections that have not been ended yet.")
    sessions: int = Field(description="Sessions that are still here.")
    moving: int = Field(description="Sessions that another node has, but not yet all of them.")
    spooled: int = Field(description="What other nodes have not acknowledged.")
    grouped: int = Field(description="Messages that wait for shared groups whose members at other nodes take none.")
    wills: int = Field(description="Wills that are due, and wait for their deputies.")
    waits_for: list[str] = Field(description="Nodes that are away and without which the drain does not end.")


class LinkView(BaseModel):
    peer: str
    state: str = Field(description="up; syncing: up, and the peer has not told all that its clients want; down.")
    since: float = Field(description="Seconds that it has been in this state.")
    reason: str = Field(description="Why it is down.")
    address: str
    version: int = Field(description="Of the frames; 0: it is down.")
    method: str = Field(description="By which the peer tells what its clients want.")
    round_trip: float | None = Field(description="Seconds; null: not measured yet.")
    bytes_received: int
    bytes_sent: int
    messages_received: int
    messages_sent: int
    dropped: int = Field(description="QoS 0 messages that found no room (`cluster.link_buffer`).")
    spool_messages: int = Field(description="QoS 1 and 2 messages that the peer has not acknowledged.")
    spool_bytes: int
    spool_limit: int = Field(description="Bytes at which publishers are paused (`cluster.max_spool`).")
    states: int = Field(description="Times that all this node's clients want was told since the link came up.")
    state_bytes: int
    changes: int = Field(description="Times that what has changed was told.")
    change_bytes: int
    reconnects: int
    skipped: int = Field(description="Notes and letters of a later version, which this node skipped.")


class ClusterView(BaseModel):
    cluster: str
    node: str = Field(description="This node's id.")
    boot: int = Field(description="Of this node: messages are told apart by it and a counter.")
    address: str
    method: str = Field(description="By which this node tells what its clients want.")
    relays: bool = Field(description="Whether messages go through other nodes (`cluster.neighbours`).")
    nodes: list[NodeView] = Field(description="All that are known, this one included.")
    links: list[LinkView]
    repeated: int = Field(description="Messages that had come already, and were dropped.")
    stopped: int = Field(description="Messages that reached the hop limit.")
    holding: int = Field(description="SUBACKs that wait for other nodes.")
    wills_published: int = Field(description="Wills that this node published for nodes that had gone.")
    wills_held: int = Field(description="Wills that are due, and wait for their deputies.")
    wills_kept: int = Field(description="Bytes of wills that are kept for other nodes.")
    wills_refused: int = Field(description="Wills of other nodes for which there was no room.")
    not_ready: str = Field(description="Why this node takes no clients; empty: it does.")
    drain: DrainView | None = Field(description="What is left of this node; null: it is not drained.")


class RouteView(BaseModel):
    topic: str
    local: bool = Field(description="Whether somebody at this node has subscribed.")
    links: list[str] = Field(description="Peers to which a message goes.")
    is_exact: bool = Field(description="Whether these links are known to lead to subscribers.")
    groups: dict[str, list[str]] = Field(
        description="Shared groups, each with the nodes that have members: one of these gets a message."
    )


# ---- what callers send -------------------------------------------------------------------------------------------


class Join(Order):
    addresses: list[Annotated[str, Field(min_length=1, max_length=LONGEST_ADDRESS)]] = Field(
        min_length=1, max_length=MAX_SEEDS, description="Nodes, as `host`, `host:port` or `unix:PATH`."
    )


class Forget(Order):
    node: str = Field(min_length=1, max_length=MAX_NODE_ID)


class Drain(Order):
    node: str = Field(min_length=1, max_length=MAX_NODE_ID, description="This node's id, so that no other is meant.")
    stay: bool = Field(default=False, description="Stay a member, for a restart; else leave the cluster at the end.")


class Undrain(Order):
    node: str = Field(min_length=1, max_length=MAX_NODE_ID, description="This node's id.")


class Method(Order):
    method: str = Field(max_length=100, description="flood, subscribe or bloom.")


# ---- paths -------------------------------------------------------------------------------------------------------


async def asked(reach: TheReach, operation: str, **arguments: Any) -> Any:
    """What is not None or False. ValueErrors of the node are the caller's mistakes."""
    try:
        found = await reach.ask(operation, **arguments)
    except ValueError as error:
        raise HTTPException(400, str(error)) from error
    if not found:
        raise HTTPException(404, NOT_CLUSTERED)
    return found


@cluster_routes.get("")
async def show_cluster(reach: TheReach) -> ClusterView:
    """Nodes and links, as this node sees them."""
    return ClusterView(**await asked(reach, "cluster"))


@cluster_routes.get("/routes")
async def show_routes(reach: TheReach, topic: Topic) -> RouteView:
    """Where a message of this topic would go from here."""
    return RouteView(**await asked(reach, "cluster_routes", topic=topic))


@cluster_routes.post("/join", status_code=204, response_model=None)
async def join(reach: TheReach, order: Join) -> None:
    """Look for the cluster at these addresses as well; until the next start."""
    await asked(reach, "cluster_join", addresses=order.addresses)


@cluster_routes.post("/leave", status_code=204, response_model=None)
async def leave(reach: TheReach) -> None:
    """Tell the others goodbye; this node serves its own clients alone until it joins again or restarts."""
    await asked(reach, "cluster_leave")


@cluster_routes.post("/forget", status_code=204, response_model=None)
async def forget(reach: TheReach, order: Forget) -> None:
    """Have all nodes forget one that is dead or has left."""
    await asked(reach, "cluster_forget", node=order.node)


@cluster_routes.post("/drain", status_code=204, response_model=None)
async def drain(reach: TheReach, order: Drain) -> None:
    """Begin to hand this node's clients and sessions over to others; `drain` of `GET /v1/cluster` says what is left."""
    await asked(reach, "cluster_drain", **order.model_dump())


@cluster_routes.post("/undrain", status_code=204, response_model=None)
async def undrain(reach: TheReach, order: Undrain) -> None:
    """Take clients again; what has been handed over stays where it is."""
    await asked(reach, "cluster_undrain", node=order.node)


@cluster_routes.put("/method", status_code=204, response_model=None)
async def use_method(reach: TheReach, order: Method) -> None:
    """From now on this node tells what its clients want by this method; not kept over a restart."""
    await asked(reach, "cluster_method", method=order.method)
