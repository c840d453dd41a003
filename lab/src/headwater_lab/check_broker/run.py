"""One run: look at what the broker can do, load and disturb it, heal, let it settle, read what is retained."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from headwater_lab.check_broker.client import Surroundings
from headwater_lab.check_broker.connection import Target
from headwater_lab.check_broker.faults import Disturber, FaultCommands
from headwater_lab.check_broker.features import CannotRun, Features, find_features
from headwater_lab.check_broker.history import LIMIT, Delivery, History, Outcome, Phase, Publication, Read
from headwater_lab.check_broker.judges.court import something_is_missing
from headwater_lab.check_broker.judges.retained import judge_retained
from headwater_lab.check_broker.workloads.course import Course, Participant
from headwater_lab.check_broker.workloads.groups import groups
from headwater_lab.check_broker.workloads.queues import queues
from headwater_lab.check_broker.workloads.retained import read_retained, registers, retained
from headwater_lab.check_broker.workloads.wills import wills

PREPARATION: Final = 30.0
"""Seconds in which all clients have to be connected and subscribed."""
PROPAGATION: Final = 1.5
"""Seconds from the last SUBACK to the load, in which targets tell each other."""
QUIET: Final = 1.5
"""Seconds without a delivery before a run that owes nothing ends."""
PING_EVERY: Final = 15.0

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    targets: tuple[Target, ...]
    seconds: float = 20.0
    seed: int = 1
    rate: float = 20.0
    """Messages per second of each publisher."""
    roams: bool = True
    version: int | None = None
    faults: Sequence[FaultCommands] = ()
    fault_every: float = 4.0
    fault_lasts: float = 4.0
    settle: float = 45.0
    """Seconds that what is owed may take at most, after everything is healed."""
    timeout: float = 5.0
    wait: float = 15.0
    """Seconds for the targets to answer at first."""
    username: str | None = None
    password: bytes | None = None
    limit: int = LIMIT


@dataclass
class Recorded:
    settings: Settings
    features: Features
    history: History


async def run(settings: Settings, tell: Tell) -> Recorded:
    """Raises CannotRun."""
    random = Random(settings.seed)
    surroundings = Surroundings(
        History(settings.limit),
        list(settings.targets),
        f"check-{settings.seed}-{Random().getrandbits(32):08x}",  # what an earlier run left behind is not ours
        random,
        username=settings.username,
        password=settings.password,
        timeout=settings.timeout,
    )
    features = await find_features(surroundings, settings.version, settings.wait)
    for remark in features.remarks:
        tell(remark)
    surroundings.history = History(settings.limit)
    course = Course(surroundings, features, settings.roams, settings.rate)
    participants = [*queues(course), *wills(course)]
    if features.shared:
        participants += groups(course)
    if features.retained:
        participants += retained(course)
    driver = _Driver(settings, course, participants, tell)
    try:
        await driver.drive()
    finally:
        course.load_over.set()
        course.ended.set()
        await driver.stop()
    return Recorded(settings, features, surroundings.history)


class _Driver:
    def __init__(self, settings: Settings, course: Course, participants: list[Participant], tell: Tell) -> None:
        self._settings = settings
        self._course = course
        self._participants = participants
        self._tell = tell
        self._history = course.surroundings.history
        self._tasks: list[asyncio.Task[None]] = []
        self._disturber = Disturber(
            self._history,
            settings.faults,
            Random(settings.seed + 1),
            settings.fault_every,
            settings.fault_lasts,
        )

    async def drive(self) -> None:
        self._tasks = [asyncio.create_task(each.run()) for each in self._participants]
        self._tasks.append(asyncio.create_task(self._keep_alive()))
        self._tasks.append(asyncio.create_task(self._progress()))
        await self._prepare()
        self._phase("load")
        self._course.begun.set()
        await self._while_all_run(self._disturber.disturb(self._settings.seconds))
        self._phase("settle")
        self._course.load_over.set()
        self._course.calm.set()
        await self._while_all_run(self._settle())
        if self._course.features.retained:
            await self._while_all_run(self._read_all())
        self._phase("end")

    async def stop(self) -> None:
        """Let clients take their leave, then end what is left."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2.0)
        for task in [*self._tasks, *self._course.surroundings.tasks]:
            task.cancel()
        for task in [*self._tasks, *self._course.surroundings.tasks]:
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
        for participant in self._participants:
            participant.client.cut()

    async def _while_all_run(self, work: object) -> None:
        """A participant that fails ends the run: it is a mistake of ours."""
        assert asyncio.iscoroutine(work)
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await asyncio.wait([task], timeout=0.2)
                for each in self._tasks:
                    if each.done() and not each.cancelled() and (problem := each.exception()) is not None:
                        raise problem
        finally:
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        await task

    def _phase(self, name: str) -> None:
        self._history.observe(Phase(name=name))

    async def _prepare(self) -> None:
        self._phase("prepare")
        try:
            async with asyncio.timeout(PREPARATION):
                await self._while_all_run(self._ready())
        except TimeoutError:
            waiting = [each.client for each in self._participants if not each.is_ready()]
            names = ", ".join(client.name for client in waiting[:5])
            why = next((client.refused for client in waiting if client.refused), "no answer")
            raise CannotRun(
                f"{len(waiting)} clients could not connect and subscribe within {PREPARATION:g} s ({names}): {why}. "
                "The broker has to be healthy when the check begins."
            ) from None
        await asyncio.sleep(PROPAGATION)

    async def _ready(self) -> None:
        while not all(each.is_ready() for each in self._participants):
            await asyncio.sleep(0.05)

    async def _settle(self) -> None:
        """Until everything is acknowledged and has come, and it is quiet; or that takes too long."""
        deadline = self._history.now + self._settings.settle
        heard, since = -1, self._history.now
        while self._history.now < deadline:
            count = len(self._history.entries)
            if count != heard:
                heard, since = count, self._history.now
            quiet = self._history.now - since
            finished = all(each.is_finished() for each in self._participants)
            if finished and quiet > QUIET and not something_is_missing(self._history):
                return
            await asyncio.sleep(0.25)

    async def _read_all(self) -> None:
        """Until all targets show the same, rightly, or that takes too long."""
        deadline = self._history.now + self._settings.settle
        number = 0
        while True:
            for topic in registers(self._course):
                for target in self._settings.targets:
                    number += 1
                    await read_retained(self._course.surroundings, f"final-reader-{number}", target, topic, final=True)
            converged = judge_retained(self._history)[1]
            if self._history.now > deadline or not (converged.findings or converged.undecided):
                return
            await asyncio.sleep(0.5)

    async def _keep_alive(self) -> None:
        while not self._course.ended.is_set():
            await self._course.pause(PING_EVERY, self._course.ended)
            for each in self._participants:
                each.client.ping()

    async def _progress(self) -> None:
        while not self._course.ended.is_set():
            await self._course.pause(1.0, self._course.ended)
            counts = counts_of(self._history)
            fault = f"; fault: {self._disturber.active}" if self._disturber.active else ""
            what = "load" if self._course.loading else "settling" if self._course.calm.is_set() else "preparing"
            self._tell(
                f"{self._history.now:5.0f} s {what}: {counts['published']:,} published, {counts['acknowledged']:,} "
                f"acknowledged, {counts['delivered']:,} delivered{fault}"
            )


def counts_of(history: History) -> dict[str, int]:
    """For people: how much there was."""
    counts = dict.fromkeys(("published", "acknowledged", "unknown", "delivered", "reads"), 0)
    for entry in history.entries:
        if isinstance(entry, Publication):
            counts["published"] += 1
            counts["acknowledged"] += entry.outcome is Outcome.OK
            counts["unknown"] += entry.outcome is Outcome.UNKNOWN and entry.qos > 0 and entry.will_of is None
        elif isinstance(entry, Delivery):
            counts["delivered"] += 1
        elif isinstance(entry, Read):
            counts["reads"] += 1
    return counts
