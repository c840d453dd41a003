"""One direction of a bridge: messages are taken from one client and given to the other.

Theory. A message of QoS 1 or 2 is acknowledged to the side that it comes from only when the other side has acknowledged
it. Until then the first side keeps it, so whichever side dies, nothing is lost. Both clients outlive their connections:
a flight that was cut off goes on under its own packet id, so QoS 2 stays exactly once as long as this process lives and
both sides keep their sessions. After a restart of the process the first side sends again what was not acknowledged, and
the second may get it twice.

Acknowledgements leave in the order in which the messages came, whatever the order of the answers, so the answers are
waited for in that order, too. How many are under way is bounded by the source, which takes no more from its broker than
its Receive Maximum before some are acknowledged.

On its way out, QoS 0 is not waited for: it is dropped if too much of what went before has not left. Otherwise a slow
remote would stop us from reading what our own broker says, and with it the acknowledgements for the way in: the two
directions could wait for each other for ever. On its way in it is waited for, since our own broker goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from headwater.client import Client, Message, Rejected
from headwater.node.bridge.view import Traffic
from headwater.wire.errors import LocalProtocolError
from headwater.wire.packets import Publish

log: Final = logging.getLogger("headwater.bridge")

HEADERS: Final = 64
"""Bytes that a small message is counted with beside its payload."""


class Way(NamedTuple):
    """From where to where. `convert` makes the packet for the target, or None for a message that is not to go there."""

    source: Client
    target: Client
    convert: Callable[[Message], Publish | None]
    traffic: Traffic


class Pump:
    """`most_loose` bounds the bytes of QoS 0 that were taken and have not left; beyond, they are waited for, or with
    `drops` dropped."""

    def __init__(self, name: str, way: Way, most_loose: int, *, drops: bool) -> None:
        self._name = name
        self._source, self._target, self._convert, self._traffic = way
        self._most_loose = most_loose
        self._drops = drops
        self._loose = 0
        self._under_way: asyncio.Queue[tuple[Message, asyncio.Future[int]]] = asyncio.Queue()
        self._complained = False

    async def take(self) -> None:
        """Take what comes and send it, until cancelled."""
        async for message in self._source.messages:
            if message.qos == 0:
                await self._send_loose(message)
                continue
            answer = self._send(message)
            if answer is None:
                self._traffic.dropped += 1
                await message.ack()
            else:
                self._under_way.put_nowait((message, answer))

    async def acknowledge(self) -> None:
        """Acknowledge what the target has taken, until cancelled."""
        while True:
            message, answer = await self._under_way.get()
            try:
                await answer
                self._traffic.forwarded += 1
            except Rejected as error:
                self._rejected(message, error)
            await message.ack()

    def _send(self, message: Message) -> asyncio.Future[int] | None:
        packet = self._convert(message)
        try:
            return None if packet is None else self._target.submit(packet)
        except LocalProtocolError as error:  # a topic that is too long with its new prefix
            log.warning("bridge %r: a message to %.200r is dropped: %s", self._name, message.topic, error)
            return None

    async def _send_loose(self, message: Message) -> None:
        is_full = self._loose > self._most_loose
        answer = None if is_full and self._drops else self._send(message)
        if answer is None:
            self._traffic.dropped += 1
        elif answer.done():
            self._sent_loose(message, answer)
        else:
            size = len(message.payload) + len(message.topic) + HEADERS
            self._loose += size
            answer.add_done_callback(lambda done: self._sent_loose(message, done, size))
            if is_full:
                await asyncio.wait([answer])

    def _sent_loose(self, message: Message, answer: asyncio.Future[int], size: int = 0) -> None:
        self._loose -= size
        if answer.cancelled():
            return
        error = answer.exception()
        if error is None:
            self._traffic.forwarded += 1
        elif isinstance(error, Rejected):
            self._rejected(message, error)

    def _rejected(self, message: Message, error: Rejected) -> None:
        """Told of once in the log, then counted."""
        self._traffic.rejected += 1
        if not self._complained:
            self._complained = True
            log.warning(
                "bridge %r: a message to %.200r was not taken, and is lost; others will only be counted: %s",
                self._name,
                message.topic,
                error,
            )
