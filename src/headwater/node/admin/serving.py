"""The admin API on a port of its own, in the broker's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Final

import uvicorn

from headwater.node.admin.app import make_app
from headwater.node.admin.token import TokenGuard
from headwater.node.broker import Broker
from headwater.node.config import Admin
from headwater.node.metrics import Lag, registry_of
from headwater.node.transports.sockets import close_all, listen_tcp

log = logging.getLogger("headwater.admin")

MOST_CONNECTIONS: Final = 64
FAREWELL: Final = 1
"""Seconds that requests may still take when the broker stops."""


class _Server(uvicorn.Server):
    """Signals are the broker's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class AdminServer:
    """Serves the admin API of a broker that has started."""

    def __init__(self, broker: Broker, settings: Admin) -> None:
        self.settings = settings
        self.guard = TokenGuard(settings)
        registry = registry_of(broker)
        self._lag = Lag(broker, registry)
        self._app = make_app(broker, self.guard, registry)
        self._server = _Server(
            uvicorn.Config(
                self._app,
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                limit_concurrency=MOST_CONNECTIONS + 1,  # uvicorn refuses from this one on
                timeout_keep_alive=5,
                timeout_graceful_shutdown=FAREWELL,
            )
        )
        self._sockets: list[socket.socket] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        return int(self._sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Listen. Raises OSError when the address cannot be listened on."""
        self._sockets = listen_tcp(self.settings.host, self.settings.port)
        self._task = asyncio.get_running_loop().create_task(self._server.serve(self._sockets))
        self._lag.start()
        log.info("the admin API is at http://%s:%d", self.settings.host, self.port)

    async def stop(self) -> None:
        self._lag.stop()
        self._app.state.tracing.stop()
        if self._task is not None:
            self._server.should_exit = True
            await self._task
        close_all(self._sockets)
