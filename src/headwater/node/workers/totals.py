"""What the workers of a node have counted together.

Each is asked once a second. What a worker that died had counted stays in the totals, as it was last seen. Every worker
is told what the others have, for its `$SYS`: so its subscribers see the node's figures, whichever worker has them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter

from headwater.metric import added, plus_counters
from headwater.node.delivery.figures import StoreSeen
from headwater.node.http.link import LinkLost
from headwater.node.operations.worker_figures import WorkerSeen
from headwater.node.protocol.group_view import GroupView
from headwater.node.protocol.statistics import Statistics
from headwater.node.workers.process import WorkerProcess

log = logging.getLogger("headwater.workers")

EVERY: Final = 1.0
"""Seconds between looks."""
GROUPS_EVERY: Final = 5
"""Looks between two at shared groups."""


class Look(NamedTuple):
    statistics: Statistics
    worker: WorkerSeen
    store: StoreSeen | None


_LOOK: Final = TypeAdapter(Look)
GROUPS: Final = TypeAdapter(list[GroupView])


class Totals:
    def __init__(self, workers: Sequence[WorkerProcess]) -> None:
        self._workers = workers
        self._started_at = time.monotonic()
        self._looks: dict[int, Look] = {}
        self._groups: dict[int, list[GroupView]] = {}
        self._gone: Statistics | None = None
        """What workers had counted that died."""
        self._count = 0

    async def watch(self) -> None:
        """For ever."""
        while True:
            try:
                await self.look()
                self._tell_others()
            except Exception:
                log.exception("looking at the workers failed")
            await asyncio.sleep(EVERY)

    async def look(self) -> None:
        with_groups = self._count % GROUPS_EVERY == 0
        self._count += 1
        await asyncio.gather(*(self._look_at(each, with_groups) for each in self._workers))

    async def _look_at(self, worker: WorkerProcess, with_groups: bool) -> None:
        link = worker.link
        if link is None:
            return
        with contextlib.suppress(LinkLost):
            said: dict[str, Any] = await link.ask("look")
            look = _LOOK.validate_python([said[name] for name in Look._fields])
            if with_groups:
                has_groups = look.statistics.shared_groups > 0
                self._groups[worker.number] = GROUPS.validate_json(await link.ask("groups")) if has_groups else []
            if worker.link is link:
                self._looks[worker.number] = look

    def went(self, worker: WorkerProcess) -> None:
        """It has ended."""
        look = self._looks.pop(worker.number, None)
        self._groups.pop(worker.number, None)
        if look is not None:
            self._gone = plus_counters(self._gone or Statistics(), look.statistics)

    def statistics(self) -> Statistics:
        """Of the node, as they were at the last look."""
        return self.of([each.statistics for each in self._looks.values()])

    def of(self, live: Sequence[Statistics]) -> Statistics:
        """Of the node, where its workers have counted this."""
        found = added(live) if live else Statistics()
        found.uptime = time.monotonic() - self._started_at
        return found if self._gone is None else plus_counters(found, self._gone)

    def workers(self) -> list[WorkerSeen]:
        return [self._worker(each) for each in self._workers]

    def _worker(self, worker: WorkerProcess) -> WorkerSeen:
        look = self._looks.get(worker.number)
        seen = WorkerSeen("", process=worker.process) if look is None else look.worker
        seen.name, seen.restarts = str(worker.number), worker.restarts
        return seen

    def _tell_others(self) -> None:
        for worker in self._workers:
            others = [look for number, look in self._looks.items() if number != worker.number]
            stores = [look.store for look in others if look.store is not None]
            groups = [group for number, some in self._groups.items() if number != worker.number for group in some]
            worker.tell(
                "others",
                statistics=self.of([each.statistics for each in others]) if others or self._gone else None,
                store=added(stores) if stores else None,
                groups=groups,
            )
