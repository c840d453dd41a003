"""`headwater reproduce balance --cluster`: scenario 2 with its three members at three nodes of a cluster.

The publisher is at the first node. Beside each other, so that all share what the machine does meanwhile:

    one_node             `adaptive`, all members at one broker: what the others are measured by
    cross                `adaptive`, a member at each of three nodes that are linked each with each
    cross_round_robin    `round_robin`, likewise: the origin chooses nodes by turns, and looks at nothing else
    per_node             three nodes that are neighbours of each other (`cluster.neighbours`), where each has groups of
                         its own: every message is processed three times, once at each node
"""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Final

from headwater_lab import machine
from headwater_lab.cluster.nodes import wait_for_links_of
from headwater_lab.reproduce.balance import campaign, plan
from headwater_lab.reproduce.balance.board import Board
from headwater_lab.reproduce.balance.brokers import serve_node
from headwater_lab.reproduce.balance.driver import Request, TrialOutcome, drive
from headwater_lab.reproduce.balance.plan import Contender, Setting, Trial
from headwater_lab.reproduce.balance.results import quantile
from headwater_lab.reproduce.computing import stages
from headwater_lab.reproduce.page import Table
from headwater_lab.reproduce.process import Process, preload
from headwater_lab.reproduce.reporter import Report, Reporter
from headwater_lab.results import Record, record

NODES: Final = ("a", "b", "c")
ONE_NODE: Final = "one_node"
CROSS: Final = "cross"
PER_NODE: Final = "per_node"
LIMIT: Final = 1.5
"""Of `cross` against `one_node`, in the mean."""
LOST: Final = 1
"""Exit status when messages did not arrive."""
SETTLING: Final = 0.5
"""Seconds between the last link and the first member."""


@dataclass(frozen=True)
class Arrangement:
    """`has_neighbours`: nodes that are linked as they say, and have groups of their own."""

    name: str
    dispatcher: str
    nodes: int
    has_neighbours: bool = False


ARRANGEMENTS: Final = (
    Arrangement(ONE_NODE, "adaptive", 1),
    Arrangement(CROSS, "adaptive", 3),
    Arrangement("cross_round_robin", "round_robin", 3),
    Arrangement(PER_NODE, "adaptive", 3, has_neighbours=True),
)


@dataclass(frozen=True)
class Measured:
    """One arrangement in one phase; times in milliseconds."""

    name: str
    setting: Setting
    latencies: tuple[float, ...]
    shares: tuple[int, ...]
    """Messages by member."""
    messages: int
    lost: int

    @property
    def mean(self) -> float:
        return fmean(self.latencies) if self.latencies else 0.0


def run(
    quick: bool, json_file: Path | None, folder: Path | None, seed: int | None, duration: float = plan.DURATION
) -> int:
    """Run, print, write; the exit status, which tells whether messages were lost. Raises ProcessError, OSError."""
    reporter = Reporter(json_file, folder)
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    facts = machine.describe(f"headwater reproduce balance --cluster{' --quick' if quick else ''}", mosquitto=False)
    facts["seed"] = str(seed)
    reporter.begin(facts)
    preload(["headwater_lab.reproduce.balance.brokers", "headwater_lab.reproduce.balance.driver"])
    phases = plan.phases(1 if quick else plan.PHASES, 3, seed)
    settings = (plan.SCENARIO2,) if quick else (plan.SCENARIO2, plan.SCENARIO2_10MS)
    found: list[Measured] = []
    with stages(reporter.console, (duration + campaign.PREPARATION) * len(phases) * len(settings)) as stage:
        for setting in settings:
            for number, phase in enumerate(phases):
                watch = stage(f"{setting.name} ({number + 1} of {len(phases)})", duration + campaign.PREPARATION)
                found += measure(setting, phase, duration, watch)
    reporter.end(report(facts, found))
    lost = sum(each.lost for each in found)
    if lost:
        print(f"{lost} messages were lost", file=sys.stderr)
    return LOST if lost else 0


def measure(setting: Setting, phase: tuple[float, ...], duration: float, progress: campaign.Watch) -> list[Measured]:
    """All arrangements side by side."""
    trials = [
        Trial(
            setting, Contender(each.name, each.dispatcher), phase, number * setting.period / len(ARRANGEMENTS), duration
        )
        for number, each in enumerate(ARRANGEMENTS)
    ]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="headwater-across-")))
        nodes = [_nodes(stack, each, folder) for each in ARRANGEMENTS]
        drivers = []
        for number, trial in enumerate(trials):
            board = folder / str(number)
            Board(board, len(setting.services))
            drivers.append(stack.enter_context(Process(f"driver of {trial.contender.name}", drive, trial, board)))
        ports = [[node.receive(campaign.START_LIMIT) for node in each] for each in nodes]
        for each in ports:
            if len(each) > 1:
                wait_for_links_of(each)
        begin = time.monotonic() + SETTLING + campaign.PREPARATION
        for trial, driver, mine in zip(trials, drivers, ports, strict=True):
            members = tuple(mine[number % len(mine)] for number in range(len(setting.services)))
            driver.pipe.send(Request(mine[0], begin + trial.offset, members))
        outcomes = campaign.collect(drivers, campaign.batch_seconds(trials) + SETTLING, progress)
        for node in (node for each in nodes for node in each):
            node.pipe.send("stop")
    return [_measured(*each) for each in zip(trials, outcomes, strict=True)]


