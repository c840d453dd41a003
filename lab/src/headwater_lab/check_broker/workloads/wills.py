"""Clients that die and leave a will, clients that take their leave and must leave none, and those who watch."""

from __future__ import annotations

from typing import Final

from headwater_lab.check_broker.history import Publication
from headwater_lab.check_broker.workloads.course import Course, Participant
from headwater_lab.check_broker.workloads.queues import Subscriber

LIVES: Final = (0.3, 1.2)
"""Seconds that one stays."""


class Mortal(Participant):
    async def run(self) -> None:
        history = self.client.history
        topic = f"{self.course.surroundings.prefix}/will/{self.client.name}"
        await self.course.begun.wait()
        while self.course.loading:
            will = Publication(message=history.next_message(), topic=topic, qos=self.course.features.qos)
            if not await self.client.connect(self.home, clean=True, will=will):
                await self.course.pause(0.3, self.course.load_over)
                continue
            await self.course.pause(self.random.uniform(*LIVES), self.course.load_over)
            if self.random.random() < 0.6:
                self.client.cut()
            else:
                await self.client.leave()
        await self.client.leave()


def wills(course: Course) -> list[Participant]:
    found: list[Participant] = []
    topic_filter = f"{course.surroundings.prefix}/will/#"
    for number, home in enumerate(course.surroundings.targets, 1):
        found.append(Mortal(course, f"mortal-{number}", home, roams=False))
        found.append(
            Subscriber(course, f"watcher-{number}", home, roams=False, goes=False, topic_filter=topic_filter, qos=2)
        )
    return found
