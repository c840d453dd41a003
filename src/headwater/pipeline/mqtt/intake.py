"""From the broker into the spool, and acknowledgements back: the spooler's MQTT side.

    broker ──► Member (a connection) ──► Spool.append (synced) ──► offsets, rows … ──► Spark commits
       ▲                                                                                    │
       └────────────── PUBACK, PUBREC ◄── Intake.released ◄── Spool.release (synced) ◄──────┘

A message is acknowledged only when Spark has committed it, so the broker keeps it until then; at most `receiveMaximum`
of each connection are under way. While the spool is full, members take no more: the window closes, and for QoS 0 the
client stops reading from the network.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import time
from typing import Final

from headwater.client import Client, Message, MqttError, Properties, Reconnect, StatusPingSender
from headwater.pipeline.mqtt.options import BadOption, ReadOptions
from headwater.pipeline.mqtt.properties import POSITION_PROPERTY, as_json, take_position
from headwater.pipeline.mqtt.record import NO_POSITION, Arrival, size_of
from headwater.pipeline.mqtt.redelivery import NO_SESSION, Redelivery
from headwater.pipeline.mqtt.spool import Spool

log: Final = logging.getLogger("headwater.pipeline.mqtt")

AT_A_TIME: Final = 4096
"""Messages of one sync."""
SAY_FULL_EVERY: Final = 60.0
PATIENCE: Final = Reconnect(first=0.2, longest=10.0, from_start=True)


class NotSubscribed(Exception):
    """The broker does not grant a subscription."""


class Intake:
    """All members, one spool. `subscribed` says that each member has been once; `trouble` why one is not connected."""

    def __init__(self, options: ReadOptions, spool: Spool) -> None:
        self._options = options
        self._spool = spool
        self._redelivery = Redelivery(spool.unreleased_at_start)
        spool.unreleased_at_start.clear()
        self._unacknowledged: list[tuple[int, int, Message]] = []
        self._tickets = itertools.count()
        self._appending = asyncio.Lock()
        self._has_room = asyncio.Event()
        self._has_room.set()
        if spool.connections > 1 and not options.shared:
            raise BadOption(f"the spool {options.folder} had {spool.connections} connections: take a new folder")
        count = max(options.connections, spool.connections)
        self._members = [Member(number, options, spool, self) for number in range(count)]
        self.took_at = time.monotonic()
        self._silent_until = 0.0

    @property
    def is_subscribed(self) -> bool:
        return all(member.is_subscribed for member in self._members)

    @property
    def unacknowledged(self) -> int:
        return len(self._unacknowledged)

    @property
    def connected(self) -> int:
        return sum(member.is_connected for member in self._members)

    @property
    def trouble(self) -> str:
        return next((member.trouble for member in self._members if member.trouble), "")

    async def run(self) -> None:
        """Until it is cancelled, or a member cannot go on; sessions stay with the broker."""
        async with asyncio.TaskGroup() as group:
            for member in self._members:
                group.create_task(member.run())

    def member_subscribed(self, member: Member) -> None:
        member.is_subscribed = True
        if self.is_subscribed:
            self._spool.remember_filters(self._options.filters)
            log.info("subscribed to %s", ", ".join(self._options.filters))

    async def room(self) -> None:
        """Until there is room for a message."""
        while self._spool.is_full:
            self._has_room.clear()
            self._say_full()
            await self._has_room.wait()

    async def take(self, first: tuple[Message, Arrival], member: Member) -> None:
        """A message of a member, and those behind it that are there and have room."""
        async with self._appending:
            messages, size = self._spool.room
            new = []
            others = await member.more(min(messages, AT_A_TIME) - 1, size - size_of(first[1]))
            for message, arrival in [first, *others]:
                number = self._redelivery.number_of(arrival, message.duplicate)
                if number is None:
                    new.append((message, arrival))
                else:
                    self._bind(number, message)
            if new:
                begin = await asyncio.to_thread(self._spool.append, [arrival for _, arrival in new])
                for number, (message, _) in enumerate(new, begin):
                    self._bind(number, message)
                self.took_at = time.monotonic()
            await self._acknowledge()

    async def released(self) -> None:
        """Spark has committed something."""
        self._has_room.set()
        await self._acknowledge()

    def _bind(self, number: int, message: Message) -> None:
        if message.qos:
            heapq.heappush(self._unacknowledged, (number, next(self._tickets), message))

    async def _acknowledge(self) -> None:
        while self._unacknowledged and self._unacknowledged[0][0] < self._spool.released:
            await heapq.heappop(self._unacknowledged)[2].ack()

    def _say_full(self) -> None:
        now = time.monotonic()
        if now >= self._silent_until:
            self._silent_until = now + SAY_FULL_EVERY
            used = self._spool.next - self._spool.released, self._spool.bytes
            log.info("the spool is full (%d messages, %d bytes): waiting for Spark", *used)


class Member:
    """One connection: a member of the group with a client id and a session of its own."""

    def __init__(self, number: int, options: ReadOptions, spool: Spool, intake: Intake) -> None:
        self._number = number
        self._options = options
        self._spool = spool
        self._intake = intake
        self._of_lost_session = 0
        self._client: Client | None = None
        self.is_subscribed = False
        self.trouble = ""

    @property
    def is_connected(self) -> bool:
        return self._client is not None and self._client.is_connected

    async def run(self) -> None:
        client = self._client = self._make_client()
        async with client:
            await self._subscribe(client)
            self._intake.member_subscribed(self)
            while True:
                await self._intake.room()
                message = await anext(client.messages)
                await self._intake.take((message, self._arrival(message)), self)

    async def more(self, most: int, size: int) -> list[tuple[Message, Arrival]]:
        """What else is there, up to so many messages and about so many bytes."""
        assert self._client is not None
        taken = []
        while most > 0 and size > 0 and len(self._client.messages):
            message = await anext(self._client.messages)
            arrival = self._arrival(message)
            taken.append((message, arrival))
            most -= 1
            size -= size_of(arrival)
        return taken

    def _make_client(self) -> Client:
        options = self._options
        host, port = options.address
        user, password = options.credentials
        return Client(
            host,
            port,
            tls=options.tls(),
            client_id=f"{options.member_id}-{self._number}",
            username=user,
            password=password,
            clean_start=False,
            session_expiry=options.session_expiry,
            acknowledge="manual",
            receive_maximum=options.receive_maximum,
            reconnect=PATIENCE,
            ping_sender=StatusPingSender(),
            on_change=self._changed,
        )

    def _changed(self, error: MqttError | None) -> None:
        self.trouble = "" if error is None else str(error)
        if error is not None:
            log.warning("connection %d: %s", self._number, error)
            return
        assert self._client is not None
        log.info("connection %d: connected, session present: %s", self._number, self._client.session_present)
        if not self._client.session_present:
            self._spool.new_session(self._number)
            self._of_lost_session = len(self._client.messages)

    async def _subscribe(self, client: Client) -> None:
        options = self._options
        former = [each for each in self._spool.filters if each not in options.filters]
        self._spool.remember_filters([*former, *options.filters])
        if former:
            await client.unsubscribe(former)
        asks = Properties(user_properties=[(POSITION_PROPERTY, "yes")]) if options.positions else None
        granted = await client.subscribe(
            options.filters, qos=options.qos, retain_as_published=True, retain_handling=1, properties=asks
        )
        for name, reason in zip(options.filters, granted, strict=True):
            if reason >= 0x80:
                raise NotSubscribed(f"the broker refuses the subscription to {name} (reason 0x{reason:02x})")

    def _arrival(self, message: Message) -> Arrival:
        session = self._spool.session_of(self._number)
        if self._of_lost_session:
            self._of_lost_session -= 1
            session = NO_SESSION
        properties = message.properties
        store, position = (self._options.positions and take_position(properties)) or ("", NO_POSITION)
        return Arrival(
            message.topic,
            message.payload,
            message.qos,
            message.retain,
            as_json(properties),
            time.time_ns() // 1000,
            store,
            position,
            self._number,
            session,
            message.packet_id,
        )
