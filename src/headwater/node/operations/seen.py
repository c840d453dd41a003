"""What is seen of a broker at one moment, as data: taken on its loop, told elsewhere (metrics.py, the admin API).

Lag is how late a timer of the data plane is called. A look every `LAG_EVERY` seconds is enough to see a loop that is
kept from its work, and costs nothing that could be measured.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headwater.metric import gauge
from headwater.node.advice.figures import AdviceSeen, see_advice
from headwater.node.bridge.view import BridgeView
from headwater.node.delivery.figures import StoreSeen
from headwater.node.forwarding.view import ForwardView
from headwater.node.links.figures import ClusterSeen, EdgeSeen, see_cluster
from headwater.node.operations.worker_figures import WorkerSeen
from headwater.node.protocol.group_view import GroupView
from headwater.node.protocol.statistics import Statistics
from headwater.node.proxy.figures import ProxySeen, see_proxy

if TYPE_CHECKING:
    from headwater.node.broker import Broker

LAG_EVERY: Final = 0.1
LAG_BUCKETS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass
class LagSeen:
    counts: list[int] = field(default_factory=lambda: [0] * (len(LAG_BUCKETS) + 1))
    """Of each bucket alone; the last one is for what is above all."""
    seconds: float = 0.0


@dataclass
class Seen:
    statistics: Statistics
    groups: list[GroupView]
    bridges: list[BridgeView]
    advice: AdviceSeen | None
    store: StoreSeen | None
    lag: LagSeen | None
    process: int
    """The broker's id for the system."""
    tasks: int = gauge("Tasks of the broker's event loop.")
    timers: int = gauge("Deadlines that are waited for.")
    memory_blocks: int = gauge("Blocks of memory that Python has in use.")
    cluster: ClusterSeen | None = None
    proxy: ProxySeen | None = None
    edge: EdgeSeen | None = None
    forwards: list[ForwardView] = field(default_factory=list)
    workers: list[WorkerSeen] = field(default_factory=list)
    """None: this process is all there is."""


def see(
    broker: Broker,
    groups: list[GroupView],
    store: StoreSeen | None = None,
    lag: LagSeen | None = None,
) -> Seen:
    """On the broker's loop."""
    try:
        tasks = len(asyncio.all_tasks())
    except RuntimeError:  # there is no loop
        tasks = 0
    server = broker.server
    return Seen(
        broker.statistics(),
        groups,
        broker.bridges.views(),
        None if server.advising is None else see_advice(server.advising),
        store,
        lag,
        os.getpid(),
        tasks,
        len(server.timers),
        sys.getallocatedblocks(),
        None if broker.cluster is None else see_cluster(broker.cluster.view()),
        None if broker.proxy is None else see_proxy(broker.proxy),
        None if broker.cluster is None or broker.cluster.owning is None else broker.cluster.owning.figures(),
        forwards=broker.forwards.views(),
    )


class Lag:
    """Measures how late the data plane's timers are, as long as it runs."""

    def __init__(self, broker: Broker) -> None:
        self.seen = LagSeen()
        self._broker = broker
        self._due = 0.0
        self._stopped = False

    def start(self) -> None:
        now = time.monotonic()
        self._due = now + LAG_EVERY
        self._broker.server.timers.at(self._due, self._look)
        self._broker.server.plane.wake()

    def stop(self) -> None:
        self._stopped = True

    def _look(self) -> None:
        late = max(0.0, time.monotonic() - self._due)
        self.seen.counts[bisect_left(LAG_BUCKETS, late)] += 1
        self.seen.seconds += late
        if not self._stopped:
            self.start()
