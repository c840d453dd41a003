"""A node's part as a proxy: the home broker, what its clients want, and the relay of these clients.

clients --> front.py, relay.py --> home broker        bytes, unchanged
                  | tap.py                 ^ |
                  v                        | v
            interest.py --> home.py, connection.py <--> router, links        messages
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headwater.node.config import Config
from headwater.node.links.cluster import Cluster
from headwater.node.protocol.server import Server
from headwater.node.proxy.front import Front
from headwater.node.proxy.home import Home
from headwater.node.proxy.interest import Interest
from headwater.node.proxy.leading import Leading
from headwater.node.proxy.members import Members
from headwater.node.transports.listener import Listener


class Proxy:
    """Made and started when the links have been; `let_in` comes last."""

    def __init__(self, server: Server, config: Config, cluster: Cluster, listeners: Sequence[Listener]) -> None:
        """Raises ConfigError, CertificateError."""
        settings = config.proxy
        links = cluster.links
        folder = Path(config.data_dir) if config.data_dir else None
        self.home = Home(server, settings, links, folder, lambda: not cluster.not_ready)
        self.interest = Interest(self.home)
        if self.home.retention is not None:
            self.interest.on_retained = self.home.retention.tapped
        caller = self.home.caller
        self.front = Front(
            *(server, listeners, settings.home, self.interest, caller.context, caller.hostname),
            send_proxy=settings.send_proxy or None,
        )

        self.members: Members | None = None
        if settings.groups == "proxy":
            self.members = Members(server, self.front.relay, self.home.wanting)
            self.front.entering.mixing = self.members.make
        self.leading: Leading | None = None
        """None: nodes are linked with their neighbours alone, and each broker has sessions of its own."""
        if not links.relays:
            self.leading = Leading(
                *(server, links, cluster.contexts, self.front.entering, self.interest, self._session_ended),
                *(settings.sessions, settings.session_port, settings.max_session_homes),
            )

    def start(self) -> None:
        """Raises OSError."""
        if self.leading is not None:
            self.leading.start()
        self.interest.start()
        self.home.start()

    def _session_ended(self, client_id: str) -> None:
        """At the home broker."""
        self.interest.session_ended(client_id)
        if self.members is not None:
            self.members.forget(client_id)

    async def let_in(self) -> list[tuple[str, int]]:
        """Clients, from now on; the addresses at which they are."""
        return await self.front.start()

    def let_nobody_in(self) -> None:
        """All connections of clients end."""
        self.front.stop()

    def stop(self) -> None:
        self.home.stop()
