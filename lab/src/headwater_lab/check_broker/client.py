"""A client whose half of a session outlives its connections: it keeps open QoS 1 and 2 exchanges, resumes them when the
broker still knows the session, gives them up as `unknown` when it does not (MQTT 5.0, 4.1, 4.3, 4.4), and notes all of
it. On a connection that it has left open for another to take over it reads nothing but the end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from headwater.wire import packets
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import (
    V5,
    V311,
    Connack,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeRequest,
    Will,
)
from headwater.wire.primitives import FOR_EVER
from headwater_lab.chaos.history import HEAD, message_in, payload_of
from headwater_lab.check_broker.connection import Connection, Target
from headwater_lab.check_broker.history import (
    Connect,
    Delivery,
    Ended,
    History,
    Leave,
    Oddity,
    Outcome,
    Publication,
    Subscription,
)

KEEP_ALIVE: Final = 60
REFUSED: Final = 0x80
DO_NOT_SEND_RETAINED: Final = 2


@dataclass
class Surroundings:
    """What all clients of a run share. `timeout`: seconds without an answer after which a connection is given up."""

    history: History
    targets: list[Target]
    prefix: str
    random: Random
    version: int = V311
    username: str | None = None
    password: bytes | None = None
    timeout: float = 5.0
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def connect_packet(self, client_id: str, clean: bool, will: Will | None = None) -> packets.Connect:
        properties = Properties(session_expiry_interval=0 if clean else FOR_EVER) if self.version == V5 else None
        return packets.Connect(
            client_id, self.version, clean, KEEP_ALIVE, self.username, self.password, will, properties
        )


@dataclass(slots=True)
class Flight:
    publication: Publication
    size: int
    released: bool = False


class Client:
    def __init__(self, surroundings: Surroundings, name: str) -> None:
        self.surroundings = surroundings
        self.history = surroundings.history
        self.name = name
        self.client_id = f"{surroundings.prefix}-{name}"
        self.connection: Connection | None = None
        self.flights: dict[int, Flight] = {}
        self.subscribed: set[str] = set()
        """Filters that the session has, as far as SUBACKs told."""
        self.refused: str = ""
        """Why the last CONNECT was refused."""
        self._open: set[int] = set()
        """Packet ids of QoS 2 deliveries that are not released [MQTT-4.3.3-10]."""
        self._asked: dict[int, asyncio.Future[Suback]] = {}
        self._next_id = 0
        self._since = 0.0

    # ---- connections -------------------------------------------------------------------------------------------

    async def connect(
        self, target: Target, *, clean: bool = False, will: Publication | None = None, take_over: bool = False
    ) -> bool:
        """Whether it is connected. With `take_over`, a connection that is there stays open. `will` has its topic and
        QoS; it is noted with the CONNECT."""
        timeout = self.surroundings.timeout
        former = self.connection.number if self.connection is not None and take_over else None
        if not take_over:
            self.cut()
        self.connection = None
        connection = Connection(self.history.next_connection(), target, self.surroundings.version)
        try:
            async with asyncio.timeout(timeout):
                await connection.open()
        except (OSError, TimeoutError):
            return False
        operation = Connect(
            client=self.name, target=str(target), connection=connection.number, clean=clean, takes_over=former
        )
        self.history.invoke(operation)
        connection.send(self.surroundings.connect_packet(self.client_id, clean, self._note_will(will, connection)))
        try:
            async with asyncio.timeout(timeout):
                answer = await connection.receive()
        except (TimeoutError, RemoteProtocolError) as problem:
            if isinstance(problem, RemoteProtocolError):
                self._odd(connection, f"answered CONNECT with what is no packet: {problem}")
            answer = None
        except asyncio.CancelledError:
            connection.close(by_us=True, abort=True)
            raise
        if not isinstance(answer, Connack) or answer.reason:
            self._not_connected(operation, connection, answer)
            return False
        operation.present = answer.session_present
        self.history.complete(operation, Outcome.OK)
        self._connected(connection, answer.session_present)
        return True

    def _note_will(self, will: Publication | None, connection: Connection) -> Will | None:
        if will is None:
            return None
        will.client, will.target, will.will_of = self.name, str(connection.target), connection.number
        self.history.invoke(will)
        return Will(will.topic, payload_of(will.message, HEAD), will.qos)

    def _not_connected(self, operation: Connect, connection: Connection, answer: Packet | None) -> None:
        if isinstance(answer, Connack):
            self.refused = f"CONNECT was refused with 0x{answer.reason:02x}"
            self.history.complete(operation, Outcome.FAILED)
        else:
            self.history.complete(operation, Outcome.UNKNOWN)
        connection.close(by_us=True, abort=True)
        self._note_end(connection)

    def _connected(self, connection: Connection, present: bool) -> None:
        self.connection = connection
        self._since = self.history.now
        if not present:
            for flight in self.flights.values():
                if not flight.released:
                    self.history.complete(flight.publication, Outcome.UNKNOWN)
            self.flights.clear()
            self.subscribed.clear()
            self._open.clear()
        self.surroundings.start(self._serve(connection))
        for packet_id, flight in self.flights.items():  # [MQTT-4.4.0-1] in order, with their packet ids
            if flight.released:
                connection.send(Pubrel(packet_id))
            else:
                flight.publication.sendings += 1
                self._send(connection, packet_id, flight, again=True)

    async def leave(self) -> None:
        """With DISCONNECT."""
        connection, self.connection = self.connection, None
        if connection is None:
            return
        operation = self.history.invoke(
            Leave(client=self.name, target=str(connection.target), connection=connection.number)
        )
        connection.send(Disconnect())
        try:
            async with asyncio.timeout(1.0):  # the broker closes when it has read it
                await connection.closed.wait()
        except TimeoutError:
            connection.close(by_us=True)
        self.history.complete(operation, Outcome.UNKNOWN if connection.by_us else Outcome.OK)

    def cut(self) -> None:
        """Without a word."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close(by_us=True, abort=True)
            self._note_end(connection)

    def _note_end(self, connection: Connection) -> None:
        if not connection.noted:
            connection.noted = True
            self.history.observe(
                Ended(
                    client=self.name,
                    target=str(connection.target),
                    connection=connection.number,
                    by_us=connection.by_us,
                )
            )

    # ---- requests ----------------------------------------------------------------------------------------------

    def publish(self, topic: str, qos: int, *, retain: bool = False, size: int = HEAD) -> Publication:
        """Send it, if connected; the acknowledgement is noted when it comes."""
        connection = self.connection
        assert connection is not None
        message = self.history.next_message()
        publication = Publication(
            client=self.name,
            target=str(connection.target),
            connection=connection.number,
            message=message,
            topic=topic,
            qos=qos,
            retain=retain,
        )
        self.history.invoke(publication)
        flight = Flight(publication, size)
        packet_id = 0
        if qos:
            packet_id = self._take_id()
            self.flights[packet_id] = flight
        self._send(connection, packet_id, flight, again=False)
        return publication

    def _send(self, connection: Connection, packet_id: int, flight: Flight, *, again: bool) -> None:
        sent = flight.publication
        payload = payload_of(sent.message, flight.size)
        connection.send(Publish(sent.topic, payload, sent.qos, sent.retain, again, packet_id))

    async def subscribe(self, topic_filter: str, qos: int) -> Subscription | None:
        """None: no answer came, and the connection is given up."""
        connection = self.connection
        if connection is None:
            return None
        operation = Subscription(client=self.name, target=str(connection.target), filter=topic_filter, qos=qos)
        packet_id = self._take_id()
        self.history.invoke(operation)
        self._asked[packet_id] = asyncio.get_running_loop().create_future()
        handling = DO_NOT_SEND_RETAINED if self.surroundings.version == V5 else 0
        connection.send(Subscribe(packet_id, [SubscribeRequest(topic_filter, qos, retain_handling=handling)]))
        try:
            async with asyncio.timeout(self.surroundings.timeout):
                answer = await self._asked[packet_id]
        except (TimeoutError, ConnectionError):
            self.history.complete(operation, Outcome.UNKNOWN)
            self.cut()
            return None
        finally:
            self._asked.pop(packet_id, None)
        operation.granted = answer.reasons[0] if answer.reasons else REFUSED
        refused = operation.granted >= REFUSED
        self.history.complete(operation, Outcome.FAILED if refused else Outcome.OK)
        if not refused:
            self.subscribed.add(topic_filter)
        return operation

    def _take_id(self) -> int:
        while True:
            self._next_id = self._next_id % 65535 + 1
            if self._next_id not in self.flights and self._next_id not in self._asked:
                return self._next_id

    def ping(self) -> None:
        if self.connection is not None:
            self.connection.send(Pingreq())

    def oldest(self) -> float:
        """Seconds that the oldest open exchange has waited on this connection for its answer; 0.0 if there is none."""
        began = min((flight.publication.began for flight in self.flights.values()), default=None)
        return 0.0 if began is None else self.history.now - max(began, self._since)

    # ---- packets -----------------------------------------------------------------------------------------------

    async def _serve(self, connection: Connection) -> None:
        try:
            while (packet := await connection.receive()) is not None:
                if connection is self.connection:
                    self._handle(connection, packet)
        except RemoteProtocolError as problem:
            self._odd(connection, f"got what is no packet: {problem}")
        finally:
            connection.close(by_us=True, abort=True)
        if connection is self.connection:
            self.connection = None
            for asked in self._asked.values():
                if not asked.done():
                    asked.set_exception(ConnectionError())
        self._note_end(connection)

    def _handle(self, connection: Connection, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self._delivered(connection, packet)
        elif isinstance(packet, Pubrel):
            self._open.discard(packet.packet_id)
            connection.send(Pubcomp(packet.packet_id))
        elif isinstance(packet, Puback | Pubrec | Pubcomp):
            self._acknowledged(connection, packet)
        elif isinstance(packet, Suback):
            asked = self._asked.get(packet.packet_id)
            if asked is not None and not asked.done():
                asked.set_result(packet)
        elif not isinstance(packet, Pingresp | Disconnect):
            self._odd(connection, f"got {packet!r:.80}")

    def _delivered(self, connection: Connection, packet: Publish) -> None:
        fresh = packet.qos < 2 or packet.packet_id not in self._open
        self.history.observe(
            Delivery(
                client=self.name,
                target=str(connection.target),
                connection=connection.number,
                message=message_in(packet.payload),
                topic=packet.topic,
                qos=packet.qos,
                dup=packet.dup,
                retain=packet.retain,
                fresh=fresh,
            )
        )
        if packet.qos == 2:
            self._open.add(packet.packet_id)
            connection.send(Pubrec(packet.packet_id))
        elif packet.qos == 1:
            connection.send(Puback(packet.packet_id))

    def _acknowledged(self, connection: Connection, packet: Puback | Pubrec | Pubcomp) -> None:
        flight = self.flights.get(packet.packet_id)
        if flight is None:
            if isinstance(packet, Pubrec):  # a late one: the exchange has to end nevertheless
                connection.send(Pubrel(packet.packet_id))
            return
        expected: tuple[type[Packet], ...] = (Puback,) if flight.publication.qos == 1 else (Pubrec, Pubcomp)
        if not isinstance(packet, expected):
            self._odd(connection, f"got {packet!r:.60} for message {flight.publication.message}")
            return
        if isinstance(packet, Pubcomp):
            del self.flights[packet.packet_id]
            return
        if not flight.released:
            refused = packet.reason >= REFUSED
            self.history.complete(flight.publication, Outcome.FAILED if refused else Outcome.OK)
        if isinstance(packet, Puback) or packet.reason >= REFUSED:
            del self.flights[packet.packet_id]
            return
        flight.released = True
        connection.send(Pubrel(packet.packet_id))

    def _odd(self, connection: Connection, text: str) -> None:
        self.history.observe(Oddity(client=self.name, target=str(connection.target), text=text))
