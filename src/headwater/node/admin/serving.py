"""The admin API beside a broker in one process, on a port of its own and in a thread of its own: for programs of one's
own. `headwater broker` has it in another process (node/http)."""

from __future__ import annotations

import asyncio
import logging

from headwater.node.admin.app import make_app
from headwater.node.admin.desk import Desk
from headwater.node.admin.local import LocalReach
from headwater.node.admin.token import OPEN, FixedToken
from headwater.node.broker import Broker
from headwater.node.config import Admin
from headwater.node.transports.sockets import listen_tcp
from headwater.web.serving import WebServer

log = logging.getLogger("headwater.admin")


class AdminServer:
    """Serves the admin API of a broker that has started. Made on the broker's loop; stop it before the broker."""

    def __init__(self, broker: Broker, settings: Admin) -> None:
        self.settings = settings
        self.guard = FixedToken(settings)
        self._desk = Desk(broker)
        self._app = make_app(LocalReach(self._desk, asyncio.get_running_loop()), self.guard)
        self._server: WebServer | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.port

    async def start(self) -> None:
        """Listen. Raises OSError when the address cannot be listened on."""
        settings = self.settings
        sockets = listen_tcp(settings.host, settings.port)
        self._server = WebServer(self._app, sockets, settings.bounds("admin"), name="admin", open_paths=OPEN)
        await asyncio.to_thread(self._server.start)
        self._desk.start()
        log.info("the admin API is at http://%s:%d", settings.host, self.port)

    async def stop(self) -> None:
        """Answers that are under way may ask the broker meanwhile."""
        self._desk.stop()
        if self._server is not None:
            await asyncio.to_thread(self._server.stop)
