"""The sending half of a session: packet ids, what is in flight, what waits.

Theory (MQTT 5.0, 4.3, 4.4, 4.9). A message of QoS 1 or 2 lives in one of three places, and moves only rightwards:

    queue  --quota, connected-->  flights (sent)  --PUBREC, QoS 2-->  flights (released)  -->  done

`quota` is the peer's Receive Maximum less the flights sent on this connection [MQTT-4.9.0-1]; it is 0 while nobody is
connected, so that everything waits in the queue. A flight keeps its packet id until it is done, also over a reconnect
[MQTT-4.4.0-1]; flights that a smaller Receive Maximum does not let out again wait in `unsent`, in order.
As long as something waits, what comes later waits behind it: order is kept whatever the QoS.

Messages that wait are bounded per session (count and bytes); those and the flights are bounded over all sessions
(`Budget`). `policy` says who gives way.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from headwater.message import Delivery

DROP_NEWEST: Final = 0
DROP_OLDEST: Final = 1
DISCONNECT_WHEN_FULL: Final = 2

SEND: Final = 0
QUEUED: Final = 1
DROPPED: Final = 2
OVERFLOW: Final = 3

MAX_PACKET_ID: Final = 65535
OVERHEAD: Final = 256
"""Bytes that a waiting message is counted with beside what it carries: what the objects around it take."""
PAIR_OVERHEAD: Final = 160
"""The same for each user property."""


class Budget:
    """Bytes that may wait for slow or absent readers, in all sessions and sockets together."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


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
        self.released = False


def waiting_size(delivery: Delivery) -> int:
    message = delivery.message
    size = len(message.payload) + len(message.topic) + OVERHEAD
    if message.user_properties is not None:
        for name, value in message.user_properties:
            size += len(name) + len(value) + PAIR_OVERHEAD
    if message.correlation_data is not None:
        size += len(message.correlation_data)
    if message.response_topic is not None:
        size += len(message.response_topic)
    if message.content_type is not None:
        size += len(message.content_type)
    return size


class Outbound:
    def __init__(self, budget: Budget, max_messages: int, max_bytes: int, policy: int) -> None:
        self.budget = budget
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.policy = policy
        self.window = 0
        self.quota = 0
        self.next_id = 1
        self.flights: dict[int, Flight] = {}
        self.unsent: list[int] = []
        self.queue: deque[Delivery] | None = None
        self.queued_bytes = 0
        self.dropped = 0
        self.given_up: list[Delivery] | None = None

    def connected(self, window: int) -> None:
        """A peer is there that takes `window` messages at a time; call `resume` next."""
        self.window = window
        self.quota = window

    def disconnected(self) -> None:
        self.quota = 0
        self.unsent = []

    def waiting(self) -> int:
        return 0 if self.queue is None else len(self.queue)

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
        may_fly = self.quota > 0 and self.budget.used < self.budget.limit
        if connected and not self.queue and not self.unsent and (delivery.qos == 0 or may_fly):
            return SEND
        return self.wait(delivery)

    def wait(self, delivery: Delivery) -> int:
        """Put a message behind those that wait, or let one give way by the policy."""
        size = waiting_size(delivery)
        queue = self.queue
        if queue is None:
            queue = self.queue = deque()
        if not self._fits(len(queue), self.queued_bytes, size):
            if self.policy != DROP_OLDEST or not self._fits(0, 0, size):  # nobody gives way for what cannot fit anyway
                self.dropped += 1
                return OVERFLOW if self.policy == DISCONNECT_WHEN_FULL else DROPPED
            while not self._fits(len(queue), self.queued_bytes, size):
                self._give_up(queue.popleft())
        queue.append(delivery)
        self.queued_bytes += size
        self.budget.used += size
        return QUEUED

    def _fits(self, count: int, own_bytes: int, size: int) -> bool:
        """Whether one more has room beside `count` messages of `own_bytes` and what waits elsewhere."""
        return (
            count < self.max_messages
            and own_bytes + size <= self.max_bytes
            and self.budget.used - self.queued_bytes + own_bytes + size <= self.budget.limit
        )

    def next_waiting(self, now: float) -> Delivery | None:
        """The next message that may be sent now, taken off the queue; expired ones are passed over [MQTT-3.3.2-5]."""
        queue = self.queue
        while queue:
            delivery = queue[0]
            if delivery.message.expires_at <= now:
                self._give_up(queue.popleft())
                continue
            if delivery.qos and self.quota <= 0:
                return None
            self._forget(queue.popleft())
            if not queue:
                self.queue = None
            return delivery
        self.queue = None
        return None

    def _give_up(self, delivery: Delivery) -> None:
        self._forget(delivery)
        self.dropped += 1
        if self.given_up is None:
            self.given_up = []
        self.given_up.append(delivery)

    def take_given_up(self) -> list[Delivery]:
        """What was dropped from the queue, by the policy or because it expired, since the last call."""
        given_up = self.given_up or []
        self.given_up = None
        return given_up

    def _forget(self, delivery: Delivery) -> None:
        size = waiting_size(delivery)
        self.queued_bytes -= size
        self.budget.used -= size

    def fly(self, packet_id: int, delivery: Delivery, size: int) -> None:
        """A message went out as a packet of `size` bytes; they count until it is acknowledged."""
        self.quota -= 1
        self.budget.used += size
        self.flights[packet_id] = Flight(delivery.qos, delivery, b"", b"", 0, size)

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
        self.budget.used -= flight.size
        flight.size = 0
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

    def resume(self) -> list[int]:
        """After a reconnect: the ids of the flights to go on with, in their order. PUBREL needs no quota
        [MQTT-3.3.4-10]; messages that the quota does not let out again wait in `unsent`."""
        now: list[int] = []
        later: list[int] = []
        for packet_id, flight in self.flights.items():
            if flight.released or self.quota > 0:
                self.quota -= 1
                now.append(packet_id)
            else:
                later.append(packet_id)
        self.unsent = later
        return now

    def next_unsent(self) -> list[int]:
        """The flights that the quota now lets out again."""
        count = max(0, min(self.quota, len(self.unsent)))
        out = self.unsent[:count]
        self.unsent = self.unsent[count:]
        self.quota -= count
        return out

    def clear(self) -> list[Delivery]:
        """Forget everything. Returns what may still be given to somebody else: what waited, and before it what a shared
        group sent with QoS 1 and was not acknowledged (a QoS 2 delivery that has begun stays here [MQTT-4.8.2-4])."""
        left: list[Delivery] = []
        for flight in self.flights.values():
            self.budget.used -= flight.size
            delivery = flight.delivery
            if flight.qos == 1 and delivery is not None and delivery.group is not None:
                left.append(delivery)
        for delivery in self.queue or ():
            self._forget(delivery)
            left.append(delivery)
        self.queue = None
        self.flights = {}
        self.unsent = []
        return left
