"""The members of a group, and those of them that report: Headwater's client with its StatusPingSender."""

from __future__ import annotations

import asyncio
import time
from typing import Final, Protocol

from headwater.client import Client, StatusPingSender
from headwater_lab.reproduce.balance.board import Board, Slot, client_id
from headwater_lab.reproduce.balance.plan import INTERVAL, Trial
from headwater_lab.reproduce.balance.timetable import Taken, Work, read_stamp

MOST_WAITING: Final = 65535
"""Messages that the client reads ahead: more than ever wait, so that all that have arrived can be counted."""


class Members(Protocol):
    """All members of a trial."""

    async def connect(self, host: str, ports: list[int], filter: str, times: list[float]) -> None:
        """Connect and subscribe each at its port and time; returns when all have."""

    def arrived(self) -> int:
        """How many messages there are at the members: done, being processed, waiting."""

    def hurry(self) -> None:
        """No more will come. As work keeps its deadlines, the rest is known without waiting for it."""

    async def finished(self) -> list[Taken]:
        """All messages, when all have been taken."""

    async def close(self) -> None: ...


class TimedPingSender(StatusPingSender):
    """Reports at its interval and never before, as in the thesis."""

    def is_due(self) -> bool:
        return False


class ReportingMembers:
    def __init__(self, trial: Trial, board: Board) -> None:
        self._each = [
            ReportingMember(number, service, trial.contender.early, board)
            for number, service in enumerate(trial.setting.services)
        ]

    async def connect(self, host: str, ports: list[int], filter: str, times: list[float]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for member, port, at in zip(self._each, ports, times, strict=True):
                tasks.create_task(member.connect(host, port, filter, at))

    def arrived(self) -> int:
        return sum(member.arrived() for member in self._each)

    def hurry(self) -> None:
        for member in self._each:
            member.hurry()

    async def finished(self) -> list[Taken]:
        return [taken for member in self._each for taken in await member.finished()]

    async def close(self) -> None:
        for member in self._each:
            await member.close()


class ReportingMember:
    def __init__(self, number: int, service: float, early: bool, board: Board) -> None:
        self._work = Work(number, service)
        self._early = early
        self._board = board
        self._client: Client | None = None
        self._working: asyncio.Task[None] | None = None
        self._alarm: asyncio.Future[None] | None = None
        self._hurry = False
        self._board.write(number, Slot(0.0, 0, service))

    async def connect(self, host: str, port: int, filter: str, at: float) -> None:
        await asyncio.sleep(at - time.monotonic())
        sender = StatusPingSender(INTERVAL) if self._early else TimedPingSender(INTERVAL)
        self._client = Client(
            host,
            port,
            client_id=client_id(self._work.member),
            ping_sender=sender,
            receive_maximum=MOST_WAITING,
            reconnect=None,
        )
        await self._client.connect()
        await self._client.subscribe(filter)
        self._working = asyncio.create_task(self._process(self._client))

    async def _process(self, client: Client) -> None:
        work = self._work
        waited = False
        async for message in client.messages:
            until = work.begin(read_stamp(message.payload), time.monotonic(), waited)
            self._board.write(work.member, Slot(until, len(work.taken), work.service))
            await self._busy(until)
            waited = len(client.messages) > 0

    async def _busy(self, until: float) -> None:
        if self._hurry:
            return
        loop = asyncio.get_running_loop()
        self._alarm = loop.create_future()
        timer = loop.call_at(until, _ring, self._alarm)  # the loop's clock is time.monotonic
        await self._alarm
        timer.cancel()

    def arrived(self) -> int:
        return len(self._work.taken) + (len(self._client.messages) if self._client else 0)

    def hurry(self) -> None:
        self._hurry = True
        if self._alarm is not None:
            _ring(self._alarm)

    async def finished(self) -> list[Taken]:
        assert self._client is not None and self._working is not None
        while len(self._client.messages):
            await asyncio.sleep(0)
        return self._work.taken

    async def close(self) -> None:
        if self._working is not None:
            self._working.cancel()
        if self._client is not None:
            await self._client.disconnect()


def _ring(alarm: asyncio.Future[None]) -> None:
    if not alarm.done():
        alarm.set_result(None)
