"""A broker as a process: logging, limits, signals."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from headwater.build_info import version_line
from headwater.disk.errors import StorageError
from headwater.node.admin.secret import read_token
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.connection_log import log_connections
from headwater.node.logs import BackgroundHandler, open_sinks
from headwater.node.process import Collector, give_way_soon, keep_what_is_freed
from headwater.node.reloading import Reloader
from headwater.node.selector import run
from headwater.node.settings import ConfigError
from headwater.node.statistics import Statistics
from headwater.node.transports.contexts import CertificateError
from headwater.node.transports.sockets import address_text
from headwater.node.web_settings import most_connections
from headwater.web.admission import SPARE

if TYPE_CHECKING:
    from headwater.node.admin.serving import AdminServer
    from headwater.node.delivery.serving import Rest

log = logging.getLogger("headwater")

ADMIN_NEEDS = ("fastapi", "uvicorn", "prometheus_client")
STORE_NEEDS = ("rocksdict", "numpy", "orjson", "zstandard")
REST_NEEDS = ("fastapi", "uvicorn")
ADVICE = {
    errno.EADDRINUSE: "; is another broker running there? Stop it, or choose another port.",
    errno.EADDRNOTAVAIL: "; `host` is an address of this machine, or * for all",
    errno.EACCES: "; this user may not: choose a port from 1024 on, give the process CAP_NET_BIND_SERVICE, or (Unix "
    "socket) let the user write to its folder",
    errno.ENOENT: "; make its folder first",
}
SPARE_FILES = 64
"""File descriptors that a process needs beside its connections."""


class LiveView(Protocol):
    """Shows what a broker does, once a second."""

    def __enter__(self) -> object: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def update(self, statistics: Statistics) -> None: ...


def run_broker(config: Config, live: LiveView | None = None, read: Callable[[], Config] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code. `read` reads the settings again, on SIGHUP."""
    try:
        _check_needs(config)
        handler = BackgroundHandler(open_sinks(config.log_to), config.log_format)
    except ConfigError as error:
        print(f"headwater: {error}", file=sys.stderr)
        return 1
    logging.basicConfig(level=config.log_level.upper(), handlers=[handler])
    files = _raise_file_limit(config)
    try:
        return run(_serve(config, live, read or (lambda: config), handler, files))
    except OSError as error:
        where = error.filename or address_text(config.host, config.port)
        print(f"headwater: cannot listen on {where}: {error.strerror or error}{advice(error)}", file=sys.stderr)
        return 1
    except (ConfigError, CertificateError, StorageError) as error:
        print(f"headwater: {error}", file=sys.stderr)
        return 1
    finally:
        handler.finish()


def advice(error: OSError) -> str:
    """What to do when nothing can be listened on."""
    if isinstance(error, socket.gaierror):
        return "; `host` is a name or an address of this machine, or * for all"
    return ADVICE.get(error.errno or 0, "")


def _check_needs(config: Config) -> None:
    """Say what is missing for what is configured before anything is started."""
    for needed, what, table, extra, libraries in (
        (config.admin.enabled, "the admin API", "admin", "admin", ADMIN_NEEDS),
        (config.store.enabled, "the delivery store", "store", "store", STORE_NEEDS),
        (config.rest.enabled, "REST", "rest", "store", REST_NEEDS),
    ):
        missing = [name for name in libraries if needed and find_spec(name) is None]
        if missing:
            raise ConfigError(
                f"{what} needs {' and '.join(missing)}: pip install 'headwater[{extra}]', or set {table}.enabled to "
                "false"
            )
    if config.admin.enabled:
        read_token(config.admin)


