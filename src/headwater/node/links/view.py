"""What can be seen of a cluster from one of its nodes: for the command line, REST and metrics."""

from __future__ import annotations

from typing import Final, NamedTuple

MQTT_KEY: Final = "mqtt"
PHASE_KEY: Final = "phase"
"""Of a node's map in gossip: where its clients connect; what it does if it takes none."""
SERVING: Final = "serving"
CATCHING_UP: Final = "catching up"
DRAINING: Final = "draining"
DRAINED: Final = "drained"


class LinkView(NamedTuple):
    """A link of this node, up or not."""

    peer: str
    state: str
    """`up`; `syncing`: it is up, and the peer has not told all that it wants; `down`."""
    since: float
    """Seconds that it has been in this state."""
    reason: str
    """Why it is down."""
    address: str
    version: int
    """Of frames; 0: it is down."""
    method: str
    """By which the peer tells what its clients want."""
    round_trip: float | None
    """Seconds."""
    bytes_received: int
    bytes_sent: int
    messages_received: int
    messages_sent: int
    dropped: int
    """QoS 0 messages that found no room."""
    spool_messages: int
    spool_bytes: int
    spool_limit: int
    states: int
    """Of this node's interest, told since the link came up; `changes` likewise."""
    state_bytes: int
    changes: int
    change_bytes: int
    reconnects: int
    skipped: int = 0
    """Notes and letters of the peer for services that this node does not have."""


class NodeView(NamedTuple):
    """A member of the cluster, this node included."""

    node: str
    state: str
    """live, suspected, dead, left"""
    address: str
    generation: int
    phi: float
    since: float
    """Seconds that it has been in this state."""
    reason: str
    mqtt: str
    """Where its clients connect, `host:port`, if it says so."""
    software: str
    phase: str = SERVING
    """Whether it takes clients: `SERVING`, or what it does instead."""


class DrainView(NamedTuple):
    """What is still here of a node that is drained."""

    state: str
    """`DRAINING`, or `DRAINED`: nothing is left."""
    stays: bool
    """It does not leave the cluster."""
    clients: int
    sessions: int
    moving: int
    """Sessions that are with another node already, which has not got all of them."""
    spooled: int
    """Messages and letters that other nodes have not acknowledged."""
    grouped: int
    """Messages that wait for shared groups whose members, at other nodes, take none."""
    wills: int
    """Wills that are due, and wait for their deputies."""
    waits_for: list[str]
    """Nodes that are away and without which it does not end."""


class ClusterView(NamedTuple):
    cluster: str
    node: str
    boot: int
    address: str
    method: str
    relays: bool
    nodes: list[NodeView]
    links: list[LinkView]
    repeated: int
    """Messages that had come already and were dropped."""
    stopped: int
    """Messages that reached the hop limit."""
    holding: int
    """SUBACKs that wait for other nodes."""
    wills_published: int = 0
    """Of clients of nodes that had gone."""
    wills_held: int = 0
    """That are due, and wait for their deputies."""
    wills_kept: int = 0
    """Bytes of wills that are kept for other nodes."""
    wills_refused: int = 0
    """Wills of other nodes for which there was no room."""
    not_ready: str = ""
    """Why this node takes no clients."""
    drain: DrainView | None = None


class RouteView(NamedTuple):
    """Where a topic goes from this node."""

    topic: str
    local: bool
    """Whether somebody at this node has subscribed."""
    links: list[str]
    is_exact: bool
    """Whether these links are known to lead to subscribers."""
    groups: dict[str, list[str]]
    """Shared groups, and the nodes that have members of them: one of these gets a message. Empty where each node has
    groups of its own."""
