"""A cluster that is seen and ordered about, without links: what commands, the admin API and metrics need of one."""

from __future__ import annotations

from typing import Any

from headwater.edge.status import DELIVERY, SETTLED, EdgeNode, EdgeStatus, Ownership, Stretch, Unowned
from headwater.node.links.figures import EdgeSeen
from headwater.node.links.view import DRAINED, DRAINING, ClusterView, DrainView, LinkView, NodeView, RouteView

METHODS = ("flood", "subscribe", "bloom")


def link(peer: str, **others: Any) -> LinkView:
    """With a number of its own in each field."""
    numbers: dict[str, Any] = {name: place for place, name in enumerate(LinkView._fields, 11)}
    texts = {"state": "up", "reason": "", "address": f"{peer}:11883", "method": "subscribe", "round_trip": 0.00125}
    return LinkView(**{**numbers, **texts, "peer": peer, **others})


def node(name: str, **others: Any) -> NodeView:
    usual: dict[str, Any] = {
        "state": "live",
        "address": f"{name}:11883",
        "generation": 3,
        "phi": 0.25,
        "since": 90.0,
        "reason": "",
        "mqtt": f"{name}:1883",
        "software": "headwater 0.1.0",
    }
    return NodeView(**{**usual, "node": name, **others})


class FakeOwning:
    def figures(self) -> EdgeSeen:
        return EdgeSeen(12, 13, 14, 15, 16, 17, 18, 19)


class FakeCluster:
    """The facade of `headwater.node.links.cluster.Cluster`; `orders` is what it was told."""

    def __init__(self, nodes: list[NodeView] | None = None, links: list[LinkView] | None = None) -> None:
        self.nodes = [node("a"), node("b"), node("c", state="dead", phi=300.0)] if nodes is None else nodes
        self.links = [link("b"), link("c", state="down", reason="refused", round_trip=None)] if links is None else links
        self.method = "subscribe"
        self.orders: list[tuple[Any, ...]] = []
        self.owning: FakeOwning | None = FakeOwning()
        self.not_ready = ""
        self.left: list[int] = []
        """Sessions that are left when the cluster is seen, one look after the other, while it is drained."""

    def view(self) -> ClusterView:
        figures = (5, 6, 7, 8, 9, 10, 11)
        found = ClusterView("demo", "a", 1_700_000_000, "a:11883", self.method, False, self.nodes, self.links, *figures)
        return found._replace(not_ready=self.not_ready, drain=self._drain())

    def _drain(self) -> DrainView | None:
        if not self.left:
            return None
        left = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        return DrainView(DRAINING if left else DRAINED, False, 0, left, 2 * left, 3 * left, 0, 0, ["c"] if left else [])

    def routes(self, topic: str) -> RouteView:
        wanted = [each.peer for each in self.links if each.state != "down"]
        is_here, is_known = topic.startswith("here/"), topic != "perhaps"
        groups = {"$share/g/#": ["a", "b"]} if topic.startswith("shared/") else {}
        return RouteView(topic, is_here, [] if topic in ("nobody", "shared/only") else wanted, is_known, groups)

    def edge(self) -> EdgeStatus:
        nodes = (EdgeNode("a", "north", (DELIVERY,), "s1", "http://a:8080", "a:1883", "live", True),)
        rows = (Stretch("s1", "a", "http://a:8080", ("plant/#",), "plant/#", 1, 1, None),)
        owned = (Ownership("plant/#", "a", "s1", 1, SETTLED),)
        return EdgeStatus("north", "a", nodes, owned, (), rows, Unowned("local", "a", 0, ()))

    async def own_filter(self, filter: str, to: str, is_dry: bool) -> str:
        self.orders.append(("own", filter, to, is_dry))
        if filter != "plant/1/#":
            raise ValueError(f"{filter} cannot go to {to or 'the owner around it'}")
        return "node a owns plant/1/# from now on"

    def join(self, addresses: list[str]) -> None:
        if "wrong:" in addresses:
            raise ValueError("'wrong:' is not of the form host:port")
        self.orders.append(("join", addresses))

    def leave(self) -> None:
        self.orders.append(("leave",))

    def forget(self, node: str) -> None:
        if node != "c":
            raise ValueError(f"node {node} is live; only a dead node, or one that left, can be forgotten")
        self.orders.append(("forget", node))

    def drain(self, node: str, stays: bool) -> None:
        if node != "a":
            raise ValueError(f"this is node a: ask node {node} itself")
        self.orders.append(("drain", node, stays))
        self.left = [2, 1, 0]

    def undrain(self, node: str) -> None:
        self.orders.append(("undrain", node))
        self.left = []

    def use_method(self, method: str) -> None:
        if method not in METHODS:
            raise ValueError(f"there is no method {method!r}")
        self.orders.append(("use_method", method))
        self.method = method
