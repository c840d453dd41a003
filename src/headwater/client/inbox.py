"""Messages that have arrived and wait to be taken.

A message with QoS 1 or 2 is acknowledged when the application takes it, not before: what it never saw, the server
still has. When many wait, reading from the network stops until some are taken, so memory stays bounded; for QoS 1
and 2 in MQTT 5.0 the Receive Maximum that the server was told bounds them as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import Packet, Puback, Publish, Pubrec
from headwater.wire.reasons import RECEIVE_MAXIMUM_EXCEEDED, TOPIC_ALIAS_INVALID

PAUSE_ABOVE: Final = 10_000
RESUME_BELOW: Final = 5_000


class Inbox:
    """An asynchronous iterator over messages; each goes to one taker. It ends when the client has disconnected, and
    raises when the connection was lost. What arrived before can be taken in both cases."""

    def __init__(
        self,
        receive_maximum: int,
        topic_alias_maximum: int,
        acknowledge: Callable[[Packet], None],
        pause: Callable[[bool], None],
    ) -> None:
        self._receive_maximum = receive_maximum
        self._topic_alias_maximum = topic_alias_maximum
        self._acknowledge = acknowledge
        self._pause = pause
        self._queue: asyncio.Queue[Publish | None] = asyncio.Queue()
        self._aliases: dict[int, str] = {}
        self._not_acknowledged: set[int] = set()
        self._not_released: set[int] = set()
        self._error: Exception | None = None

    def __aiter__(self) -> Inbox:
        return self

    async def __anext__(self) -> Publish:
        message = await self._queue.get()
        if message is None:
            self._queue.put_nowait(None)  # for whoever asks next
            if self._error is not None:
                raise self._error
            raise StopAsyncIteration
        if self._queue.qsize() == RESUME_BELOW:
            self._pause(False)
        self._take(message)
        return message

    def __len__(self) -> int:
        """How many wait."""
        return self._queue.qsize()

    def put(self, message: Publish) -> None:
        """A message arrived; one that was sent again is not delivered twice with QoS 2 [MQTT-4.3.3-10]."""
        self._resolve_alias(message)
        if message.qos > 0:
            if message.packet_id in self._not_acknowledged:
                return
            if message.packet_id in self._not_released:
                self._acknowledge(Pubrec(message.packet_id))
                return
            if len(self._not_acknowledged) + len(self._not_released) >= self._receive_maximum:  # [MQTT-3.3.4-9]
                raise RemoteProtocolError(RECEIVE_MAXIMUM_EXCEEDED, "more messages than our Receive Maximum")
            self._not_acknowledged.add(message.packet_id)
        self._queue.put_nowait(message)
        if self._queue.qsize() > PAUSE_ABOVE:
            self._pause(True)

    def release(self, packet_id: int) -> bool:
        """PUBREL has come; whether there was anything to release."""
        known = packet_id in self._not_released
        self._not_released.discard(packet_id)
        return known

    def end(self, error: Exception | None) -> None:
        self._error = error
        self._queue.put_nowait(None)

    def _take(self, message: Publish) -> None:
        if message.qos == 0:
            return
        self._not_acknowledged.discard(message.packet_id)
        if message.qos == 1:
            self._acknowledge(Puback(message.packet_id))
        else:
            self._not_released.add(message.packet_id)
            self._acknowledge(Pubrec(message.packet_id))

    def _resolve_alias(self, message: Publish) -> None:
        alias = message.properties.topic_alias if message.properties is not None else None
        if alias is None:
            return
        if alias > self._topic_alias_maximum:  # [MQTT-3.3.2-11]
            raise RemoteProtocolError(TOPIC_ALIAS_INVALID, f"topic alias {alias}, at most {self._topic_alias_maximum}")
        if message.topic:
            self._aliases[alias] = message.topic
        elif alias in self._aliases:
            message.topic = self._aliases[alias]
        else:
            raise RemoteProtocolError(TOPIC_ALIAS_INVALID, f"topic alias {alias} stands for nothing")
