"""Figures of a cluster, as one of its nodes sees them (metric.py says how they are declared)."""

from __future__ import annotations

from collections import Counter
from dataclasses import MISSING, dataclass, field

from headwater.metric import Labels, counter, gauge
from headwater.node.links.view import ClusterView, LinkView

NODE_STATES = ("live", "suspected", "dead", "left")


def _both_ways(received: int, sent: int) -> dict[Labels, float]:
    return {("in",): received, ("out",): sent}


@dataclass(frozen=True)
class LinkSeen:
    """A link of this node. `name` is the peer's."""

    name: str
    messages_sent: int
    bytes_sent: int
    change_bytes: int
    changes: int
    up: bool = gauge(
        "Whether the link is up.",
        default=MISSING,
        name="cluster_link_up",
        doc="`syncing` (`headwater cluster peers`) counts as up.",
    )
    round_trip: float | None = gauge(
        "Time from a heartbeat to its answer.",
        default=MISSING,
        name="cluster_link_round_trip_seconds",
        samples=lambda link: {} if link.round_trip is None else {(): link.round_trip},
    )
    messages_received: int = counter(
        "Messages that went over the link.",
        default=MISSING,
        name="cluster_link_messages",
        labels=("direction",),
        samples=lambda link: _both_ways(link.messages_received, link.messages_sent),
    )
    bytes_received: int = counter(
        "Bytes that went over the link, with interest and heartbeats.",
        default=MISSING,
        name="cluster_link_bytes",
        labels=("direction",),
        samples=lambda link: _both_ways(link.bytes_received, link.bytes_sent),
    )
    dropped: int = counter(
        "QoS 0 messages that found no room.",
        default=MISSING,
        name="cluster_link_messages_dropped",
        doc="`cluster.link_buffer` is that room.",
    )
    spool_messages: int = gauge(
        "QoS 1 and 2 messages that the peer has not acknowledged.",
        default=MISSING,
        name="cluster_link_spool_messages",
    )
    spool_bytes: int = gauge("Bytes of them.", default=MISSING, name="cluster_link_spool_bytes")
    spool_limit: int = gauge(
        "Bytes at which those who publish for the peer are paused.",
        default=MISSING,
        name="cluster_link_spool_limit_bytes",
        doc="Setting `cluster.max_spool`.",
    )
    states: int = gauge(
        "Times that this node told what its clients want, since the link came up: all of it, or what has changed.",
        default=MISSING,
        name="cluster_link_interest_told",
        labels=("form",),
        samples=lambda link: {("state",): link.states, ("change",): link.changes},
    )
    state_bytes: int = gauge(
        "Bytes of it.",
        default=MISSING,
        name="cluster_link_interest_told_bytes",
        labels=("form",),
        samples=lambda link: {("state",): link.state_bytes, ("change",): link.change_bytes},
    )
    reconnects: int = counter("Times that the link came up again.", default=MISSING, name="cluster_link_reconnects")
    skipped: int = counter(
        "Notes of the peer that this node did not know, and skipped.",
        default=MISSING,
        name="cluster_link_notes_skipped",
        doc="The peer is of a later version.",
    )


@dataclass
class ClusterSeen:
    nodes: dict[str, int] = gauge(
        "Nodes that are known, this one included, by their state.",
        default=dict,
        name="cluster_nodes",
        labels=("state",),
        doc="`live`, `suspected`, `dead` or `left`.",
    )
    repeated: int = counter("Messages that had come already, and were dropped.", name="cluster_messages_repeated")
    stopped: int = counter("Messages that reached the hop limit.", name="cluster_messages_stopped")
    holding: int = gauge("SUBACKs that wait for other nodes.", name="cluster_subacks_held")
    wills_published: int = counter(
        "Wills that this node published for nodes that had gone.", name="cluster_wills_published"
    )
    wills_held: int = gauge("Wills that are due, and wait for their deputies.", name="cluster_wills_held")
    wills_kept: int = gauge("Bytes of wills that are kept for other nodes.", name="cluster_wills_kept_bytes")
    wills_refused: int = counter(
        "Wills of other nodes for which there was no room: these publish them themselves.",
        name="cluster_wills_refused",
    )
    links: list[LinkSeen] = field(default_factory=list)


@dataclass
class EdgeSeen:
    """A node's part in an edge."""

    owned: int = gauge("Filters that this node owns.", name="edge_filters_owned")
    moving: int = gauge("Of these, those of which messages may still go to another node.", name="edge_filters_moving")
    ending: int = gauge(
        "Filters that other nodes own, of which messages may still come to this one.", name="edge_filters_ending"
    )
    moved_in: int = counter("Filters that came to this node.", name="edge_filters_moved_in")
    moved_out: int = counter("Filters that went to another node.", name="edge_filters_moved_out")
    held: int = counter(
        "Times that what another node sent waited for a former owner of topics.", name="edge_streams_held"
    )
    held_out: int = counter(
        "Of these, those that were over before the former owner had what it was to have.",
        name="edge_streams_held_too_long",
        doc="Setting `edge.hold`.",
    )
    unowned: int = counter(
        "Times that a topic was looked for that nobody owns.",
        name="edge_topics_unowned",
        doc="A topic is looked for when its first message comes, and again when routes have changed.",
    )


def see_cluster(view: ClusterView) -> ClusterSeen:
    counts = Counter(each.state for each in view.nodes)
    nodes = {state: counts[state] for state in dict.fromkeys((*NODE_STATES, *counts))}
    wills = (view.wills_published, view.wills_held, view.wills_kept, view.wills_refused)
    links = [_see_link(each) for each in view.links]
    return ClusterSeen(nodes, view.repeated, view.stopped, view.holding, *wills, links)


def _see_link(link: LinkView) -> LinkSeen:
    return LinkSeen(
        name=link.peer,
        up=link.state != "down",
        **{name: getattr(link, name) for name in LinkSeen.__dataclass_fields__ if name not in ("name", "up")},
    )
