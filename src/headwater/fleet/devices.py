"""A simulated fleet of devices: what is measured where and when is the same for the same seed.

Theory. Time is cut into turns, `rate` of them a second. Each turn is one topic's, all topics one after the other: those
of device 0 in the order of the patterns, then those of device 1, and so on round and round. A silent device lets its
turns pass. A late device measures in its turn and sends `lateness` seconds after it, as one does whose connection was
gone. So a reading has two times, when it was made and when it is due, in seconds since the start, and readings are due
in an order that needs no clock: `readings` is a plain generator, and `publish` lets it out as time goes by. Deadlines
are absolute, so that a wake-up that comes late does not make the rest late.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final, NamedTuple

from headwater.client import Client, Rejected
from headwater.routing.topics import ANY_LEVELS, InvalidTopicName, check_name
from headwater.store.entry import iso
from headwater.wire.packets import Publish

LOWEST: Final = 15.0
HIGHEST: Final = 25.0
"""Between these a device's first value lies."""
STEP: Final = 0.1
"""Standard deviation of the difference between a value and the next."""
MOST_UNDER_WAY: Final = 2000
"""Messages with QoS 1 or 2 whose answers are waited for."""
PATTERNS: Final = ("site/{n}/temperature", "site/{n}/humidity")


class FleetError(ValueError):
    """There cannot be such a fleet; the text says why."""


class Reading(NamedTuple):
    """One measurement. `made` and `due` are seconds since the start, `number` counts those of the whole fleet."""

    due: float
    made: float
    number: int
    device: int
    topic: str
    value: float

    def payload(self, start: int) -> bytes:
        """About 100 bytes of JSON; `start` is the wall clock's time of the start, in microseconds."""
        ts = iso(start + round(self.made * 1e6))
        return (
            f'{{"ts":"{ts}","value":{self.value:.2f},"device":"device-{self.device:05d}",'
            f'"number":{self.number},"status":"ok"}}'
        ).encode()


@dataclass(frozen=True)
class Fleet:
    """`patterns` are topics, in which `{n}` is the number of the device. `rate` is turns per second of all together.
    `silent` and `late` are shares of the devices, drawn by the seed."""

    patterns: tuple[str, ...] = PATTERNS
    devices: int = 10
    rate: float = 20.0
    seed: int = 1
    silent: float = 0.0
    late: float = 0.0
    lateness: float = 5.0

    def __post_init__(self) -> None:
        if self.devices < 1 or not self.patterns or self.rate <= 0.0:
            raise FleetError("a fleet needs a device, a topic and a rate above 0")
        if min(self.silent, self.late, self.lateness) < 0.0 or self.silent + self.late > 1.0:
            raise FleetError("the shares of silent and late devices are together at most 1, and nothing is below 0")
        for pattern in self.patterns:
            try:
                check_name(_topic(pattern, 0), ANY_LEVELS)
            except InvalidTopicName as error:
                raise FleetError(f"{pattern!r} is no pattern of topics: {error}") from None

    def topics(self) -> list[str]:
        """In the order of their turns."""
        return [_topic(pattern, device) for device in range(self.devices) for pattern in self.patterns]

    def silent_devices(self) -> frozenset[int]:
        return frozenset(self._drawn()[: round(self.silent * self.devices)])

    def late_devices(self) -> frozenset[int]:
        drawn = self._drawn()
        return frozenset(drawn[len(drawn) - round(self.late * self.devices) :])

    def _drawn(self) -> list[int]:
        devices = list(range(self.devices))
        random.Random(f"{self.seed} who").shuffle(devices)
        return devices

    def readings(self) -> Iterator[Reading]:
        """Without end, unless all are silent; in the order in which they are due."""
        chance = random.Random(self.seed)
        topics = self.topics()
        values = [chance.uniform(LOWEST, HIGHEST) for _ in topics]
        silent, late = self.silent_devices(), self.late_devices()
        if len(silent) == self.devices:
            return
        waiting: list[Reading] = []
        number = 0
        for turn in count():
            place = turn % len(topics)
            device = place // len(self.patterns)
            made = turn / self.rate
            while waiting and waiting[0].due <= made:
                yield heapq.heappop(waiting)
            if device in silent:
                continue
            values[place] += chance.gauss(0.0, STEP)
            due = made + self.lateness if device in late else made
            reading = Reading(due, made, number, device, topics[place], round(values[place], 2))
            number += 1
            if due > made:
                heapq.heappush(waiting, reading)
            else:
                yield reading


def _topic(pattern: str, device: int) -> str:
    return pattern.replace("{n}", str(device))


class Published(NamedTuple):
    """`messages` were sent, and with QoS 1 or 2 answered; `refused` of them by a reason code of failure. `latest` is
    the most seconds by which one left too late."""

    messages: int
    refused: int
    seconds: float
    latest: float


class Publisher:
    """Lets out the readings of a fleet as they are due, by a client that is connected."""

    def __init__(self, client: Client, qos: int = 0) -> None:
        self._client = client
        self._qos = qos
        self._under_way: deque[asyncio.Future[int]] = deque()
        self._messages = 0
        self._refused = 0
        self._latest = 0.0
        self._begin = time.monotonic()

    def published(self) -> Published:
        """So far."""
        return Published(self._messages, self._refused, time.monotonic() - self._begin, self._latest)

    async def publish(
        self,
        fleet: Fleet,
        *,
        most: int | None = None,
        seconds: float | None = None,
        watch: Callable[[Reading], None] | None = None,
    ) -> Published:
        """Until `most` messages are sent or those of so many `seconds`; without either, until cancelled. `watch` sees
        each reading before it leaves."""
        begin = self._begin = time.monotonic()
        start = time.time_ns() // 1000
        for sent, reading in enumerate(fleet.readings()):
            if sent == most or (seconds is not None and reading.due >= seconds):
                break
            now = time.monotonic() - begin
            if now < reading.due:
                await self._until(begin + reading.due)
                now = time.monotonic() - begin
            self._latest = max(self._latest, now - reading.due)
            if watch is not None:
                watch(reading)
            await self._send(Publish(reading.topic, reading.payload(start), self._qos))
        while self._under_way:
            await self._answered()
        return self.published()

    async def _until(self, moment: float) -> None:
        while self._under_way and self._under_way[0].done():
            await self._answered()
        await asyncio.sleep(moment - time.monotonic())

    async def _send(self, packet: Publish) -> None:
        """Waits if the network, or the broker, takes less than is sent."""
        if packet.qos == 0:
            await self._client.publish(packet.topic, packet.payload)
            self._messages += 1
            return
        self._under_way.append(self._client.submit(packet))
        if len(self._under_way) >= MOST_UNDER_WAY:
            await self._answered()

    async def _answered(self) -> None:
        try:
            await self._under_way.popleft()
        except Rejected:
            self._refused += 1
        self._messages += 1
