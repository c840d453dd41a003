"""A cloud that starts when half of the readings are made: the earlier part comes by REST, the later one by MQTT.

The cloud is headwater.edge.mirror as people use it.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from headwater.client import Client
from headwater.edge.copies import Copy
from headwater.edge.mirror import Mirror, Report, Wishes
from headwater.edge.outputs import FunctionOutput
from headwater.fleet.node import RunningNode
from headwater.store.reader import StoreReader
from headwater_lab.reproduce.edge.devices import Ready, Sent, made, send
from headwater_lab.reproduce.edge.plan import FILTERS, Scenario
from headwater_lab.reproduce.edge.trial import ANSWER_LIMIT, START_LIMIT, Watch, begin_soon, expect
from headwater_lab.reproduce.process import Process

INTERVAL: Final = 0.5


class LateOutcome(NamedTuple):
    """`before`: messages in the store when the cloud started. `copies`: what it has in the end, in its order."""

    scenario: Scenario
    seed: int
    before: int
    report: Report
    made: list[tuple[str, bytes]]
    copies: list[Copy]


def run_late(scenario: Scenario, seed: int, progress: Watch) -> LateOutcome:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headwater-edge-")))
        node = stack.enter_context(RunningNode(folder))
        devices = stack.enter_context(Process("devices", send, scenario, seed, node.port))
        expect(devices, Ready, START_LIMIT)
        begin = begin_soon()
        devices.pipe.send(begin)
        half = begin.at + scenario.seconds / 2
        while time.monotonic() < half:
            time.sleep(min(0.25, max(0.0, half - time.monotonic())))
            progress(max(0.0, time.monotonic() - begin.at))
        reader = StoreReader(node.url)
        before = reader.status()["next"] - 1
        copies: list[Copy] = []
        wishes = Wishes(FILTERS, interval=INTERVAL, until_complete=True)
        client = Client("127.0.0.1", node.port)
        mirror = Mirror(
            client, reader, FunctionOutput(copies.extend), wishes, lambda report: progress(time.monotonic() - begin.at)
        )
        report = asyncio.run(asyncio.wait_for(mirror.run(), ANSWER_LIMIT + scenario.seconds))
        expect(devices, Sent, ANSWER_LIMIT)
    return LateOutcome(scenario, seed, before, report, made(scenario, seed, begin.wall), copies)
