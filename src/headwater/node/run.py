"""A broker as a process: logging, limits, signals."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
import sys
from types import TracebackType
from typing import Protocol

from headwater.build_info import version_line
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.logs import BackgroundHandler
from headwater.node.selector import run
from headwater.node.statistics import Statistics

log = logging.getLogger("headwater")

SPARE_FILES = 64
"""File descriptors that a process needs beside its connections."""


class LiveView(Protocol):
    """Shows what a broker does, once a second."""

    def __enter__(self) -> object: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def update(self, statistics: Statistics) -> None: ...


def run_broker(config: Config, live: LiveView | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code."""
    handler = BackgroundHandler(sys.stderr)
    logging.basicConfig(level=config.log_level.upper(), handlers=[handler])
    _raise_file_limit(config.max_connections)
    try:
        return run(_serve(config, live))
    except OSError as error:
        print(
            f"headwater: cannot listen on {config.host}:{config.port}: {error.strerror or error}; "
            "is another broker running there? Choose another with --port.",
            file=sys.stderr,
        )
        return 1
    finally:
        handler.finish()


async def _serve(config: Config, live: LiveView | None) -> int:
    broker = Broker(config)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await broker.start()
    # What is here now stays: the collector need not look at it again, and seldom at the rest.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    _announce(broker)
    if live is not None:
        await _show(broker, live, stop)
    await stop.wait()
    log.info("stopping: %d connections", broker.statistics().connections)
    await broker.stop()
    return 0


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
    for host, port in broker.addresses:
        log.info("listening on %s port %d", host, port)
    log.info("%s", version_line())
    if config.allow_anonymous or (config.allow_anonymous is None and not broker.hooks.listens("connect_authenticate")):
        where = "from anywhere" if config.allow_anonymous else "from this machine (loopback)"
        log.warning("anonymous clients are accepted %s; nobody is asked for a password", where)


def _raise_file_limit(connections: int) -> None:
    """Use as many files as the system lets us; warn when that is fewer than the connections we would accept."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_FILES
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