async def _serve(
    config: Config, live: LiveView | None, read: Callable[[], Config], handler: BackgroundHandler, files: int
) -> int:
    keep_what_is_freed()
    give_way_soon()
    broker = Broker(config)
    broker.server.most_sockets = files
    log_connections(broker.hooks)
    stop = asyncio.Event()
    reloader = Reloader(broker, read, handler.reopen)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, reloader.reload)
    broker.on_failure = stop.set
    await broker.start()
    _announce(broker)
    rest: Rest | None = None
    try:
        rest = await _start_rest(broker) if config.rest.enabled else None
        admin = await _start_admin(broker, reloader) if config.admin.enabled else None
    except BaseException:
        if rest is not None:
            await rest.stop()
        await broker.stop()
        raise
    Collector(loop).start()
    if live is not None:
        await _show(broker, live, stop)
    await stop.wait()
    log.info("stopping: %d connections", broker.statistics().connections)
    if admin is not None:
        await admin.stop()
    if rest is not None:
        await rest.stop()
    await broker.stop()
    return 0 if broker.failure is None else 1


async def _start_rest(broker: Broker) -> Rest:
    """Loaded as the admin API is, beside clients that are served already."""
    serving = await asyncio.to_thread(import_module, "headwater.node.delivery.serving")
    assert broker.store is not None
    rest: Rest = serving.Rest(broker, broker.store)
    await rest.start()
    return rest


async def _start_admin(broker: Broker, reloader: Reloader) -> AdminServer:
    """Its libraries take most of a second to load: another thread does that, and clients are served meanwhile."""
    serving = await asyncio.to_thread(import_module, "headwater.node.admin.serving")
    admin: AdminServer = serving.AdminServer(broker, broker.config.admin)
    try:
        await admin.start()
    except OSError as error:
        where = address_text(broker.config.admin.host, broker.config.admin.port)
        error.filename = f"http://{where} for the admin API (admin.host, admin.port)"
        raise
    reloader.token = admin.guard
    return admin


async def _show(broker: Broker, live: LiveView, stop: asyncio.Event) -> None:
    with live:
        while not stop.is_set():
            live.update(broker.statistics())
            try:
                await asyncio.wait_for(stop.wait(), 1.0)
            except TimeoutError:
                continue


def _announce(broker: Broker) -> None:
    config = broker.config
    for listener in broker.listeners:
        for place in listener.places():
            log.info("listening on %s", place)
    log.info("%s", version_line())
    if broker.store is not None:
        log.info("messages are stored under the id %s; the next position is %d", broker.store.id, broker.store.next)
    asked = config.access.authenticates or broker.hooks.listens("connect_authenticate")
    if config.allow_anonymous or (config.allow_anonymous is None and not asked):
        where = "from anywhere" if config.allow_anonymous else "from this machine (loopback)"
        log.warning("anonymous clients are accepted %s; nobody is asked for a password", where)
    for listener in broker.listeners:
        settings = listener.settings
        anonymous = config.allow_anonymous if settings.allow_anonymous is None else settings.allow_anonymous
        open_to_anonymous = anonymous or (anonymous is None and not asked)
        if settings.protocol == "websocket" and not settings.websocket_origins and open_to_anonymous:
            log.warning("%s accepts anonymous clients from any web page; websocket_origins says which may", listener)


def _raise_file_limit(config: Config) -> int:
    """Use as many files as the system lets us, and return how many of them MQTT clients may have: HTTP has its own, so
    that neither keeps the other out. Warn when that is fewer than the connections we would accept."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = config.max_connections
    http = [each for each in (config.admin, config.rest) if each.enabled]
    wanted = connections + SPARE_FILES + sum(each.max_connections + SPARE for each in http)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        target = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        if target < wanted:
            log.warning(
                "the limit of open files (%d) is below max_connections (%d): raise it with `ulimit -n %d` "
                "(systemd: LimitNOFILE=%d) or lower max_connections",
                target,
                connections,
                wanted,
                wanted,
            )
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    _make_room_for_files(min(wanted, limit))
    if limit == resource.RLIM_INFINITY:
        return wanted
    taken = sum(min(each.max_connections, most_connections(limit)) + SPARE for each in http)
    return max(1, limit - SPARE_FILES - taken)


def _make_room_for_files(number: int) -> None:
    """Use a high descriptor once. The system's table of our files then has its final size: each time it doubled, under
    a rush of connections, all clients would wait for some ten milliseconds."""
    with contextlib.suppress(OSError), open(os.devnull, "rb") as something:
        os.close(fcntl.fcntl(something.fileno(), fcntl.F_DUPFD_CLOEXEC, number - 1))
