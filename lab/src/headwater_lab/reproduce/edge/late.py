"""A cloud that starts when half of the readings are made: the earlier part comes by REST, the later one by MQTT.

The cloud is headwater.edge.mirror as people use it, one for each delivery tier.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack
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
        mirrors = [
            [_mirror(ground, tier, begins[at][tier], copies[at][tier]) for tier in range(len(ground.stores))]
            for at, ground in enumerate(grounds)
        ]
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


def _mirror(ground: Ground, tier: int, begin: int, copies: list[Copy]) -> Mirror:
    """From a position on; what is before it is of another load."""
    port, filters = ground.sources[tier]
    store = ground.stores[tier]
    output = FunctionOutput(copies.extend, State(store.store_id(), filters, begin - 1))
    return Mirror(Client("127.0.0.1", port), store, output, Wishes(filters, interval=INTERVAL, until_complete=True))


async def _all(mirrors: Sequence[Sequence[Mirror]], limit: float) -> list[list[Report]]:
    async with asyncio.timeout(limit):
        return [
            list(each)
            for each in await asyncio.gather(
                *(asyncio.gather(*(mirror.run() for mirror in of_scenario)) for of_scenario in mirrors)
            )
        ]
