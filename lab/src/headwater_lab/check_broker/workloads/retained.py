"""Retained messages as registers: writers with a value of its own for each write, and readers that subscribe anew.

A write is never repeated, so that it takes effect once at most: a writer whose connection ends connects with a clean
session, and its open write stays unknown. Registers are written before the load and never cleared, so that a reader
may wait for a message.
"""

from __future__ import annotations

import asyncio
from typing import Final

from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import (
    Connack,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    SubscribeRequest,
)
from headwater_lab.chaos.history import message_in
from headwater_lab.check_broker.client import Surroundings
from headwater_lab.check_broker.connection import Connection, Target
from headwater_lab.check_broker.history import Outcome, Read
from headwater_lab.check_broker.workloads.course import Course, Participant

REGISTERS: Final = 4
WRITES_PER_SECOND: Final = 4.0
READS_PER_SECOND: Final = 8.0
NOTHING: Final = 1.5
"""Seconds of silence."""


def registers(course: Course) -> list[str]:
    return [f"{course.surroundings.prefix}/register/{number}" for number in range(1, REGISTERS + 1)]


class Writer(Participant):
    """The first one writes each register once before the load."""

    def __init__(self, course: Course, name: str, home: Target, *, is_first: bool) -> None:
        super().__init__(course, name, home, roams=False)
        self._unwritten = registers(course) if is_first else []

    async def run(self) -> None:
        client, timeout = self.client, self.course.surroundings.timeout
        while not self.course.load_over.is_set() or client.flights:
            if client.connection is None:
                await self.come(clean=True)
            elif client.flights:
                if client.oldest() > timeout:
                    client.cut()
                await asyncio.sleep(0.005)
            elif self._unwritten:
                written = client.publish(self._unwritten[-1], 1, retain=True)
                while client.flights and client.connection is not None and client.oldest() < timeout:
                    await asyncio.sleep(0.005)
                if written.outcome is Outcome.OK:
                    self._unwritten.pop()
            elif self.course.loading:
                client.publish(self.random.choice(registers(self.course)), 1, retain=True)
                await asyncio.sleep(self.random.expovariate(WRITES_PER_SECOND))
            else:
                await self.course.pause(0.05, self.course.load_over)
        await client.leave()

    def is_ready(self) -> bool:
        return not self._unwritten

    def is_finished(self) -> bool:
        return not self.client.flights


class RegisterReader(Participant):
    async def run(self) -> None:
        await self.course.begun.wait()
        number = 0
        while self.course.loading:
            number += 1
            topic = self.random.choice(registers(self.course))
            await read_retained(self.course.surroundings, f"{self.client.name}-{number}", self.home, topic)
            await asyncio.sleep(self.random.expovariate(READS_PER_SECOND))


async def read_retained(
    surroundings: Surroundings, name: str, target: Target, topic: str, *, final: bool = False
) -> Read | None:
    """By a client of its own; None if it cannot connect."""
    connection = Connection(surroundings.history.next_connection(), target, surroundings.version)
    try:
        async with asyncio.timeout(surroundings.timeout):
            await connection.open()
            connection.send(surroundings.connect_packet(f"{surroundings.prefix}-{name}", clean=True))
            answer = await connection.receive()
        if not isinstance(answer, Connack) or answer.reason:
            return None
        return await _read(surroundings, connection, name, topic, final)
    except (OSError, TimeoutError, RemoteProtocolError):
        return None
    finally:
        connection.close(by_us=True)


async def _read(surroundings: Surroundings, connection: Connection, name: str, topic: str, final: bool) -> Read:
    """Outcome unknown: the connection ended, or the broker does not answer. That nothing is retained counts only if the
    broker answers a PINGREQ after the silence, and is silent again: it may have been stopped."""
    history = surroundings.history
    read = history.invoke(Read(client=name, target=str(connection.target), topic=topic, final=final))
    connection.send(Subscribe(1, [SubscribeRequest(topic, 1)]))
    try:
        for awaited in (Suback, None, Pingresp, None):
            if awaited is Pingresp:
                connection.send(Pingreq())
            found = await _first_retained(connection, awaited, surroundings.timeout)
            if found is not None:
                read.message = message_in(found.payload)
                break
        history.complete(read, Outcome.OK)
    except (TimeoutError, ConnectionError):
        history.complete(read, Outcome.UNKNOWN)
    connection.send(Disconnect())
    return read


async def _first_retained(connection: Connection, awaited: type[Packet] | None, timeout: float) -> Publish | None:
    """The retained message, if it comes before the packet that is awaited, which must come; or, if none is, before
    there was silence for some time. Raises TimeoutError, ConnectionError."""
    while True:
        try:
            async with asyncio.timeout(NOTHING if awaited is None else timeout):
                packet = await connection.receive()
        except TimeoutError:
            if awaited is None:
                return None
            raise
        if packet is None:
            raise ConnectionError
        if isinstance(packet, Publish):
            if packet.qos:
                connection.send(Puback(packet.packet_id))
            if packet.retain:
                return packet
        elif awaited is not None and isinstance(packet, awaited):
            return None


def retained(course: Course) -> list[Participant]:
    found: list[Participant] = []
    for number, home in enumerate(course.surroundings.targets, 1):
        found.append(Writer(course, f"writer-{number}", home, is_first=number == 1))
        found.append(RegisterReader(course, f"reader-{number}", home, roams=False))
    if len(course.surroundings.targets) == 1:
        found.append(Writer(course, "writer-2", course.surroundings.targets[0], is_first=False))
    return found
