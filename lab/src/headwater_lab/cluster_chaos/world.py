"""Clients that belong to nodes, and others that move."""

from __future__ import annotations

import time

from headwater_lab.chaos.client import Client
from headwater_lab.chaos.world import World
from headwater_lab.cluster_chaos.nodes import ClusterNode
from headwater_lab.cluster_chaos.roving import Rover


class ClusterWorld(World):
    """The name of a client that stays ends with that of its node."""

    def __init__(self, seed: int, nodes: dict[str, ClusterNode]) -> None:
        super().__init__(seed)
        self.nodes = nodes
        self.closed: set[str] = set()
        """Nodes that leave: nobody moves there."""
        self.takeovers: list[float] = []
        """Seconds from CONNECT to CONNACK of clients that moved while nothing was wrong."""

    def port_of(self, client: Client) -> int:
        node = self.nodes.get(node_of(client))
        return node.port if node is not None else 0

    def open_nodes(self) -> list[str]:
        """To which a client can connect."""
        return [name for name, node in self.nodes.items() if node.port and name not in self.closed]

    def clients_of(self, node: str) -> list[Client]:
        return [client for client in self.clients if node_of(client) == node]

    def node_died(self, node: str) -> None:
        """Read what it had sent before; then nobody is connected to it."""
        self.now = time.monotonic()
        for client in self.clients_of(node):
            client.read(to_the_end=True)


def node_of(client: Client) -> str:
    return client.node if isinstance(client, Rover) else home(client.name)


def stays(client: str) -> bool:
    return "@" in client


def home(client: str) -> str:
    """Of a client that stays; one that moves has none, and its own name stands for it."""
    return client.rpartition("@")[2]
