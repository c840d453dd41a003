"""An ASGI application on sockets, in a thread and an event loop of its own, for callers of any kind.

Whoever calls keeps nobody else from being served: neither by many connections nor by silent ones (admission.py), nor by
requests and answers that do not end (connection.py). Sockets are accepted a few at a time and counted from then on, so
that the process has no more files open than `Bounds` says.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import uvicorn
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.server import ServerState

from headwater.web.addresses import is_within, network_of
from headwater.web.admission import Bounds, Places
from headwater.web.connection import Connection

log = logging.getLogger("headwater.web")

FAREWELL: Final = 2.0
"""Seconds that answers may still take when it stops."""
ACCEPTED: Final = 16
"""Connections that are accepted before others have their turn."""
PAUSE: Final = 1.0
"""Seconds until the next attempt to accept, when the process has no file left."""
FULL: Final = b'{"error":"unavailable","detail":"too many requests are being answered; try again"}'

Scope = Any
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

CUT: Final = (
    "ASGI callable returned without completing response.",
    "Cancel %s running task(s), timeout graceful shutdown exceeded",
)


class _NoNewsOfCuts(logging.Filter):
    """An answer that is cut off on purpose was logged where that was decided, or the server stops."""

    def filter(self, record: logging.LogRecord) -> bool:
        cancelled = record.exc_info is not None and record.exc_info[0] is asyncio.CancelledError
        return record.msg not in CUT and not cancelled


NO_NEWS_OF_CUTS: Final = _NoNewsOfCuts()


class WebServer:
    """Serves from `start` to `stop`, which may be called from any thread but its own. The sockets listen already; they
    are closed with it. `open_paths` are answered when there is room for nothing else: health. `stopping` is called in
    the server's loop when the end begins."""

    def __init__(
        self,
        app: Application,
        sockets: list[socket.socket],
        bounds: Bounds,
        *,
        name: str,
        open_paths: Sequence[str] = (),
        context: ssl.SSLContext | None = None,
        stopping: Callable[[], None] | None = None,
    ) -> None:
        self.sockets = sockets
        self.bounds = bounds
        self.places = Places(bounds)
        self.name = name
        self._context = context
        self._told = stopping
        if bounds.trusted_proxies:
            app = ProxyHeadersMiddleware(app, list(bounds.trusted_proxies))
        self._config = _config(app, bounds)
        self._health = _config(_HealthOnly(app, open_paths), bounds)
        self._state = ServerState()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._is_up = threading.Event()
        for each in sockets:
            each.setblocking(False)
            with contextlib.suppress(OSError):  # of other kinds than TCP; accepted ones inherit it
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def port(self) -> int:
        return int(self.sockets[0].getsockname()[1])

    def start(self) -> None:
        logging.getLogger("uvicorn.error").addFilter(NO_NEWS_OF_CUTS)
        self._thread.start()
        self._is_up.wait()

    def stop(self) -> None:
        """Answers that are under way may take a moment more; then all connections end."""
        loop, end = self._loop, self._end
        if loop is not None and end is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # it has just ended by itself
                loop.call_soon_threadsafe(end.set)
        if self._thread.ident is not None:
            self._thread.join()
        for each in self.sockets:
            each.close()

    # ---- in its own thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:
            log.exception("%s has ended", self.name)
        finally:
            self._is_up.set()

    async def _serve(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        for each in self.sockets:
            loop.add_reader(each.fileno(), self._accept, each)
        loop.call_soon(self._is_up.set)
        await self._end.wait()
        for each in self.sockets:
            loop.remove_reader(each.fileno())
        if self._told is not None:
            self._told()
        await self._finish()

    async def _finish(self) -> None:
        for connection in list(self._state.connections):
            connection.shutdown()
        deadline = asyncio.get_running_loop().time() + FAREWELL
        while (self._state.connections or self._state.tasks) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.02)
        for connection in list(self._state.connections):  # of somebody that does not read
            if isinstance(connection, Connection):
                connection.abort()
        left = [*self._state.tasks, *self._tasks]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.sleep(0)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED):
            try:
                connection, peer = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                self._accept_failed(listening, error)
                return
            self._take(connection, str(peer[0]) if isinstance(peer, tuple) else "")

    def _accept_failed(self, listening: socket.socket, error: OSError) -> None:
        log.error("%s cannot accept a connection: %s; raise the limit of open files (ulimit -n)", self.name, error)
        assert self._loop is not None
        self._loop.remove_reader(listening.fileno())
        self._loop.call_later(PAUSE, self._accept_again, listening)

    def _accept_again(self, listening: socket.socket) -> None:
        if self._loop is not None and self._end is not None and not self._end.is_set():
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _take(self, accepted: socket.socket, host: str) -> None:
        accepted.setblocking(False)
        loop = asyncio.get_running_loop()
        is_trusted = bool(self.bounds.trusted_proxies) and is_within(host, self.bounds.trusted_proxies)
        place = self.places.admit(network_of(host), is_trusted)
        config = self._health if place.is_spare else self._config
        connection = Connection(config, self._state, place, self.bounds, loop.time())
        task = loop.create_task(self._open(accepted, connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

        def give_way() -> None:
            connection.abort()
            if not connection.is_begun:
                accepted.close()  # a task that is cancelled before its first step has none
            task.cancel()  # in the middle of its TLS handshake

        place.end = give_way

    async def _open(self, accepted: socket.socket, connection: Connection) -> None:
        connection.is_begun = True
        loop = asyncio.get_running_loop()
        opened = False
        try:
            async with asyncio.timeout(self.bounds.first_byte):
                await loop.connect_accepted_socket(lambda: connection, accepted, ssl=self._context)
            opened = True
        except (OSError, TimeoutError):  # ssl.SSLError is an OSError
            pass
        finally:
            if not opened:
                connection.place.leave()


def _config(app: Application, bounds: Bounds) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        loop="asyncio",
        interface="asgi3",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,  # by default uvicorn believes anybody on this machine
        h11_max_incomplete_event_size=bounds.head_size,
    )
    config.load()
    return config


class _HealthOnly:
    """What a connection gets for which there is no place but a spare one, and with which it ends."""

    def __init__(self, app: Application, paths: Sequence[str]) -> None:
        self._app = app
        self._paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in self._paths:
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(FULL)),
                (b"retry-after", b"1"),
            ]
            await send({"type": "http.response.start", "status": 503, "headers": headers})
            await send({"type": "http.response.body", "body": FULL})
            return
        await self._app(scope, receive, send)
