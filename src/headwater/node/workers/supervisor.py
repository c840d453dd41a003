"""`headwater broker --workers N`: the process that was started, which serves no clients itself.

Theory. It starts N workers, each a broker in a process of its own (worker.py) with its part of the data (parts.py), on
the same ports (places.py). They are nodes of a cluster over Unix sockets, so a message that is published at one reaches
subscribers of all, by the layer that joins machines (docs/adr/0025-links.md). To the outside they are one node: signals
come here, and so does the admin API, which asks all of them (desk.py). A worker that dies is started again, with its
data; its clients reconnect, and find another one meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
from collections.abc import Callable, Coroutine
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headwater.disk.lock import FolderLock, make_folder
from headwater.node.admin.secret import read_token
from headwater.node.config import Config
from headwater.node.operations.reloading import changed_settings
from headwater.node.run import LiveView, show
from headwater.node.settings import ConfigError
from headwater.node.workers.desk import NodeDesk
from headwater.node.workers.parts import LinksFolder, make_links_folder, packed, part_of
from headwater.node.workers.places import Places
from headwater.node.workers.process import WorkerProcess
from headwater.node.workers.totals import Totals

if TYPE_CHECKING:
    from headwater.node.http.process import HttpProcess

log = logging.getLogger("headwater.workers")

OURS: Final = ("workers", "host", "port", "listeners")
"""Settings that workers do not look at: they have them from here."""


class Supervisor:
    """`read` reads the settings again; `reopen_log` begins log files anew."""

    def __init__(self, config: Config, read: Callable[[], Config], reopen_log: Callable[[], None]) -> None:
        self._given = config
        self._config = config
        self._read = read
        self._reopen_log = reopen_log
        self._links: LinksFolder | None = None
        self._workers: list[WorkerProcess] = []
        self._totals = Totals(self._workers)
        self._desk = NodeDesk(self._workers, self._totals)
        self._http: HttpProcess | None = None
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, live: LiveView | None = None) -> int:
        """Until SIGTERM or SIGINT; returns the exit code. Raises OSError, ConfigError, StorageError."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        lock = _locked(self._given.data_dir)
        places = Places(self._given)
        try:
            self._config = places.open()
            self._links = make_links_folder(self._config.data_dir)
            await self._start(places)
            await self._serve(live)
            log.info("stopping: %d connections", self._totals.statistics().connections)
        finally:
            for task in list(self._tasks):
                task.cancel()
            if self._http is not None:
                await self._http.stop()
            await asyncio.gather(*(each.stop() for each in self._workers))
            places.close()
            if lock is not None:
                lock.release()
            if self._links is not None and self._links.is_temporary:
                shutil.rmtree(self._links.path, ignore_errors=True)
        return 0

    async def _start(self, places: Places) -> None:
        """Raises ConfigError: what keeps one worker from starting keeps the node."""
        assert self._links is not None
        for number in range(self._config.workers):
            part = part_of(self._config, number, self._links)
            worker = WorkerProcess(number, self._config.workers, part, places.unix, packed, self._changed)
            self._workers.append(worker)
        for worker in self._workers:
            worker.start()
        begun = asyncio.create_task(self._all_begun())
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait((begun, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not begun.done():
            begun.cancel()
            return
        failures = begun.result()
        if failures:
            raise ConfigError(failures[0])
        self._workers[0].tell("announce")
        if self._config.admin.enabled:
            process = await asyncio.to_thread(import_module, "headwater.node.http.process")
            http: HttpProcess = process.HttpProcess(None, self._desk, self._config)
            await http.start()
            self._http = http
        log.info("%d workers serve clients as one broker", len(self._workers))

    async def _all_begun(self) -> list[str]:
        """Why some have not."""
        return [why for each in self._workers if (why := await asyncio.shield(each.begun))]

    async def _serve(self, live: LiveView | None) -> None:
        if self._stop.is_set():
            return
        self._do(self._totals.watch())
        if live is not None:
            await self._totals.look()
            await show(self._totals.statistics, live, self._stop)
        await self._stop.wait()

    def _changed(self, worker: WorkerProcess) -> None:
        """A worker has come up, or has gone."""
        if worker.link is None:
            self._totals.went(worker)
        elif worker.restarts:
            log.info("worker-%d serves clients again", worker.number)
            self._do(self._desk.teach(worker))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _reload(self) -> None:
        self._reopen_log()
        try:
            fresh = self._read()
            if self._http is not None:
                read_token(fresh.admin)
                self._http.use(fresh.admin)
        except ConfigError as error:
            log.error("the settings cannot be used, and stay as they are: %s", error)
            return
        waiting = [name for name in changed_settings(self._given, fresh) if name in OURS]
        if waiting:
            log.warning("changed, but only a restart takes them over: %s", ", ".join(waiting))
        ours = {name: getattr(self._config, name) for name in OURS}
        logging.getLogger().setLevel(fresh.log_level.upper())
        assert self._links is not None
        for worker in self._workers:
            worker.use(part_of(fresh.model_copy(update=ours), worker.number, self._links))


def _locked(data_dir: str) -> FolderLock | None:
    """The whole of it: each worker has the lock of its part. Raises StorageError."""
    if not data_dir:
        return None
    make_folder(Path(data_dir))
    return FolderLock(Path(data_dir))
