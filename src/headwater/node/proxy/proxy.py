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
from headwater.node.links.links import Links
from headwater.node.protocol.server import Server
from headwater.node.proxy.front import Front
from headwater.node.proxy.home import Home
from headwater.node.proxy.interest import Interest
from headwater.node.transports.listener import Listener


class Proxy:
    """Made and started when the links have been; `let_in` comes last."""

    def __init__(self, server: Server, config: Config, links: Links, listeners: Sequence[Listener]) -> None:
        """Raises ConfigError, CertificateError."""
        settings = config.proxy
        self.home = Home(server, settings, links, Path(config.data_dir) if config.data_dir else None)
        self.interest = Interest(self.home)
        caller = self.home.caller
        self._front = Front(
            *(server, listeners, settings.home, self.interest, caller.context, caller.hostname),
            send_proxy=settings.send_proxy or None,
        )

    def start(self) -> None:
        self.interest.start()
        self.home.start()

    async def let_in(self) -> list[tuple[str, int]]:
        """Clients, from now on; the addresses at which they are."""
        return await self._front.start()

    def let_nobody_in(self) -> None:
        """All connections of clients end."""
        self._front.stop()

    def stop(self) -> None:
        self.home.stop()
