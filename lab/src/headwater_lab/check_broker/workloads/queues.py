"""Messages of all QoS to sessions that outlive connections, and move between targets."""

from __future__ import annotations

import asyncio
from typing import Final

from headwater_lab.check_broker.connection import Target
from headwater_lab.check_broker.workloads.course import Course, Participant

WINDOW: Final = 8
"""Exchanges that a publisher has open at most."""
TOPICS: Final = 2
SIZES: Final = (16, 40, 200, 2000)
STAYS: Final = (0.3, 2.5)
"""Seconds between two goings."""


class Publisher(Participant):
    """Publishes to topics of its own; a session that lasts. `qos`: those it chooses from."""

    def __init__(
        self, course: Course, name: str, home: Target, *, roams: bool, below: str, qos: tuple[int, ...]
    ) -> None:
        super().__init__(course, name, home, roams=roams)
        self.topics = [f"{course.surroundings.prefix}/{below}/{name}/{number}" for number in range(TOPICS)]
        self.qos = [each for each in qos if each <= course.features.qos] or [course.features.qos]
        self._goes_at = 0.0

    async def run(self) -> None:
        client, timeout = self.client, self.course.surroundings.timeout
        while not self.course.ended.is_set():
            if client.connection is None:
                await self.come()
                self._goes_at = client.history.now + self.random.uniform(*STAYS)
            elif client.oldest() > timeout:
                client.cut()
            elif not self.course.loading:
                await self.course.pause(0.05, self.course.ended)
            elif client.history.now > self._goes_at:
                self._goes_at = client.history.now + self.random.uniform(*STAYS)
                await self.go()
            else:
                if len(client.flights) < WINDOW:
                    client.publish(
                        self.random.choice(self.topics), self.random.choice(self.qos), size=self.random.choice(SIZES)
                    )
                await asyncio.sleep(self.random.expovariate(self.course.rate))
        await client.leave()

    def is_finished(self) -> bool:
        return not self.client.flights and self.client.connection is not None


class Subscriber(Participant):
    """A session that lasts. `goes`: it comes and goes during the load; otherwise it is away only if it has to be."""

    def __init__(
        self, course: Course, name: str, home: Target, *, roams: bool, goes: bool, topic_filter: str, qos: int
    ) -> None:
        super().__init__(course, name, home, roams=roams)
        self.goes = goes
        self.filter = topic_filter
        self.qos = min(qos, course.features.qos)

    async def run(self) -> None:
        while not self.course.ended.is_set():
            if self.client.connection is None and not await self.come():
                continue
            if self.filter not in self.client.subscribed:
                await self.client.subscribe(self.filter, self.qos)
                continue
            if self.goes and self.course.loading:
                await self.course.pause(self.random.uniform(*STAYS), self.course.load_over)
                if self.course.loading and self.client.connection is not None:
                    await self.go()
            else:
                await self.course.pause(0.05, self.course.ended)
        await self.client.leave()

    def is_ready(self) -> bool:
        return self.client.connection is not None and self.filter in self.client.subscribed

    def is_finished(self) -> bool:
        return self.is_ready()


def queues(course: Course) -> list[Participant]:
    """At each target a publisher that stays there and one that roams, and subscribers that stay, come and go, roam."""
    found: list[Participant] = []
    everything = f"{course.surroundings.prefix}/queue/#"
    for number, home in enumerate(course.surroundings.targets, 1):
        for name, roams in (("pub", False), ("pub-moving", True)):
            if roams <= course.roams:
                found.append(Publisher(course, f"{name}-{number}", home, roams=roams, below="queue", qos=(0, 1, 2)))
        for name, roams, goes, qos in (
            ("sub-staying", False, False, 2),
            ("sub-coming", False, True, 2),
            ("sub-coming-qos1", False, True, 1),
            ("sub-moving", True, True, 2),
        ):
            if roams <= course.roams:
                found.append(
                    Subscriber(
                        course, f"{name}-{number}", home, roams=roams, goes=goes, topic_filter=everything, qos=qos
                    )
                )
    return found
