"""One worker: a broker in a process of its own, which the supervisor starts, tells its settings, asks and stops.

Signals of a terminal or a service manager are for the supervisor. If that is killed, the link to it ends, and so does
this process, at once, as by a crash: another supervisor may want the data folder.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter

from headwater.disk.errors import StorageError
from headwater.metric import read_all
from headwater.node.admin import desk as admin
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.delivery.figures import StoreSeen
from headwater.node.http.link import Asked, Link
from headwater.node.operations.checking import cannot_listen
from headwater.node.operations.connection_log import log_connections
from headwater.node.operations.logs import BackgroundHandler, make_small_records, open_sinks
from headwater.node.operations.process import Collector, give_way_soon, keep_what_is_freed
from headwater.node.operations.reloading import Reloader
from headwater.node.operations.worker_figures import WorkerSeen
from headwater.node.plane.selector import run
from headwater.node.protocol.statistics import Statistics
from headwater.node.protocol.sys_topics import Others
from headwater.node.run import announce, raise_file_limit, start_http
from headwater.node.settings import ConfigError
from headwater.node.transports.contexts import CertificateError
from headwater.node.workers.parts import name_of, unpacked

if TYPE_CHECKING:
    from headwater.node.http.process import HttpProcess

log = logging.getLogger("headwater")

LARGEST: Final = 256 << 20
"""Bytes of what the supervisor says, which is trusted."""
LINK_WAIT: Final = 10.0
"""Seconds that a worker waits for its links with the others before it takes clients all the same."""
LOOK: Final = 0.01
_OTHERS: Final = TypeAdapter(Others)


def main() -> None:
    """Argument: the descriptor of the link to the supervisor."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    keep_what_is_freed()
    give_way_soon()
    code = run(Worker().run(socket.socket(fileno=int(sys.argv[1]))))
    sys.exit(code)


class Worker:
    def __init__(self) -> None:
        self._questions: dict[str, Asked] = {}
        self._link = Link(self._questions, self._told, _end, LARGEST)
        self._begun: asyncio.Future[dict[str, Any]]
        self._stop = asyncio.Event()
        self._config = Config()
        self._others = 0
        self._broker = Broker()
        self._reloader: Reloader | None = None
        self._handler: BackgroundHandler | None = None

    async def run(self, connection: socket.socket) -> int:
        loop = asyncio.get_running_loop()
        self._begun = loop.create_future()
        await loop.create_unix_connection(lambda: self._link, sock=connection)
        begin = await self._begun
        config = self._config = unpacked(begin["settings"])
        try:
            make_small_records()
            self._handler = BackgroundHandler(open_sinks(config.log_to), config.log_format)
            self._handler.addFilter(_Named(begin["number"]))
            logging.basicConfig(level=config.log_level.upper(), handlers=[self._handler])
            return await self._serve(config, begin)
        except OSError as error:
            self._link.tell("failed", text=cannot_listen(error, config))
        except (ConfigError, CertificateError, StorageError) as error:
            self._link.tell("failed", text=str(error))
        finally:
            if self._handler is not None:
                self._handler.finish()
        return 1

    async def _serve(self, config: Config, begin: dict[str, Any]) -> int:
        self._others = begin["count"] - 1
        broker = self._broker = Broker(config)
        broker.server.most_sockets = raise_file_limit(config)
        broker.handed = begin["unix"]
        broker.before_clients = self._linked
        broker.others.without = partial(of_clients, broker)
        broker.on_failure = self._stop.set
        log_connections(broker.hooks)
        assert self._handler is not None
        self._reloader = Reloader(broker, lambda: self._config, self._handler.reopen)
        desk = WorkerDesk(broker)
        self._questions |= {name: getattr(desk, name) for name in (*admin.OPERATIONS, "look")}
        await broker.start()
        desk.start()
        try:
            http: HttpProcess | None = await start_http(broker, self._reloader) if config.rest.enabled else None
        except BaseException:
            await broker.stop()
            raise
        Collector(asyncio.get_running_loop()).start()
        self._link.tell("ready")
        await self._stop.wait()
        desk.stop()
        if http is not None:
            await http.stop()
        await broker.stop()
        return 0 if broker.failure is None else 1

    async def _linked(self) -> None:
        """What is published at another worker reaches clients here from the first one on."""
        deadline = time.monotonic() + LINK_WAIT
        cluster = self._broker.cluster
        assert cluster is not None
        while sum(each.state == "up" for each in cluster.view().links) < self._others and not self._stop.is_set():
            if time.monotonic() >= deadline:
                log.warning("not linked with all workers after %g s; clients are taken all the same", LINK_WAIT)
                return
            await asyncio.sleep(LOOK)

    def _told(self, name: str, said: dict[str, Any]) -> None:
        if name == "begin":
            self._begun.set_result(said)
        elif name == "stop":
            self._stop.set()
        elif name == "announce":
            announce(self._broker)
        elif name == "settings" and self._reloader is not None:
            self._config = unpacked(said["settings"])
            self._reloader.reload()
        elif name == "others":
            found = _OTHERS.validate_python(said)
            others = self._broker.others
            others.statistics, others.store, others.groups = found.statistics, found.store, found.groups


class WorkerDesk(admin.Desk):
    """A desk that the supervisor asks. Figures are of clients: what came from other workers was counted there."""

    def statistics(self) -> Statistics:
        return of_clients(self.broker, super().statistics())

    async def seen(self) -> Any:
        found = await super().seen()
        found.statistics = of_clients(self.broker, found.statistics)
        return found

    def look(self) -> dict[str, Any]:
        """What the supervisor asks for every second."""
        statistics = self.statistics()
        cluster = self.broker.cluster
        links = [] if cluster is None else cluster.view().links
        worker = WorkerSeen(
            name="" if cluster is None else cluster.node,
            process=os.getpid(),
            up=self.broker.is_ready(),
            uptime=statistics.uptime,
            connections=statistics.connections,
            sessions=statistics.sessions,
            messages_received=self.broker.server.stats.messages_received,
            messages_sent=statistics.messages_sent,
            forwarded=sum(each.messages_sent for each in links),
            dropped=sum(each.dropped for each in links),
            links_up=sum(each.state == "up" for each in links),
            spool_bytes=sum(each.spool_bytes for each in links),
            cpu_seconds=time.process_time(),
            resident_bytes=_resident(),
        )
        coordinator = self.broker.server.coordinator
        store = None if coordinator is None else StoreSeen(**read_all(StoreSeen, coordinator))
        return {"statistics": statistics, "worker": worker, "store": store}


def of_clients(broker: Broker, statistics: Statistics) -> Statistics:
    """Without what came from and went to other workers."""
    if broker.cluster is not None:
        links = broker.cluster.view().links
        messages = sum(each.messages_received for each in links)
        statistics.messages_received -= messages
        statistics.received -= messages
        statistics.bytes_received -= sum(each.bytes_received for each in links)
        statistics.bytes_sent -= sum(each.bytes_sent for each in links)
    return statistics


class _Named(logging.Filter):
    """Says which worker a line is of."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._name = name_of(number)

    def filter(self, record: logging.LogRecord) -> bool:
        record.name = f"{self._name} {record.name}"
        return True


def _resident() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:  # not Linux
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _end(why: str) -> None:
    os._exit(1)
