"""The forwards that a broker has now. What they need, a client among it, is only loaded where there are any."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headwater.node.config import Config
    from headwater.node.forwarding.forwards import Forwards
    from headwater.node.forwarding.preparing import Prepared
    from headwater.node.forwarding.view import ForwardView
    from headwater.node.protocol.server import Server
    from headwater.store.store import Store

READER: Final = "forward:"
"""What the names of forwards' readers begin with."""
FOLDER: Final = "forward"
"""In the data folder: how far each has come."""

log: Final = logging.getLogger("headwater.forward")


class UsedForwards:
    """`store` is asked for once there is one."""

    def __init__(self, server: Server, store: Callable[[], Store | None]) -> None:
        self._server = server
        self._store = store
        self._forwards: Forwards | None = None
        self._changing: asyncio.Task[None] | None = None

    def prepare(self, config: Config) -> list[Prepared]:
        """Read the files of the forwards in these settings; nothing changes. Raises ConfigError, CertificateError."""
        if not config.forward:
            return []
        from headwater.node.forwarding.preparing import prepare_all

        return prepare_all(config)

    async def use(self, wanted: list[Prepared]) -> None:
        """Have these forwards and no others."""
        store = self._store()
        if store is None:
            return
        if self._forwards is None and wanted:
            from headwater.node.forwarding.forwards import Forwards

            self._forwards = Forwards(self._server, store)
        if self._forwards is not None:
            await self._forwards.use(wanted)
        self._say_who_holds(store)

    def use_soon(self, wanted: list[Prepared]) -> None:
        """The same, without waiting for those that have to part from their remote first."""
        if wanted or self._forwards is not None:
            self._changing = asyncio.get_running_loop().create_task(self.use(wanted))

    async def stop(self) -> None:
        if self._forwards is not None:
            await self._forwards.stop()

    def views(self) -> list[ForwardView]:
        """What can be seen of them now."""
        return [] if self._forwards is None else self._forwards.views()

    def _say_who_holds(self, store: Store) -> None:
        """A forward that was taken out of the settings goes on to hold messages back: nothing is lost by a mistake."""
        names = {READER + each.name for each in self._server.config.forward}
        for reader in store.readers():
            if reader.name.startswith(READER) and reader.name not in names:
                log.warning(
                    "messages from %d on are held back for %s, and no forward has this name; if it is not to come "
                    "back: headwater store readers --forget %s",
                    *(reader.position + 1, reader.name, reader.name),
                )