def _nodes(stack: ExitStack, arrangement: Arrangement, folder: Path) -> list[Process]:
    """Linked by Unix sockets in this folder: a port that is free may be somebody's by the time that it is used."""
    names = NODES[: arrangement.nodes]
    paths = [str(folder / f"{arrangement.name}-{name}.sock") for name in names]
    found = []
    for number, name in enumerate(names):
        cluster: dict[str, object] = {}
        if arrangement.nodes > 1:
            cluster = {"name": "balance", "node": name, "unix": paths[number]}
            cluster["join"] = [f"unix:{path}" for path in paths if path != paths[number]]
            if arrangement.has_neighbours:
                cluster["neighbours"] = [other for other in names if other != name]
        words = f"node {name} of {arrangement.name}"
        found.append(stack.enter_context(Process(words, serve_node, arrangement.dispatcher, cluster)))
    return found


def _measured(trial: Trial, outcome: TrialOutcome) -> Measured:
    shares = tuple(
        sum(each.member == member for each in outcome.taken) for member in range(len(trial.setting.services))
    )
    latencies = tuple(1000.0 * each.latency for each in outcome.taken)
    return Measured(trial.contender.name, trial.setting, latencies, shares, trial.messages, max(0, outcome.lost))


# ---- what came out ---------------------------------------------------------------------------------------------------


def report(facts: dict[str, str], found: Sequence[Measured]) -> Report:
    settings = list(dict.fromkeys(each.setting for each in found))
    return Report(
        "balance --cluster",
        facts,
        [_table(setting, found) for setting in settings],
        records(found),
        data={
            "trials": [
                {
                    "setting": each.setting.name,
                    "arrangement": each.name,
                    "messages": each.messages,
                    "lost": each.lost,
                    "mean_ms": round(each.mean, 3),
                    "member_messages": each.shares,
                }
                for each in found
            ]
        },
        draw=lambda _: [],
        stem="balance-cluster",
        title="Shared subscriptions with members at three nodes",
    )


def records(found: Sequence[Measured]) -> list[Record]:
    """The list for programs. Names without a setting are of scenario 2."""
    listed: list[Record] = []
    for setting in dict.fromkeys(each.setting for each in found):
        prefix = "shared" if setting == plan.SCENARIO2 else f"shared/{setting.name}"
        means = {name: _mean(_of(found, setting, name)) for name in dict.fromkeys(each.name for each in found)}
        for name, mean in means.items():
            listed.append(record(f"{prefix}/{name}_mean_ms", None, mean, "ms", 3))
        listed.append(record(f"{prefix}/cross_mean_ratio", None, means[CROSS] / means[ONE_NODE], "", 3))
        listed.append(record(f"{prefix}/per_node_mean_ratio", None, means[PER_NODE] / means[ONE_NODE], "", 3))
        listed.append(record(f"{prefix}/per_node_copies", None, _copies(_of(found, setting, PER_NODE)), "", 3))
        listed.append(record(f"{prefix}/cross_copies", None, _copies(_of(found, setting, CROSS)), "", 3))
    return listed


def _of(found: Sequence[Measured], setting: Setting, name: str) -> list[Measured]:
    return [each for each in found if each.setting == setting and each.name == name]


def _mean(found: Sequence[Measured]) -> float:
    return fmean([latency for each in found for latency in each.latencies])


def _copies(found: Sequence[Measured]) -> float:
    """How often a message was processed."""
    return sum(len(each.latencies) for each in found) / sum(each.messages for each in found)


def _table(setting: Setting, found: Sequence[Measured]) -> Table:
    base = _mean(_of(found, setting, ONE_NODE))
    rows = []
    for each in ARRANGEMENTS:
        mine = _of(found, setting, each.name)
        latencies = sorted(latency for one in mine for latency in one.latencies)
        mean = fmean(latencies)
        shares = "/".join(str(round(fmean(one.shares[at] for one in mine))) for at in range(len(setting.services)))
        what = (
            f"{mean:.2f}",
            f"{mean / base:.2f}",
            f"{quantile(latencies, 0.5):.2f}",
            f"{quantile(latencies, 0.99):.2f}",
        )
        rows.append((each.name, *what, shares, f"{_copies(mine):.2f}"))
    head = ("arrangement", "mean ms", "/ one node", "p50", "p99", "messages by member", "copies")
    return Table(f"{setting.title}, members at three nodes (may be {LIMIT:g} times one node)", head, rows)
