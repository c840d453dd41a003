"""A broker in a process of its own, with the dispatcher of a trial, and a record of what that was told.

The record is kept by a dispatcher around the trial's own, which passes everything on. That costs the broker some
microseconds per message, the same for all.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

from headwater.node import Broker, Config, run
from headwater.node.links.settings import ClusterSettings
from headwater.node.operations.process import Collector, keep_what_is_freed
from headwater.routing.dispatcher import Dispatcher, Member
from headwater.routing.dispatchers.turns import Random
from headwater.routing.shared import DISPATCHERS, dispatcher
from headwater_lab.reproduce.balance.board import Board, Clairvoyant, member_number
from headwater_lab.reproduce.balance.plan import CLAIRVOYANT, Trial
from headwater_lab.reproduce.balance.priority import take_priority

WATCHED: Final = "watched"


class Told(NamedTuple):
    """A report as the broker got it, and the seconds per message that its dispatcher believes in afterwards (0.0: it
    has no such belief)."""

    at: float
    member: int
    waiting: int
    seconds: float
    believed: float


class Watched(Dispatcher):
    """Another dispatcher, and a record of the reports that it gets."""

    def __init__(self, inner: Dispatcher, record: list[Told]) -> None:
        self._inner = inner
        self._record = record
        self.waits = inner.waits
        self.wants_samples = inner.wants_samples

    def choose(self, members: list[Member], topic: str, publisher: str, now: float) -> Member:
        return self._inner.choose(members, topic, publisher, now)

    def also(self, member: Member, left: int, now: float) -> int:
        return self._inner.also(member, left, now)

    def beliefs(self, member: Member, now: float) -> dict[str, float]:
        return self._inner.beliefs(member, now)

    def outlook(self, member: Member, now: float) -> tuple[float, float]:
        return self._inner.outlook(member, now)

    def capacity(self, member: Member, now: float) -> float:
        return self._inner.capacity(member, now)

    def taken(self, member: Member, now: float) -> None:
        self._inner.taken(member, now)

    def readied(self, member: Member, now: float) -> None:
        self._inner.readied(member, now)

    def joined(self, member: Member) -> None:
        self._inner.joined(member)

    def left(self, member: Member) -> None:
        self._inner.left(member)

    def sent(self, member: Member, size: int, qos: int, now: float) -> None:
        self._inner.sent(member, size, qos, now)

    def acknowledged(self, member: Member, sent_at: float, now: float) -> None:
        self._inner.acknowledged(member, sent_at, now)

    def acknowledged_together(self, member: Member, sent_at: list[float], now: float) -> None:
        self._inner.acknowledged_together(member, sent_at, now)

    def reported(self, member: Member, waiting: int, seconds_per_message: float | None, now: float) -> None:
        self._inner.reported(member, waiting, seconds_per_message, now)
        believed = self._inner.beliefs(member, now).get("seconds_per_message", 0.0)
        self._record.append(Told(now, member_number(member), waiting, seconds_per_message or 0.0, believed))

    def sampled(self, member: Member, unsent_bytes: int, now: float) -> None:
        self._inner.sampled(member, unsent_bytes, now)

    def given_back(self, member: Member, count: int, now: float) -> None:
        self._inner.given_back(member, count, now)


def serve(trial: Trial, board: Path, parent: Connection) -> None:
    """The process: tells its port, serves until told to stop or left alone, tells its record."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent has it, too, and ends us
    logging.basicConfig(level=logging.ERROR)
    take_priority()
    record: list[Told] = []

    DISPATCHERS[WATCHED] = lambda: Watched(_dispatcher(trial, board), record)
    run(_serve(Config(host="127.0.0.1", port=0, shared_dispatcher=WATCHED), parent))
    try:
        parent.send(record)
    except OSError:  # nobody wants to know
        return


def _dispatcher(trial: Trial, board: Path) -> Dispatcher:
    name = trial.contender.dispatcher
    if name == CLAIRVOYANT:
        return Clairvoyant(Board(board, len(trial.setting.services)))
    return Random(trial.seed) if name == "random" else dispatcher(name)


def serve_node(dispatcher: str, cluster: dict[str, object], parent: Connection) -> None:
    """The process of a node of a cluster: the same, without a record."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(level=logging.ERROR)
    take_priority()
    settings = ClusterSettings.model_validate(cluster)
    run(_serve(Config(host="127.0.0.1", port=0, shared_dispatcher=dispatcher, cluster=settings), parent))


async def _serve(config: Config, parent: Connection) -> None:
    async with Broker(config) as broker:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_reader(parent.fileno(), stop.set)  # a word, or the end of the parent
        keep_what_is_freed()  # as `headwater broker` does
        Collector(asyncio.get_running_loop()).start()
        parent.send(broker.port)
        await stop.wait()
        asyncio.get_running_loop().remove_reader(parent.fileno())
