"""A cloud that starts when half of the readings are made: the earlier part comes by REST, the later one by MQTT.

The cloud is headwater.edge.mirror as people use it, one for each delivery tier.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final, NamedTuple

from headwater.client import Client
from headwater.edge.copies import Copy
from headwater.edge.mirror import Mirror, Report, Wishes
from headwater.edge.outputs import FunctionOutput
from headwater.edge.state import State
from headwater_lab.reproduce.edge.devices import Ready, Sent, made, send
from headwater_lab.reproduce.edge.ground import Ground
from headwater_lab.reproduce.edge.plan import Load, Scenario
from headwater_lab.reproduce.edge.trial import ANSWER_LIMIT, START_LIMIT, Watch, begin_soon, expect
from headwater_lab.reproduce.process import Process

INTERVAL: Final = 0.5


class LateOutcome(NamedTuple):
    """`before`: messages in the stores when the cloud started. `reports` and `copies` are of the delivery tiers: what
    the cloud has of each in the end, in its order."""

    scenario: Scenario
    load: Load
    seed: int
    before: int
    reports: list[Report]
    made: list[tuple[str, bytes]]
    copies: list[list[Copy]]

    @property
    def recovered(self) -> int:
        return sum(report.recovered for report in self.reports)

    @property
    def live(self) -> int:
        return sum(report.live for report in self.reports)


def run_late(grounds: Sequence[Ground], load: Load, seed: int, progress: Watch) -> list[LateOutcome]:
    """At all of these at the same time; each has a seed of its own."""
    seeds = range(seed, seed + len(grounds))
    begins = [ground.nexts() for ground in grounds]
    with ExitStack() as stack:
        devices = [
            stack.enter_context(Process("devices", send, ground.scenario, load, each, ground.ports))
            for ground, each in zip(grounds, seeds, strict=True)
        ]
        for process in devices:
            expect(process, Ready, START_LIMIT)
        begin = begin_soon()
        for process in devices:
            process.pipe.send(begin)
        half = begin.at + load.seconds / 2
        while time.monotonic() < half:
            time.sleep(min(0.25, max(0.0, half - time.monotonic())))
            progress(max(0.0, time.monotonic() - begin.at))
        nexts = [ground.nexts() for ground in grounds]
        copies: list[list[list[Copy]]] = [[[] for _ in ground.stores] for ground in grounds]
        mirrors = [_mirrors(*each) for each in zip(grounds, begins, copies, strict=True)]
        reports = asyncio.run(_all(mirrors, ANSWER_LIMIT + load.seconds))
        for process in devices:
            expect(process, Sent, ANSWER_LIMIT)
    return [
        LateOutcome(
            *(ground.scenario, load, seeds[at], sum(nexts[at]) - sum(begins[at])),
            *(reports[at], made(load, seeds[at], begin.wall), copies[at]),
        )
        for at, ground in enumerate(grounds)
    ]


def _mirrors(ground: Ground, begins: list[int], copies: list[list[Copy]]) -> list[Mirror]:
    """From these positions on; what is before them is of another load. A mirror asks all stores of the edges for its
    topics, so it finds what is in the wrong one."""
    ids = [store.store_id() for store in ground.stores]
    found = []
    for tier, (port, filters) in enumerate(ground.sources):
        states = [State(id, filters, begin - 1) for id, begin in zip(ids, begins, strict=True)]
        own = states.pop(tier)
        output = FunctionOutput(partial(_take, copies, ids, tier), own._replace(others=tuple(states)))
        wishes = Wishes(filters, interval=INTERVAL, until_complete=True)
        found.append(Mirror(Client("127.0.0.1", port), ground.stores[tier], output, wishes))
    return found


def _take(copies: list[list[Copy]], ids: list[str], tier: int, came: Sequence[Copy]) -> None:
    for copy in came:
        copies[ids.index(copy.store) if copy.store else tier].append(copy)


async def _all(mirrors: Sequence[Sequence[Mirror]], limit: float) -> list[list[Report]]:
    async with asyncio.timeout(limit):
        return [
            list(each)
            for each in await asyncio.gather(
                *(asyncio.gather(*(mirror.run() for mirror in of_scenario)) for of_scenario in mirrors)
            )
        ]
