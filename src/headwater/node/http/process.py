"""The node's side of the HTTP process: starts it, answers it, starts it again if it dies, and ends it.

The node listens, so that what cannot be listened on is said at the start, and so that callers find somebody there when
the process comes back. What is asked is done on the broker's loop (admin/desk.py, delivery/desk.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Protocol

from headwater.node.admin import desk as admin
from headwater.node.admin.secret import hash_of, read_token
from headwater.node.broker import Broker
from headwater.node.config import Admin, Config
from headwater.node.delivery import desk as delivery
from headwater.node.delivery.gate import BrokerGate
from headwater.node.delivery.listening import context_of, listen_for_rest, read_rest_token, rest_url
from headwater.node.delivery.peers import peer_token_of
from headwater.node.http.link import Asked, Link
from headwater.node.http.state import (
    BANS,
    ERASURES,
    FIRST,
    GENERATION,
    HELD,
    HISTORY,
    LARGEST,
    NEXT,
    OPEN_METRICS,
    READY,
    WATCHING,
    Bell,
    SharedState,
)
from headwater.node.settings import ConfigError
from headwater.node.transports.sockets import address_text, close_all, listen_tcp

if TYPE_CHECKING:
    from headwater.store.disk_store import DiskStore

log = logging.getLogger("headwater.http")

PROGRAM: Final = "from headwater.node.http.child import main; main()"
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 10.0
STEADY: Final = 30.0
"""Seconds after which a process that dies is started again as if it were the first time."""
FAREWELL: Final = 5.0
"""Seconds for the process to end when it is told to; then it is killed."""
LOOKS: Final = 0.25
"""Seconds between looks at what nobody tells us has changed."""
LONGEST_LINE: Final = 20_000
SECRETS: Final = {"enabled", "token", "token_file", "peer_token", "peer_token_file"}
HISTORY_CACHE: Final = 16 << 20
"""Bytes of objects of the history that the process keeps."""
PORTION: Final = 64 << 10
"""Bytes of a body beside its payload."""


class AnyDesk(Protocol):
    """Where the admin API's operations are done; each is a method, or a coroutine, of its name."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def leave(self) -> None: ...
    def is_ready(self) -> bool: ...


