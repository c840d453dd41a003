"""REST on sockets, in a thread and an event loop of its own: a long question keeps nobody else from being served."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Final

import uvicorn

from headwater.store.rest.app import make_app
from headwater.store.rest.context import Context, Limits
from headwater.store.rest.gate import Gate
from headwater.store.store import Store

log = logging.getLogger("headwater.rest")

FAREWELL: Final = 2
"""Seconds that answers may still take when it stops."""
IDLE: Final = 30
"""Seconds that a connection without a request is kept."""
LONGEST_HEAD: Final = 256 << 10
"""Bytes of a request's head: room for the longest topic, each byte written as three."""
STALLED: Final = 60
"""Seconds after which a caller that reads nothing of an answer is cut off."""


CUT: Final = (
    "ASGI callable returned without completing response.",
    "Cancel %s running task(s), timeout graceful shutdown exceeded",
)


class _Server(uvicorn.Server):
    """Signals are not ours."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _NoNewsOfCuts(logging.Filter):
    """An answer that is cut off on purpose was logged where that was decided, or the server stops."""

    def filter(self, record: logging.LogRecord) -> bool:
        cancelled = record.exc_info is not None and record.exc_info[0] is asyncio.CancelledError
        return record.msg not in CUT and not cancelled


class RestServer:
    """Serves from `start` to `stop`, which may be called from any thread but its own. The sockets listen already; they
    are closed with it. `max_connections` counts those that are idle, too."""

    def __init__(
        self,
        store: Store,
        gate: Gate,
        sockets: list[socket.socket],
        *,
        limits: Limits | None = None,
        max_connections: int = 128,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.sockets = sockets
        self.app = make_app(store, gate, limits)
        self._context: Context = self.app.state.context
        config = uvicorn.Config(
            self.app,
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            limit_concurrency=max_connections + 1,  # uvicorn refuses from this one on
            timeout_keep_alive=IDLE,
            timeout_graceful_shutdown=FAREWELL,
            h11_max_incomplete_event_size=LONGEST_HEAD,
        )
        config.load()
        config.ssl = context
        self._server = _Server(config)
        self._thread = threading.Thread(target=self._run, name="rest", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_up = threading.Event()
        for each in sockets:
            with contextlib.suppress(OSError):  # of other kinds than TCP; accepted ones inherit it
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED * 1000)

    @property
    def port(self) -> int:
        return int(self.sockets[0].getsockname()[1])

    def start(self) -> None:
        logging.getLogger("uvicorn.error").addFilter(NO_NEWS_OF_CUTS)
        self._thread.start()
        self._is_up.wait()

    def stop(self) -> None:
        """Answers that are under way may take a moment more; then all connections end."""
        loop = self._loop
        if loop is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # it has just ended by itself
                loop.call_soon_threadsafe(self._end)
        if self._thread.ident is not None:
            self._thread.join()
        self._context.threads.stop()
        for each in self.sockets:
            each.close()

    def _end(self) -> None:
        self._server.should_exit = True
        self._context.threads.stopping = True
        self._context.tails.wake()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:
            log.exception("REST has ended")
        finally:
            self._is_up.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._is_up.set)
        await self._server.serve(self.sockets)
        for connection in list(self._server.server_state.connections):
            transport: asyncio.Transport | None = getattr(connection, "transport", None)
            if transport is not None:  # of somebody that does not read
                transport.abort()
        await asyncio.sleep(0)


NO_NEWS_OF_CUTS: Final = _NoNewsOfCuts()
