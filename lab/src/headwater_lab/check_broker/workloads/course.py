"""How far a run is: what all workloads look at."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Final

from headwater_lab.check_broker.client import Client, Surroundings
from headwater_lab.check_broker.connection import Target
from headwater_lab.check_broker.features import Features

WAYS: Final = ("take over", "leave", "cut")


@dataclass
class Course:
    """`begun`: all are ready, publish. `load_over`: publish nothing new. `calm`: come back and stay. `ended`: go.
    `roams`: sessions move between targets."""

    surroundings: Surroundings
    features: Features
    roams: bool
    rate: float
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    load_over: asyncio.Event = field(default_factory=asyncio.Event)
    calm: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def loading(self) -> bool:
        return self.begun.is_set() and not self.load_over.is_set() and not self.surroundings.history.full

    async def pause(self, seconds: float, until: asyncio.Event) -> None:
        """That long, or until something is set."""
        try:
            async with asyncio.timeout(seconds):
                await until.wait()
        except TimeoutError:
            pass


class Participant:
    """A client with a home among the targets, which it leaves only if it `roams`."""

    def __init__(self, course: Course, name: str, home: Target, *, roams: bool) -> None:
        self.course = course
        self.home = home
        self.roams = roams and len(course.surroundings.targets) > 1
        self.client = Client(course.surroundings, name)
        self.random = Random(f"{course.surroundings.random.random()} {name}")
        self._ways: list[str] = []

    def choose(self) -> Target:
        return self.random.choice(self.course.surroundings.targets) if self.roams else self.home

    async def come(self, *, clean: bool = False, take_over: bool = False) -> bool:
        """Connect somewhere; if that does not work, wait a little."""
        if await self.client.connect(self.choose(), clean=clean, take_over=take_over):
            return True
        await asyncio.sleep(self.random.uniform(0.05, 0.3))
        return False

    async def go(self) -> None:
        """Be taken over, leave, or be cut off, each in its turn, in random order; then be away for a moment."""
        if not self._ways:
            self._ways = self.random.sample(WAYS, len(WAYS))
        way = self._ways.pop()
        if way == "take over":
            await self.come(take_over=True)
            return
        if way == "leave":
            await self.client.leave()
        else:
            self.client.cut()
        await self.course.pause(self.random.uniform(0.0, 0.5), self.course.calm)

    async def run(self) -> None:
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Whether the load may begin."""
        return True

    def is_finished(self) -> bool:
        """Whether nothing is under way."""
        return True
