"""What the admin API may ask and order of a node's cluster: the part of the desk for that (desk.py)."""

from __future__ import annotations

from typing import Any, Final

from headwater.edge.status import encode
from headwater.node.broker import Broker
from headwater.routing.topics import check_name

OPERATIONS: Final = (
    *("cluster", "cluster_routes"),
    *("cluster_join", "cluster_leave", "cluster_forget", "cluster_method"),
    *("cluster_drain", "cluster_undrain"),
    *("edge", "edge_split", "edge_join"),
)

Fields = dict[str, Any]


class ClusterDesk:
    """Asked on the broker's loop. A node that is in no cluster answers None, and False to orders."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def cluster(self) -> Fields | None:
        if self.broker.cluster is None:
            return None
        view = self.broker.cluster.view()
        nodes, links = ([each._asdict() for each in some] for some in (view.nodes, view.links))
        drain = None if view.drain is None else view.drain._asdict()
        return {**view._asdict(), "nodes": nodes, "links": links, "drain": drain}

    def cluster_routes(self, topic: str) -> Fields | None:
        """Raises ValueError if that is no topic name."""
        check_name(topic, self.broker.config.max_topic_levels)
        return None if self.broker.cluster is None else self.broker.cluster.routes(topic)._asdict()

    def cluster_join(self, addresses: list[str]) -> bool:
        """Raises ValueError."""
        if self.broker.cluster is not None:
            self.broker.cluster.join(addresses)
        return self.broker.cluster is not None

    def cluster_leave(self) -> bool:
        if self.broker.cluster is not None:
            self.broker.cluster.leave()
        return self.broker.cluster is not None

    def cluster_forget(self, node: str) -> bool:
        """Raises ValueError."""
        if self.broker.cluster is not None:
            self.broker.cluster.forget(node)
        return self.broker.cluster is not None

    def cluster_drain(self, node: str, stay: bool) -> bool:
        """Raises ValueError."""
        if self.broker.cluster is not None:
            self.broker.cluster.drain(node, stay)
        return self.broker.cluster is not None

    def cluster_undrain(self, node: str) -> bool:
        """Raises ValueError."""
        if self.broker.cluster is not None:
            self.broker.cluster.undrain(node)
        return self.broker.cluster is not None

    def cluster_method(self, method: str) -> bool:
        """Raises ValueError."""
        if self.broker.cluster is not None:
            self.broker.cluster.use_method(method)
        return self.broker.cluster is not None

    # ---- its edge ------------------------------------------------------------------------------------------------

    def edge(self) -> Fields | None:
        status = None if self.broker.cluster is None else self.broker.cluster.edge()
        return None if status is None else encode(status)

    async def edge_split(self, filter: str, to: str, dry_run: bool) -> Fields | None:
        """Raises ValueError."""
        return await self._owned(filter, to, dry_run)

    async def edge_join(self, filter: str, dry_run: bool) -> Fields | None:
        """Raises ValueError."""
        return await self._owned(filter, "", dry_run)

    async def _owned(self, filter: str, to: str, dry_run: bool) -> Fields | None:
        cluster = self.broker.cluster
        if cluster is None or cluster.owning is None:
            return None
        return {"text": await cluster.own_filter(filter, to, dry_run)}
