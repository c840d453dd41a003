"""Clients that belong to nodes."""

from __future__ import annotations

import time

from headwater_lab.chaos.client import Client
from headwater_lab.chaos.world import World
from headwater_lab.cluster_chaos.nodes import ClusterNode


class ClusterWorld(World):
    """The name of a client ends with that of its node."""

    def __init__(self, seed: int, nodes: dict[str, ClusterNode]) -> None:
        super().__init__(seed)
        self.nodes = nodes

    def port_of(self, client: Client) -> int:
        return self.nodes[home(client.name)].port

    def node_died(self, node: str) -> None:
        """Read what it had sent before; then nobody is connected to it."""
        self.now = time.monotonic()
        for client in self.clients:
            if home(client.name) == node:
                client.read(to_the_end=True)


def home(client: str) -> str:
    return client.rpartition("@")[2]
