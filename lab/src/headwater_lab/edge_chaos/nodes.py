"""A node of an edge as a process. Besides what nodes of clusters are told: who is to own a filter, what it knows of its
edge, and at which crash point it is to die, which may be said at any time (pipeline_chaos/orders.py)."""

from __future__ import annotations

import asyncio
import json
import re
import time
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from headwater.disk.crash_points import VARIABLE
from headwater.edge.status import EdgeStatus, decode, encode
from headwater.fleet.process import free_port
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater_lab.chaos.lives import Process
from headwater_lab.cluster_chaos.namespaces import Namespaces
from headwater_lab.cluster_chaos.nodes import ClusterNode, answer, obeyed, serve
from headwater_lab.cluster_chaos.relay import Relay
from headwater_lab.edge_chaos.broken import BROKEN
from headwater_lab.edge_chaos.layout import Place
from headwater_lab.pipeline_chaos.orders import Orders

JOIN: Final = "-"
"""In place of the node that is to own a filter: that of the filter around it."""
DAY: Final = 86_400.0
_LINK_ENDED: Final = re.compile(r"^(\d\d:\d\d:\d\d\.\d\d\d) link with node \S+ ended", re.MULTILINE)
_TASKS: Final[set[asyncio.Task[None]]] = set()


class EdgeNode(ClusterNode):
    """`broken`: what it does wrong, "" for nothing."""

    def __init__(
        self, name: str, place: Place, folder: Path, network: Relay | Namespaces, disk: str, broken: str
    ) -> None:
        super().__init__(name, folder, network, disk)
        self.place = place
        self.broken = broken
        self.rest = free_port()
        """Where REST listens, if it does: the same port over all its lives."""
        self.deaths = Orders(folder / name)
        self._requests = 0

    def _spawn(self, crash_at: str) -> Process:
        return super()._spawn(crash_at or self.deaths.environment[VARIABLE])

    def live(self, config: Config, network: str) -> int:
        if self.broken:
            BROKEN[self.broken]()
        return serve(config, self.disk, network, self.clock, _obeyed)

    @property
    def lives(self) -> bool:
        return self.port != 0 and self.process is not None and self.process.poll() is None

    def request(self, what: str, *words: str) -> Path:
        """An order that is answered in this file, some time."""
        self._requests += 1
        file = self.log.parent / f"{what}-{self._requests}.answer"
        self.order(what, str(file), *words)
        return file

    def ends_of_links(self) -> list[float]:
        """When they were, on the driver's clock; its log has the time of day."""
        now, of_day = time.monotonic(), datetime.now()
        found = []
        for clock in _LINK_ENDED.findall(self.log.read_text(errors="replace")):
            ago = of_day - datetime.combine(of_day.date(), datetime.strptime(clock, "%H:%M:%S.%f").time())
            found.append(now - (ago.total_seconds() % DAY))
        return found

    def edge(self) -> EdgeStatus:
        """What it knows. Raises BrokerFailed."""
        return decode(self.ask("edge"))


def answered(file: Path) -> Any:
    """None: not yet."""
    return json.loads(file.read_text()) if file.exists() else None


def _obeyed(broker: Broker, words: list[str]) -> None:
    cluster = broker.cluster
    assert cluster is not None
    match words:
        case ["own", file, filter, to]:
            task = asyncio.get_running_loop().create_task(_own(broker, file, filter, "" if to == JOIN else to))
            _TASKS.add(task)
            task.add_done_callback(_TASKS.discard)
        case ["edge", file]:
            status = cluster.edge()
            assert status is not None
            answer(file, encode(status))
        case _:
            obeyed(broker, words)


async def _own(broker: Broker, file: str, filter: str, to: str) -> None:
    assert broker.cluster is not None
    try:
        text = await broker.cluster.own_filter(filter, to, False)
    except ValueError as error:
        answer(file, {"done": False, "text": str(error)})
    else:
        answer(file, {"done": True, "text": text})
