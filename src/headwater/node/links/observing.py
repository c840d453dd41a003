"""What people see of a cluster (view.py), made from what a node knows: its links, their history, and the members."""

from __future__ import annotations

import time

from headwater.node.links.gossiping import SOFTWARE_KEY, Gossiping
from headwater.node.links.history import LinkHistory
from headwater.node.links.links import Links
from headwater.node.links.redialing import Redialing
from headwater.node.links.view import MQTT_KEY, PHASE_KEY, SERVING, ClusterView, LinkView, NodeView
from headwater.node.links.wills import Wills
from headwater.peering.membership.membership import MemberView


class Observer:
    def __init__(
        self, links: Links, gossiping: Gossiping, redialing: Redialing, history: LinkHistory, wills: Wills
    ) -> None:
        self._links = links
        self._gossiping = gossiping
        self._redialing = redialing
        self._history = history
        self._wills = wills

    def view(self, address: str) -> ClusterView:
        """`address` is where others reach this node."""
        links, now = self._links, time.monotonic()
        return ClusterView(
            links.settings.name,
            links.node,
            links.boot,
            address,
            links.coordination.method,
            links.relays,
            [_node_view(each, now) for each in self._gossiping.view(now)],
            [self._link_view(node, now) for node in sorted(links.spooling.ends)],
            links.forwarding.repeated,
            links.forwarding.stopped,
            links.coordination.holding,
            self._wills.copies.published,
            self._wills.held,
            self._wills.copies.size,
            self._wills.copies.refused,
        )

    def _link_view(self, node: str, now: float) -> LinkView:
        links = self._links
        end, link, past = links.spooling.ends[node], links.up.get(node), self._history.of(node, now)
        traffic = links.coordination.traffic(node)
        state = "down" if link is None else "up" if links.is_synced(node) else "syncing"
        return LinkView(
            peer=node,
            state=state,
            since=now - (past.since if link is None else link.since),
            reason="" if link is not None else self._why_not(node) or past.reason,
            address=link.channel.address if link is not None else self._gossiping.address_of(node),
            version=0 if link is None else link.version,
            method=links.coordination.method_of(node),
            round_trip=None if link is None else link.liveness.round_trip,
            bytes_received=past.bytes_received + (0 if link is None else link.bytes_received),
            bytes_sent=end.bytes_sent,
            messages_received=end.messages_received,
            messages_sent=end.messages_sent,
            dropped=end.dropped,
            spool_messages=end.spool.waiting,
            spool_bytes=end.spool.bytes,
            spool_limit=end.spool.max_bytes,
            states=0 if traffic is None else traffic.states,
            state_bytes=0 if traffic is None else traffic.state_bytes,
            changes=0 if traffic is None else traffic.changes,
            change_bytes=0 if traffic is None else traffic.change_bytes,
            reconnects=max(0, past.links - 1),
            skipped=end.skipped,
        )

    def _why_not(self, node: str) -> str:
        return self._redialing.why_not(self._gossiping.address_of(node))


def _node_view(member: MemberView, now: float) -> NodeView:
    return NodeView(
        *(member.node, str(member.state), member.address, member.generation, member.phi, now - member.since),
        *(member.reason, member.values.get(MQTT_KEY, b"").decode(errors="replace")),
        member.values.get(SOFTWARE_KEY, b"").decode(errors="replace"),
        member.values.get(PHASE_KEY, SERVING.encode()).decode(errors="replace"),
    )
