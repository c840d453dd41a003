"""Clients that publish: the sender's half of QoS 1 and 2, kept over reconnects (MQTT 5.0, 4.3, 4.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headwater.wire.packets import V5, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from headwater_lab.chaos.client import Client
from headwater_lab.chaos.history import HEAD, Acknowledged, Note, Sent, mark, payload_of

if TYPE_CHECKING:
    from headwater_lab.chaos.world import World

WINDOW: Final = 20
LARGEST: Final = 90_000
REFUSED: Final = 0x80


@dataclass(slots=True)
class Flight:
    note: Note
    released: bool = False


class Publisher(Client):
    """Publishes to its topics in turns. `retains`: with the retain flag, and sometimes clears what is retained."""

    lifetimes: tuple[int, ...] = (1, 100)
    """Expiry intervals of some messages, if it speaks MQTT 5; empty: none expires."""

    def __init__(
        self, world: World, name: str, version: int, topics: list[str], rate: float, retains: bool = False
    ) -> None:
        super().__init__(world, name, version)
        self.topics = topics
        self.rate = rate
        self.retains = retains
        self.flights: dict[int, Flight] = {}
        self.aliases: set[str] = set()
        """Topics that have an alias on this connection."""
        self.next_at = 0.0

    def connected(self, present: bool) -> None:
        """[MQTT-4.4.0-1] In the order in which they were sent, with their own packet ids."""
        self.aliases.clear()
        if not present:
            self.flights.clear()
        for packet_id, flight in self.flights.items():
            if flight.released:
                self.send(Pubrel(packet_id))
            else:
                self._send(packet_id, flight.note, again=True)
        if self.random.random() < 0.1:
            self.next_at = self.world.now + 0.2  # for once only what was open

    def finished(self) -> bool:
        return super().finished() and not self.flights

    def state(self) -> str:
        return f"{super().state()}, open: {dict(list(self.flights.items())[:5])}"

    def act(self, now: float) -> None:
        if self.calm or now < self.next_at:
            return
        if self.random.random() < 0.002:
            self.go()
            return
        self.next_at = now + self.random.expovariate(self.rate)
        if len(self.flights) < WINDOW:
            self.publish(self.random.choice(self.topics))

    def publish(self, topic: str, qos: int | None = None) -> None:
        if qos is None:
            qos = self._qos(topic)
        expires = self.version == V5 and self.lifetimes and self.random.random() < 0.2
        expiry = self.random.choice(self.lifetimes) if expires else None
        size = 0 if self.retains and self.random.random() < 0.2 else self._size()
        number = self.world.history.next_message()
        note = Note(number, self.name, topic, qos, self.retains, size, expiry, marked=self.version == V5)
        self.world.history.note(note)
        packet_id = 0
        if qos:
            packet_id = self._take_id()
            self.flights[packet_id] = Flight(note)
        self._send(packet_id, note, again=False)

    def last_qos(self, topic: str) -> int:
        """For the last message to a topic, which has to be acknowledged."""
        return self._qos(topic) or 1

    def _qos(self, topic: str) -> int:
        """A retained topic has one QoS: between two, there is no order to check."""
        if self.retains:
            return 1 + sum(topic.encode()) % 2
        return self.random.choices((0, 1, 2), (1, 10, 10))[0]

    def _size(self) -> int:
        luck = self.random.random()
        if luck < 0.005 and not self.retains:
            return self.random.randint(65_000, LARGEST)
        return self.random.randint(HEAD, 8_000 if luck < 0.05 else 200)

    def _take_id(self) -> int:
        """One of few, so that what the broker knows of an earlier message with it matters."""
        return self.random.choice([number for number in range(1, 2 * WINDOW) if number not in self.flights])

    def _send(self, packet_id: int, note: Note, again: bool) -> None:
        properties = mark(note) if note.marked else None
        topic = note.topic
        if properties is not None:
            properties.message_expiry_interval = note.expiry
            if self.random.random() < 0.5:  # the alias stands for the topic from the second time on
                properties.topic_alias = self.topics.index(topic) + 1
                topic = "" if topic in self.aliases else topic
                self.aliases.add(note.topic)
        payload = payload_of(note.message, note.size)
        self.note(Sent(self.world.now, note.message))
        self.send(Publish(topic, payload, note.qos, note.retain, again, packet_id, properties))

    def packet(self, packet: Packet) -> None:
        if isinstance(packet, Puback | Pubrec):
            self._acknowledged(packet)
        elif isinstance(packet, Pubcomp):
            flight = self.flights.get(packet.packet_id)
            if flight is None or not flight.released:
                self.odd(f"got PUBCOMP for {packet.packet_id}, which was not released")
            else:
                del self.flights[packet.packet_id]
        else:
            self.odd(f"got {packet!r:.80}")

    def _acknowledged(self, packet: Puback | Pubrec) -> None:
        flight = self.flights.get(packet.packet_id)
        if flight is None or flight.note.qos != (1 if isinstance(packet, Puback) else 2):
            self.odd(f"got {packet!r:.80} for something that it has not sent")
            return
        if packet.reason >= REFUSED:
            self.odd(f"message {flight.note.message} was refused with 0x{packet.reason:02x}")
            del self.flights[packet.packet_id]
            return
        if not flight.released:
            self.note(Acknowledged(self.world.now, flight.note.message))
        if isinstance(packet, Puback):
            del self.flights[packet.packet_id]
            return
        flight.released = True
        self.send_later(Pubrel(packet.packet_id), self.random.choice((0.0, 0.0, self.random.uniform(0, 0.05))))
