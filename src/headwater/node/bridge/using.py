"""The bridges that a broker has now. What bridges need, a client among it, is only loaded where there are any."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headwater.node.bridge.orphans import remove_orphans

if TYPE_CHECKING:
    from headwater.node.bridge.bridges import Bridges
    from headwater.node.bridge.preparing import Prepared
    from headwater.node.bridge.view import BridgeView
    from headwater.node.config import Config
    from headwater.node.protocol.server import Server


class UsedBridges:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._bridges: Bridges | None = None
        self._changing: asyncio.Task[None] | None = None

    def prepare(self, config: Config) -> list[Prepared]:
        """Read the files of the bridges in these settings; nothing changes. Raises ConfigError, CertificateError."""
        if not config.bridges:
            return []
        from headwater.node.bridge.preparing import prepare_all

        return prepare_all(config)

    async def use(self, wanted: list[Prepared]) -> None:
        """Have these bridges and no others."""
        if self._bridges is None and wanted:
            from headwater.node.bridge.bridges import Bridges

            self._bridges = Bridges(self._server)
        if self._bridges is not None:
            await self._bridges.use(wanted)
        else:
            remove_orphans(self._server, ())

    def use_soon(self, wanted: list[Prepared]) -> None:
        """The same, without waiting for those that have to part from their remote first."""
        if wanted or self._bridges is not None:
            self._changing = asyncio.get_running_loop().create_task(self.use(wanted))

    async def stop(self) -> None:
        if self._bridges is not None:
            await self._bridges.stop()

    def views(self) -> list[BridgeView]:
        """What can be seen of them now."""
        return [] if self._bridges is None else self._bridges.views()
