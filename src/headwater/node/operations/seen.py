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

from headwater.node.bridge.view import BridgeView
from headwater.node.protocol.group_view import GroupView
from headwater.node.protocol.statistics import Statistics

if TYPE_CHECKING:
    from headwater.node.advice.advising import Advising
    from headwater.node.broker import Broker
    from headwater.node.delivery.coordinator import Coordinator

MOST_READERS: Final = 100
LAG_EVERY: Final = 0.1
LAG_BUCKETS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass
class LagSeen:
    counts: list[int] = field(default_factory=lambda: [0] * (len(LAG_BUCKETS) + 1))
    """Of each bucket alone; the last one is for what is above all."""
    seconds: float = 0.0


@dataclass
class StoreSeen:
    taken: int
    stored_bytes: int
    pending: int
    seconds: float
    first: int
    next: int
    topics: int
    size: int
    payload_size: int
    blocks: int
    unsealed: int
    lags: dict[str, int]
    """Messages that a reader has not committed, of the first readers."""


@dataclass
class AdviceSeen:
    counts: dict[str, int]
    in_force: int


@dataclass
class Seen:
    statistics: Statistics
    groups: list[GroupView]
    bridges: list[BridgeView]
    advice: AdviceSeen | None
    store: StoreSeen | None
    lag: LagSeen | None
    tasks: int
    timers: int
    memory_blocks: int
    process: int
    """The broker's id for the system."""


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
        broker.bridges(),
        None if server.advising is None else see_advice(server.advising),
        store,
        lag,
        tasks,
        len(server.timers),
        sys.getallocatedblocks(),
        os.getpid(),
    )


def see_advice(advising: Advising) -> AdviceSeen:
    return AdviceSeen(dict(advising.counts), len(advising.in_force()))


def see_store(coordinator: Coordinator) -> StoreSeen:
    """In any thread: it may wait for who makes blocks."""
    store = coordinator.store
    now = store.statistics()
    last = store.next - 1
    return StoreSeen(
        coordinator.taken_messages,
        coordinator.bytes_stored,
        coordinator.pending,
        coordinator.seconds,
        now.first,
        now.next,
        now.topics,
        now.size,
        now.payload_size,
        now.blocks,
        now.unsealed,
        {reader.name: max(0, last - reader.position) for reader in store.readers()[:MOST_READERS]},
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
