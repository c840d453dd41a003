"""A node's part as a proxy: the home broker, what its clients want, and the relay of these clients."""

from __future__ import annotations

from pathlib import Path

from headwater.node.links.links import Links
from headwater.node.protocol.server import Server
from headwater.node.proxy.home import Home
from headwater.node.proxy.interest import Interest
from headwater.node.proxy.settings import ProxySettings


class Proxy:
    """Made and started when the links have been."""

    def __init__(self, server: Server, settings: ProxySettings, links: Links, data_dir: str) -> None:
        """Raises ConfigError, CertificateError."""
        self.settings = settings
        self.home = Home(server, settings, links, Path(data_dir) if data_dir else None)
        self.interest = Interest(self.home)

    def start(self) -> None:
        self.interest.start()
        self.home.start()

    def stop(self) -> None:
        self.home.stop()
