"""The sending half of a session: packet ids, what is in flight, what waits.

Theory (MQTT 5.0, 4.3, 4.4, 4.9). A message of QoS 1 or 2 lives in one of three places, and moves only rightwards:

    queue  --quota, connected-->  flights (sent)  --PUBREC, QoS 2-->  flights (released)  -->  done

`quota` is the peer's Receive Maximum less the flights sent on this connection [MQTT-4.9.0-1]; it is 0 while nobody is
connected, so that everything waits in the queue. A flight keeps its packet id until it is done, also over a reconnect
[MQTT-4.4.0-1]; flights that a smaller Receive Maximum does not let out again wait in `unsent`, in order.
As long as something waits, what comes later waits behind it: order is kept whatever the QoS.

What waits is a bounded queue (waiting.py); it and the flights count in the budget of all sessions (`Budget`). Who has
quota is sent a message also when that is used up: sent, it is done with sooner.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from headwater.message import OVERHEAD, Delivery
from headwater.session.journaled import DurableDelivery
from headwater.session.waiting import REFUSE, SEND, Budget, DeliveryQueue

MAX_PACKET_ID: Final = 65535


class Flight:
    """A QoS 1 or 2 message that was sent and is not done.

    The hot path keeps the packet as it went out, `head` + packet id + `tail`, in protocol `version`, and makes no
    Delivery; `Session.delivery_of` makes it when a reconnect needs it.
    """

    def __init__(self, qos: int, delivery: Delivery | None, head: bytes, tail: bytes, version: int, size: int) -> None:
        self.qos = qos
        self.size = size
        self.delivery = delivery
        self.head = head
        self.tail = tail
        self.version = version
        self.group: object = None if delivery is None else delivery.group
        self.publisher = ""  # for the group, if it has to choose again
        self.journaled: DurableDelivery | None = None
        self.position = 0
        self.commit = 0
        self.released = False


class Outbound(DeliveryQueue):
    def __init__(self, budget: Budget, max_messages: int, max_bytes: int, policy: int) -> None:
        super().__init__(budget, max_messages, max_bytes, policy)
        self.window = 0
        self.quota = 0
        self.next_id = 1
        self.flights: dict[int, Flight] = {}
        self.unsent: list[int] = []

    def connected(self, window: int) -> None:
        """A peer is there that takes `window` messages at a time; call `resume` next."""
        self.window = window
        self.quota = window

    def disconnected(self) -> None:
        self.quota = 0
        self.unsent = []

    def flying_bytes(self) -> int:
        """What unacknowledged messages count in the budget."""
        return sum([flight.size for flight in self.flights.values()])

    def take_id(self) -> int:
        """A packet id that is not in use [MQTT-2.2.1-3], or 0 when all are."""
        flights = self.flights
        if len(flights) >= MAX_PACKET_ID:
            return 0
        packet_id = self.next_id
        while packet_id in flights:
            packet_id = packet_id + 1 if packet_id < MAX_PACKET_ID else 1
        self.next_id = packet_id + 1 if packet_id < MAX_PACKET_ID else 1
        return packet_id

    def offer(self, delivery: Delivery, connected: bool) -> int:
        """SEND: the caller sends it now. QUEUED, DROPPED: done. OVERFLOW: dropped, and the client is to be cut off."""
        if connected and not self.queue and not self.unsent and (delivery.qos == 0 or self.quota > 0):
            return SEND
        return self.wait(delivery)

    def may_fly(self) -> bool:
        """Whether a message of QoS 1 or 2 that can wait elsewhere may be sent now, if nothing waits."""
        return self.quota > 0 and self.budget.used < self.budget.limit

    def has_room(self, delivery: Delivery) -> bool:
        """Whether a message could be sent now, or wait, without another one giving way."""
        if self.policy == REFUSE or (not self.queue and not self.unsent and self.quota > 0):
            return True
        return self._fits(self.waiting(), self.queued_bytes, delivery.message.size())

    def next_waiting(self, now: float) -> Delivery | None:
        """The next message that may be sent now, taken off the queue."""
        delivery = self.first(now)
        if delivery is None or (delivery.qos and self.quota <= 0):
            return None
        return self.take()

    def fly(self, packet_id: int, delivery: Delivery, size: int) -> Flight:
        """A message went out as a packet of `size` bytes; they count until it is acknowledged."""
        self.quota -= 1
        size += OVERHEAD
        self.budget.used += size
        flight = self.flights[packet_id] = Flight(delivery.qos, delivery, b"", b"", 0, size)
        return flight

    def acknowledged(self, packet_id: int) -> Flight | None:
        """PUBACK: the flight it ends, or None when there is none that waits for it."""
        flight = self.flights.get(packet_id)
        if flight is None or flight.qos != 1:
            return None
        return self.done(packet_id, flight)

    def received(self, packet_id: int, reason: int) -> Flight | None:
        """PUBREC: the flight, now released (send PUBREL), or ended by an error; None for an unknown id."""
        flight = self.flights.get(packet_id)
        if flight is None or flight.qos != 2:
            return None
        if reason >= 0x80:
            if flight.released:
                return flight
            return self.done(packet_id, flight)
        flight.released = True
        flight.delivery = None
        self.budget.used -= flight.size - OVERHEAD
        flight.size = OVERHEAD
        return flight

    def completed(self, packet_id: int) -> Flight | None:
        """PUBCOMP: the flight it ends, or None."""
        flight = self.flights.get(packet_id)
        if flight is None or flight.qos != 2 or not flight.released:
            return None
        return self.done(packet_id, flight)

    def done(self, packet_id: int, flight: Flight) -> Flight:
        """A flight has ended, one way or the other."""
        del self.flights[packet_id]
        self.budget.used -= flight.size
        if packet_id in self.unsent:
            self.unsent.remove(packet_id)
        elif self.quota < self.window:
            self.quota += 1
        return flight

    def take_flight(self, packet_id: int) -> None:
        """Nobody is connected, and somebody else gets the message: forget it here."""
        self.budget.used -= self.flights.pop(packet_id).size

    def restore_flight(self, packet_id: int, flight: Flight) -> None:
        """Put a flight in its place that was in the air when the process ended; in their order."""
        self.flights[packet_id] = flight
        flight.size = OVERHEAD
        self.budget.used += OVERHEAD
        self.next_id = packet_id + 1 if packet_id < MAX_PACKET_ID else 1

    def resume(self, most: int = MAX_PACKET_ID) -> list[int]:
        """After a reconnect: the ids of the flights to go on with, in their order. PUBREL needs no quota
        [MQTT-3.3.4-10]; messages that the quota does not let out again, or that are more than `most`, wait in
        `unsent`."""
        now: list[int] = []
        later: list[int] = []
        for packet_id, flight in self.flights.items():
            if flight.released or (self.quota > 0 and len(now) < most):
                self.quota -= 1
                now.append(packet_id)
            else:
                later.append(packet_id)
        self.unsent = later
        return now

    def next_unsent(self, most: int = MAX_PACKET_ID) -> list[int]:
        """The flights, so many at most, that the quota now lets out again."""
        count = max(0, min(self.quota, len(self.unsent), most))
        out = self.unsent[:count]
        self.unsent = self.unsent[count:]
        self.quota -= count
        return out

    def clear(self) -> deque[Delivery]:
        """Forget everything; returns what waited."""
        for flight in self.flights.values():
            self.budget.used -= flight.size
        self.flights = {}
        self.unsent = []
        return self.take_all()
