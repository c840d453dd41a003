"""A broker as a process: logging, limits, signals."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from headwater.build_info import version_line
from headwater.disk.errors import StorageError
from headwater.node.admin.secret import read_token
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.operations.checking import cannot_listen, check_needs
from headwater.node.operations.connection_log import log_connections
from headwater.node.operations.logs import BackgroundHandler, make_small_records, open_sinks
from headwater.node.operations.process import Collector, give_way_soon, keep_what_is_freed
from headwater.node.operations.reloading import Reloader
from headwater.node.plane.selector import run
from headwater.node.protocol.statistics import Statistics
from headwater.node.settings import ConfigError
from headwater.node.transports.contexts import CertificateError
from headwater.node.transports.sockets import is_loopback
from headwater.node.workers.parts import check_workers

if TYPE_CHECKING:
    from headwater.node.http.process import HttpProcess
    from headwater.node.transports.listener import Listener

log = logging.getLogger("headwater")

HOW_TO_ADMIT = (
    "to admit those with a password, make a file with `headwater passwd` and set access.password_file; to admit "
    "everybody, set allow_anonymous = true"
)
ENOUGH_FILES = 4096
"""Below, the limit of open files is too low for most; above, only for who has asked for more connections."""
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
        check_needs(config)
        check_workers(config)
        if config.admin.enabled:
            read_token(config.admin)
        handler = BackgroundHandler(open_sinks(config.log_to), config.log_format)
    except ConfigError as error:
        print(f"headwater: {error}", file=sys.stderr)
        return 1
    make_small_records()
    logging.basicConfig(level=config.log_level.upper(), handlers=[handler])
    again = read or (lambda: config)
    try:
        if config.workers > 1:
            from headwater.node.workers.supervisor import Supervisor  # only loaded where it is needed

            return asyncio.run(Supervisor(config, again, handler.reopen).run(live))
        files = raise_file_limit(config)
        return run(_serve(config, live, again, handler, files))
    except OSError as error:
        print(f"headwater: {cannot_listen(error, config)}", file=sys.stderr)
        return 1
    except (ConfigError, CertificateError, StorageError) as error:
        print(f"headwater: {error}", file=sys.stderr)
        return 1
    finally:
        handler.finish()


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
    announce(broker)
    try:
        http = await start_http(broker, reloader) if config.admin.enabled or config.rest.enabled else None
    except BaseException:
        await broker.stop()
        raise
    Collector(loop).start()
    if live is not None:
        await show(broker.statistics, live, stop)
    await stop.wait()
    log.info("stopping: %d connections", broker.statistics().connections)
    if http is not None:
        await http.stop()
    await broker.stop()
    return 0 if broker.failure is None else 1


async def start_http(broker: Broker, reloader: Reloader) -> HttpProcess:
    """A process of its own, beside clients that are served already."""
    process = await asyncio.to_thread(import_module, "headwater.node.http.process")
    http: HttpProcess = process.HttpProcess(broker)
    await http.start()
    if broker.config.admin.enabled:
        reloader.token = http
    return http


async def show(statistics: Callable[[], Statistics], live: LiveView, stop: asyncio.Event) -> None:
    with live:
        while not stop.is_set():
            live.update(statistics())
            try:
                await asyncio.wait_for(stop.wait(), 1.0)
            except TimeoutError:
                continue


def announce(broker: Broker) -> None:
    """Say where clients are served, and which."""
    config = broker.config
    for listener in broker.listeners:
        for place in listener.places():
            log.info("listening on %s", place)
    log.info("%s", version_line())
    if broker.store is not None:
        log.info("messages are stored under the id %s; the next position is %d", broker.store.id, broker.store.next)
        log.info("%s", _kept_for(broker))
    if broker.proxy is not None:
        return  # the home broker admits clients
    asked = config.access.authenticates or broker.hooks.listens("connect_authenticate")
    _say_who_is_admitted(broker, asked)
    for listener in broker.listeners:
        settings = listener.settings
        anonymous = config.allow_anonymous if settings.allow_anonymous is None else settings.allow_anonymous
        open_to_anonymous = anonymous or (anonymous is None and not asked)
        if settings.protocol == "websocket" and not settings.websocket_origins and open_to_anonymous:
            log.warning("%s accepts anonymous clients from any web page; websocket_origins says which may", listener)


def _say_who_is_admitted(broker: Broker, asked: bool) -> None:
    """`asked`: something can tell who a client is."""
    allowed = broker.config.allow_anonymous
    if allowed:
        log.warning("anonymous clients are accepted from anywhere; nobody is asked for a password")
    elif allowed is None and not asked:
        log.warning("anonymous clients are accepted from this machine (loopback); nobody is asked for a password")
        if any(_reaches_others(listener) for listener in broker.listeners):
            log.warning("clients from other machines are refused (not authorized); %s", HOW_TO_ADMIT)
    elif not asked and not any(listener.settings.allow_anonymous for listener in broker.listeners):
        log.warning("no client is admitted: allow_anonymous is false, and nothing tells who one is; %s", HOW_TO_ADMIT)


def _reaches_others(listener: Listener) -> bool:
    """Whether it hears other machines, and leaves to us whether anonymous clients are admitted."""
    settings = listener.settings
    if settings.unix or settings.allow_anonymous is not None or (settings.tls and settings.tls.username != "none"):
        return False
    return any(not is_loopback(each.getsockname()[0]) for each in listener.sockets)


def _kept_for(broker: Broker) -> str:
    from headwater.node.delivery.opening import retention_of

    retention = retention_of(broker.config.store, Path(broker.config.data_dir))
    age = "for ever" if retention.age is None else f"for {retention.age / 86_400e6:g} days (store.keep_for)"
    size = "" if retention.size is None else f", and at most {retention.size:,} bytes of them (store.keep_bytes)"
    history = broker.config.store.history
    if history.url:
        gone = (
            f"older ones are in object storage at {history.url}, to which they go {history.after:g} s after they came"
        )
        return f"messages are kept here {age}{size}; {gone}; while it is away, up to store.hard_keep_for and _bytes"
    return f"messages are kept {age}{size}; what a named reader has not read, up to store.hard_keep_for and _bytes"


def raise_file_limit(config: Config) -> int:
    """Use as many files as the system lets us, and return how many of them MQTT clients may have. Warn where that is
    fewer than were asked for, or few by any measure: the default of `max_connections` is more than most systems give
    and than most people need. HTTP has its own, in another process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = config.max_connections + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    limit = wanted if soft == resource.RLIM_INFINITY else soft
    _make_room_for_files(min(wanted, limit))
    files = max(1, limit - min(SPARE_FILES, limit // 2))
    if limit < (wanted if "max_connections" in config.model_fields_set else min(wanted, ENOUGH_FILES)):
        log.warning(
            "at most %d MQTT clients can connect at a time, as the limit of open files is %d: raise it with "
            "`ulimit -n %d` (systemd: LimitNOFILE=%d), or set max_connections to what you need",
            files,
            limit,
            wanted,
            wanted,
        )
    return files


def _make_room_for_files(number: int) -> None:
    """Use a high descriptor once. The system's table of our files then has its final size: each time it doubled, under
    a rush of connections, all clients would wait for some ten milliseconds."""
    with contextlib.suppress(OSError), open(os.devnull, "rb") as something:
        os.close(fcntl.fcntl(something.fileno(), fcntl.F_DUPFD_CLOEXEC, number - 1))