class HttpProcess:
    """REST and the admin API of a broker that has started, as its settings say. Stop it before the broker."""

    def __init__(self, broker: Broker | None, desk: AnyDesk | None = None, config: Config | None = None) -> None:
        """Without a broker, of several processes (node/workers): they have the admin API of this desk together."""
        self._broker = broker
        if broker is not None:
            config, desk = broker.config, admin.Desk(broker)
        assert config is not None and desk is not None
        self._config = config
        self._desk = desk
        self._state = SharedState()
        self._bell = Bell()
        self._admin: list[socket.socket] = []
        self._rest: list[socket.socket] = []
        self._store: DiskStore | None = None
        self._rest_desk: delivery.RestDesk | None = None
        self._questions: dict[str, Asked] = {}
        self._level = logging.getLogger().level
        self._link: Link | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._has_served = False
        self._stopped = asyncio.Event()
        self._supervising: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def rest_port(self) -> int:
        return _port(self._rest)

    @property
    def admin_port(self) -> int:
        return _port(self._admin)

    # ---- from start to stop ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, and begin to serve: who calls before the process is there waits for it. Raises OSError, whose
        `filename` says where it could not, ConfigError and CertificateError."""
        config = self._config
        try:
            if config.rest.enabled and self._broker is not None:
                self._prepare_rest(self._broker)
            if config.admin.enabled:
                self._prepare_admin()
        except BaseException:
            self._close()
            raise
        self._look_again()
        if self._broker is not None:
            self._broker.server.access.changed = self._look
        self._supervising = asyncio.get_running_loop().create_task(self._supervise())

    def _prepare_rest(self, broker: Broker) -> None:
        from headwater.store.disk_store import DiskStore  # an admin API alone does without its libraries

        settings, store = self._config.rest, broker.store
        if not isinstance(store, DiskStore):
            raise ConfigError("REST in a process of its own needs a delivery store on disk")
        self._store = store
        gate = BrokerGate(broker, settings, read_rest_token(settings))
        context_of(settings)  # what is wrong with a certificate is said at the start
        self._rest = listen_for_rest(settings)
        self._rest_desk = delivery.RestDesk(gate, store, self._synced)
        self._questions |= {name: getattr(self._rest_desk, name) for name in delivery.OPERATIONS}
        store.watch(self._stored)
        self._stored()

    def _prepare_admin(self) -> None:
        settings = self._config.admin
        self.use(settings)
        try:
            self._admin = listen_tcp(settings.host, settings.port)
        except OSError as error:
            where = address_text(settings.host, settings.port)
            error.filename = f"http://{where} for the admin API (admin.host, admin.port)"
            raise
        self._questions |= {name: getattr(self._desk, name) for name in admin.OPERATIONS}
        self._desk.start()

    async def stop(self) -> None:
        """Answers that are under way may ask the broker meanwhile."""
        self._stopped.set()
        self._desk.stop()
        if self._link is not None:
            self._link.tell("stop")
        if self._supervising is not None:
            try:
                await asyncio.wait_for(asyncio.shield(self._supervising), FAREWELL)
            except TimeoutError:
                log.warning("the HTTP process does not end, and is killed")
                if self._process is not None:
                    self._process.kill()
                await self._supervising
        self._close()

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._broker is not None:
            self._broker.server.access.changed = _nothing
        if self._rest_desk is not None and self._store is not None:
            self._store.unwatch(self._stored)
        close_all([*self._rest, *self._admin])
        self._bell.close()
        self._state.close()

    def use(self, settings: Admin) -> None:
        """From now on this token counts, for requests that are already on their way too. Raises ConfigError, and then
        the old one does."""
        self._state.token_hash = hash_of(read_token(settings))
        self._state[OPEN_METRICS] = settings.open_metrics

    # ---- what is shared ----------------------------------------------------------------------------------------

    def _stored(self) -> None:
        """By whatever thread has written or removed messages, or made a block; not by the loop, which would wait for
        them."""
        store = self._store
        assert store is not None
        found = store.statistics()
        held = (found.topics, found.size, found.payload_size, found.blocks, found.unsealed)
        with contextlib.suppress(ValueError):  # it has been stopped meanwhile
            for at, number in zip((*HELD, *HISTORY), (*held, *store.in_history), strict=True):
                self._state[at] = number
        self._synced()

    def _synced(self) -> None:
        store = self._store
        assert store is not None
        with contextlib.suppress(ValueError):  # it has been stopped meanwhile
            self._state[NEXT] = store.next
            self._state[FIRST] = store.first
            self._state[ERASURES] = store.erasures
            if self._state[WATCHING]:
                self._bell.ring()

    def _look(self) -> None:
        broker = self._broker
        self._state[READY] = self._desk.is_ready()
        if broker is not None:
            self._state[GENERATION] = broker.server.access.generation
            self._state[BANS] = broker.server.access.bans.changes
            self._state[LARGEST] = broker.config.max_payload_size or broker.config.max_packet_size
        if self._link is not None:
            self._link.frames.largest = self._largest()
            if self._level != logging.getLogger().level:
                self._level = logging.getLogger().level
                self._link.tell("log_level", level=self._level)

    def _look_again(self) -> None:
        self._look()
        self._timer = asyncio.get_running_loop().call_later(LOOKS, self._look_again)

    def _largest(self) -> int:
        return max(self._state[LARGEST], 1 << 20) + PORTION

    # ---- the process -------------------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        pause = FIRST_PAUSE
        while not self._stopped.is_set():
            began = time.monotonic()
            why = await self._live()
            if self._stopped.is_set():
                return
            pause = FIRST_PAUSE if time.monotonic() - began > STEADY else pause
            log.error("the HTTP process ended (%s); it is started again in %g s", why, pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _live(self) -> str:
        """A process from its beginning to its end; returns why it has ended."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        self._state[WATCHING] = 0
        lost: asyncio.Future[str] = loop.create_future()
        with theirs:
            try:
                with ThreadPoolExecutor(1) as ordinary:
                    self._process = process = await loop.run_in_executor(ordinary, self._spawn, theirs.fileno())
            except OSError as error:
                ours.close()
                return f"it could not be started: {error}"
        link = self._link = Link(self._questions, self._told, lost.set_result, self._largest())
        await loop.create_unix_connection(lambda: link, sock=ours)
        link.tell("begin", **self._begin())
        if self._stopped.is_set():
            link.tell("stop")
        why = await lost
        self._link = None
        self._desk.leave()
        if self._rest_desk is not None:
            self._rest_desk.leave()
        ended = await asyncio.to_thread(_reaped, process)
        self._process = None
        return why if not ended else f"{why}, {ended}"

    def _spawn(self, link: int) -> subprocess.Popen[bytes]:
        """In a thread of its own: a process has the priority of the thread that starts it, and HTTP has none."""
        with contextlib.suppress(OSError, AttributeError):  # not Linux
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        shared = [link, self._state.file, self._bell.heard]
        path = os.pathsep.join(each for each in sys.path if each)
        return subprocess.Popen(
            [sys.executable, "-P", "-c", PROGRAM, *map(str, shared)],
            stdin=subprocess.DEVNULL,
            pass_fds=[*shared, *(each.fileno() for each in (*self._rest, *self._admin))],
            env={**os.environ, "PYTHONPATH": path},
        )

    def _begin(self) -> dict[str, Any]:
        config, store = self._config, self._store
        rest = admin_api = None
        if self._rest:
            assert store is not None
            where = {"folder": str(store.path.absolute()), "id": store.id, "cache": config.store.cache_bytes}
            if config.store.history.url:
                history = config.store.history
                where["history"] = {"url": history.url, "options": history.revealed(), "cache": HISTORY_CACHE}
            rest = {"settings": _dumped(config.rest), "sockets": _numbers(self._rest), "store": where}
            rest["peer_token"] = peer_token_of(config)  # which it shows to other nodes
        if self._admin:
            admin_api = {"settings": _dumped(config.admin), "sockets": _numbers(self._admin)}
        return {"log_level": self._level, "rest": rest, "admin": admin_api}

    def _say_where(self) -> None:
        if self._has_served:
            log.info("HTTP is served again")
            return
        self._has_served = True
        if self._rest:
            log.info("REST is at %s", rest_url(self._config.rest, self.rest_port))
        if self._admin:
            log.info("the admin API is at http://%s", address_text(self._config.admin.host, self.admin_port))

    def _told(self, name: str, said: dict[str, Any]) -> None:
        """By the process, which strangers talk to."""
        if name == "serving":
            self._say_where()
        elif name == "log":
            level, text = said.get("level"), said.get("text")
            if isinstance(level, int) and isinstance(text, str):
                logging.getLogger(str(said.get("name"))[:100]).log(level, "%s", text[:LONGEST_LINE])


def _port(sockets: list[socket.socket]) -> int:
    return int(sockets[0].getsockname()[1])


def _numbers(sockets: list[socket.socket]) -> list[int]:
    return [each.fileno() for each in sockets]


def _dumped(settings: Any) -> dict[str, Any]:
    """Without its secrets, and so without `enabled`, which asks for them."""
    found: dict[str, Any] = settings.model_dump(mode="json", exclude=SECRETS)
    return found


def _reaped(process: subprocess.Popen[bytes]) -> str:
    """Wait for its end, which is near: nobody talks to it any more."""
    try:
        code = process.wait(FAREWELL)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}" if code else ""


def _nothing() -> None:
    pass
