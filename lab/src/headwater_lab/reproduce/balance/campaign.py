"""The processes of an experiment: two per trial, a broker and a driver; trials of a batch side by side."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Final, NamedTuple

from headwater_lab.reproduce.balance.board import Board
from headwater_lab.reproduce.balance.brokers import Told, serve
from headwater_lab.reproduce.balance.driver import ARRIVAL_LIMIT, Request, TrialOutcome, drive
from headwater_lab.reproduce.balance.plan import INTERVAL, LEAD, Trial
from headwater_lab.reproduce.process import STOP_LIMIT, Process, ProcessError, preload

PREPARATION: Final = LEAD + INTERVAL + 0.2
"""Seconds from the start of a batch to its first message: all members connect in that time."""
START_LIMIT: Final = 30.0


Watch = Callable[[float], None]
"""Called a few times a second with the seconds gone, out of `batch_seconds`."""


class Result(NamedTuple):
    """A trial and what came of it; `told`: the reports as the broker got them."""

    trial: Trial
    outcome: TrialOutcome
    told: list[Told]


def _process(work: Callable[[Trial, Path, Connection], None], trial: Trial, board: Path) -> Process:
    name = f"{work.__module__.rpartition('.')[2]} of {trial.setting.name}/{trial.contender.name}"
    return Process(name, work, trial, board)


def prepare() -> None:
    """Let the server of processes import what they need, once."""
    preload(
        [
            "headwater_lab.reproduce.balance.brokers",
            "headwater_lab.reproduce.balance.driver",
            "headwater_lab.reproduce.balance.paho_members",
            "headwater.node.broker",
            "paho.mqtt.client",
        ]
    )


def run_batch(trials: Sequence[Trial], progress: Watch) -> list[Result]:
    """Run trials side by side. `progress` is called a few times a second with the seconds gone, out of
    `batch_seconds`."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headwater-balance-")))
        boards = [folder / str(number) for number in range(len(trials))]
        for trial, board in zip(trials, boards, strict=True):
            Board(board, len(trial.setting.services))
        pairs = list(zip(trials, boards, strict=True))
        brokers = [stack.enter_context(_process(serve, *pair)) for pair in pairs]
        drivers = [stack.enter_context(_process(drive, *pair)) for pair in pairs]
        ports = [broker.receive(START_LIMIT) for broker in brokers]
        begin = time.monotonic() + PREPARATION
        for trial, driver, port in zip(trials, drivers, ports, strict=True):
            driver.pipe.send(Request(port, begin + trial.offset))
        outcomes = collect(drivers, batch_seconds(trials), progress)
        records = []
        for broker in brokers:
            broker.pipe.send("stop")
            records.append(broker.receive(STOP_LIMIT))
    return [Result(*each) for each in zip(trials, outcomes, records, strict=True)]


def batch_seconds(trials: Sequence[Trial]) -> float:
    return PREPARATION + max(trial.offset + trial.messages * trial.setting.period for trial in trials)


def collect(drivers: list[Process], seconds: float, progress: Watch) -> list[TrialOutcome]:
    """The drivers' answers, as they come."""
    begin = time.monotonic()
    outcomes: dict[str, TrialOutcome] = {}
    waiting = {driver.pipe: driver for driver in drivers}
    while waiting:
        gone = time.monotonic() - begin
        progress(min(gone, seconds))
        if gone > seconds + 2 * ARRIVAL_LIMIT:
            raise ProcessError(f"the {next(iter(waiting.values())).name} did not end in time")
        for pipe in wait(list(waiting), 0.25):
            assert isinstance(pipe, Connection)
            driver = waiting.pop(pipe)
            answer = driver.receive(STOP_LIMIT)
            if not isinstance(answer, TrialOutcome):
                raise ProcessError(f"the {driver.name} failed: {answer}")
            outcomes[driver.name] = answer
    return [outcomes[driver.name] for driver in drivers]
