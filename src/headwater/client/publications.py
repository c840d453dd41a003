"""Our messages on their way to the server.

Theory. A message waits in one queue, in the order of the calls and whatever its QoS, until it may leave: there must be
a connection, the transport must not be holding back more than it likes, and for QoS 1 and 2 the server's Receive
Maximum must allow one more [MQTT-3.3.4-9]. `pump` lets out what may leave and is called whenever one of the three has
changed. Each caller waits for its own message, so the callers bound the queue.

Flights of QoS 1 and 2 are kept by `session.outbound`, the broker's own sending half, as the bytes that went out. After
a reconnect to the same session they go again under the same ids, marked as duplicates, or as PUBREL if the server had
confirmed them [MQTT-4.4.0-1]. If the session is gone they go as new messages; those that the server had confirmed with
PUBREC are its own since then [MQTT-4.3.3-8], and done.

Who keeps a record of its own on disk, so that QoS 2 stays exactly once also if this process is killed, needs three
things more (`keeps_record`): to name the packet ids, to be told of PUBREC before PUBREL leaves (from then on the server
does not know the id any more, and would take the message for a new one), and to go on with what an earlier process had
under way. `submit` then ends with PUBREC, and `release` sends PUBREL.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from headwater.client.errors import Rejected, explain
from headwater.client.link import Link
from headwater.client.trace import in_one_line
from headwater.session.outbound import Flight, Outbound
from headwater.session.waiting import DROP_NEWEST, Budget
from headwater.wire.encode import encode
from headwater.wire.packets import V5, Properties, Puback, Pubcomp, Publish, Pubrec, Pubrel
from headwater.wire.primitives import encode_packet_id
from headwater.wire.reasons import (
    PACKET_IDENTIFIER_NOT_FOUND,
    PACKET_TOO_LARGE,
    QOS_NOT_SUPPORTED,
    RETAIN_NOT_SUPPORTED,
    SUCCESS,
    TOPIC_ALIAS_INVALID,
    UNSPECIFIED_ERROR,
)

FAILURE: Final = UNSPECIFIED_ERROR
"""Reason codes from here on mean failure."""
MOST_FLIGHTS: Final = 60_000
MOST_REQUESTS: Final = 5_000
"""Together fewer than there are packet ids, even if the server allows publications for all of them."""
DUP: Final = 0x08

log: Final = logging.getLogger("headwater.client")


class Waiting:
    """A message that has not left. `head` and `tail` are the bytes before and after the packet id; without one, all
    are in `head`."""

    def __init__(
        self, packet: Publish, version: int, answer: asyncio.Future[int], packet_id: int, is_again: bool
    ) -> None:
        self.packet = packet
        self.packet_id = packet_id
        """0: any."""
        self.is_again = is_again
        self.qos = packet.qos
        self.answer = answer
        packet.packet_id = 1 if packet.qos else 0  # any; the real one is known when it leaves
        self.head = encode(packet, version)
        self.tail = b""
        if packet.qos:
            start = 2  # of the topic's length, behind first byte and remaining length
            while self.head[start - 1] & 0x80:
                start += 1
            end = start + 2 + int.from_bytes(self.head[start : start + 2])
            self.head, self.tail = self.head[:end], self.head[end + 2 :]

    @property
    def size(self) -> int:
        return len(self.head) + len(self.tail) + (2 if self.qos else 0)


class Publications:
    """After `end`, every wait, current or future, raises its error."""

    def __init__(self, version: int, keeps_record: bool = False) -> None:
        self._version = version
        self._keeps_record = keeps_record
        self._outbound = Outbound(Budget(0), 0, 0, DROP_NEWEST)
        self._waiting: deque[Waiting] = deque()
        self._answers: dict[int, asyncio.Future[int]] = {}
        self._reasons: dict[int, int] = {}
        """Of PUBRECs, which are the answers to QoS 2 messages, though they end with PUBCOMP."""
        self._withheld: set[int] = set()
        """Ids that the server has confirmed with PUBREC, whose PUBREL waits for `release`."""
        self._releases: dict[int, asyncio.Future[int]] = {}
        self._reserved: set[int] = set()
        self._server = Properties()
        self._dup = 0
        self._is_new = True
        self._own: set[int] | None = None
        """The packet ids that we have used, if the session is older than this program: of the others, the server may
        still wait for the PUBREL of an earlier one, and take a new message for that one's."""
        self._link: Link | None = None
        self._error: Exception | None = None

    @property
    def in_flight(self) -> int:
        return len(self._outbound.flights)

    def reserve_id(self) -> int:
        """A packet id for something else, until it is given back."""
        if len(self._reserved) >= MOST_REQUESTS:
            raise Rejected(f"more than {MOST_REQUESTS} requests are under way")
        packet_id = self._free_id()
        self._reserved.add(packet_id)
        return packet_id

    def give_back_id(self, packet_id: int) -> None:
        self._reserved.discard(packet_id)

    def attach(self, link: Link, server: Properties, window: int, session_present: bool) -> None:
        """A connection was made; what was in flight goes on."""
        self._link = link
        self._server = server
        self._outbound.connected(min(window, MOST_FLIGHTS))
        if not session_present:
            for packet_id in [each for each, flight in self._outbound.flights.items() if flight.released]:
                self._done(packet_id, SUCCESS)
        if not session_present:
            self._own = None
        elif self._is_new:
            self._own = set()
        self._is_new = False
        self._dup = DUP if session_present else 0  # [MQTT-3.3.1-1]
        for packet_id in self._outbound.resume():
            self._send_again(packet_id, link)
        self.pump()

    def detach(self) -> None:
        self._link = None
        self._outbound.disconnected()

    def end(self, error: Exception) -> None:
        self._error = error
        self._link = None
        waited = [*self._answers.values(), *self._releases.values()]
        for future in [*waited, *(each.answer for each in self._waiting)]:
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever has given up waiting need not look at it
        self._answers.clear()
        self._releases.clear()
        self._waiting.clear()

    def submit(self, packet: Publish, packet_id: int = 0, is_again: bool = False) -> asyncio.Future[int]:
        """Send it in its turn. The result is there when it was sent; with QoS 1 or 2, when the server has answered: its
        reason code. With a `packet_id`, under that one, which is not in use; `is_again`: an earlier process may have
        sent it, under that id."""
        if self._error is not None:
            raise self._error
        answer = asyncio.get_running_loop().create_future()
        waiting = Waiting(packet, self._version, answer, packet_id, is_again)
        self._waiting.append(waiting)
        self.pump()
        return waiting.answer

    def release(self, packet_id: int) -> asyncio.Future[int]:
        """Send PUBREL for a message that the server has confirmed, to this process or to an earlier one; the result is
        there when the id is free. It goes again with later connections."""
        if self._error is not None:
            raise self._error
        future = self._releases.get(packet_id)
        if future is not None:
            return future
        future = self._releases[packet_id] = asyncio.get_running_loop().create_future()
        if packet_id not in self._outbound.flights:
            self._outbound.flights[packet_id] = Flight(2, None, b"", b"", self._version, 0)
            self._outbound.quota -= 1
        self._outbound.flights[packet_id].released = True
        self._withheld.discard(packet_id)
        if self._own is not None:
            self._own.add(packet_id)
        if self._link is not None:
            self._link.send(Pubrel(packet_id))
        return future

    def pump(self) -> None:
        """Send what may be sent."""
        link = self._link
        if link is None:
            return
        for packet_id in self._outbound.next_unsent():
            self._send_again(packet_id, link)
        while self._waiting and link.is_writable:
            first = self._waiting[0]
            if first.answer.done():  # the caller has gone
                self._waiting.popleft()
                continue
            if first.qos and self._outbound.quota <= 0:
                return
            self._waiting.popleft()
            refusal = self._refusal(first)
            if refusal is not None:
                first.answer.set_exception(refusal)
            else:
                self._send(first, link)

    def _send(self, first: Waiting, link: Link) -> None:
        if first.qos:
            packet_id = first.packet.packet_id = first.packet_id or self._free_id()
            self._outbound.quota -= 1
            self._outbound.flights[packet_id] = Flight(first.qos, None, first.head, first.tail, self._version, 0)
            self._answers[packet_id] = first.answer
            if first.qos == 2 and self._own is not None and packet_id not in self._own:
                self._own.add(packet_id)
                if not first.is_again:
                    link.send(Pubrel(packet_id))  # what an earlier program left ends here
            if first.is_again:
                link.write(bytes((first.head[0] | self._dup,)) + first.head[1:])
            else:
                link.write(first.head)
            link.write(encode_packet_id(packet_id) + first.tail)
        else:
            link.write(first.head)
            first.answer.set_result(SUCCESS)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("sending %s", in_one_line(first.packet))

    def _send_again(self, packet_id: int, link: Link) -> None:
        flight = self._outbound.flights[packet_id]
        if flight.released:
            if packet_id not in self._withheld:
                link.send(Pubrel(packet_id))
            return
        log.debug("sending again PUBLISH packet_id=%d", packet_id)
        first_byte = bytes((flight.head[0] | self._dup,))
        link.write(first_byte + flight.head[1:] + encode_packet_id(packet_id) + flight.tail)

    def _free_id(self) -> int:
        packet_id = self._outbound.take_id()
        while packet_id in self._reserved:
            packet_id = self._outbound.take_id()
        return packet_id

    def _refusal(self, waiting: Waiting) -> Rejected | None:
        """Why the server would not take it, by what it said when we connected."""
        server, packet = self._server, waiting.packet
        if server.maximum_qos is not None and packet.qos > server.maximum_qos:  # [MQTT-3.2.2-11]
            return Rejected(f"the server takes messages up to QoS {server.maximum_qos}", QOS_NOT_SUPPORTED)
        if packet.retain and server.retain_available == 0:  # [MQTT-3.2.2-14]
            return Rejected("the server does not retain messages", RETAIN_NOT_SUPPORTED)
        alias = packet.properties.topic_alias if packet.properties is not None else None
        if alias is not None and alias > (server.topic_alias_maximum or 0):  # [MQTT-3.3.2-9]
            return Rejected(f"the server takes {server.topic_alias_maximum or 0} topic aliases", TOPIC_ALIAS_INVALID)
        largest = server.maximum_packet_size
        if largest is not None and waiting.size > largest:  # [MQTT-3.2.2-15]
            text = f"the server takes packets of at most {largest} bytes, not {waiting.size}"
            return Rejected(text, PACKET_TOO_LARGE)
        return None

    def acknowledged(self, packet: Puback) -> None:
        """One that nobody waits for is of an earlier program's message, and is let pass."""
        if self._outbound.acknowledged(packet.packet_id) is not None:
            self._answer(packet.packet_id, packet.reason, packet.properties)
            self.pump()

    def received(self, packet: Pubrec, link: Link) -> None:
        packet_id = packet.packet_id
        flight = self._outbound.received(packet_id, packet.reason)
        if packet.reason >= FAILURE:  # the exchange ends here, without PUBREL [MQTT-4.3.3-4]
            if flight is not None and not flight.released:
                self._answer(packet_id, packet.reason, packet.properties)
                self.pump()
            return
        if flight is not None:
            flight.head = flight.tail = b""
            if self._keeps_record and packet_id not in self._releases:
                self._withheld.add(packet_id)
                self._answer(packet_id, packet.reason, None)
                return
            self._reasons[packet_id] = packet.reason
        unknown = flight is None and self._version == V5
        link.send(Pubrel(packet_id, PACKET_IDENTIFIER_NOT_FOUND if unknown else SUCCESS))

    def completed(self, packet: Pubcomp) -> None:
        if packet.packet_id in self._withheld:
            return
        if self._outbound.completed(packet.packet_id) is not None:
            self._answer(packet.packet_id, self._reasons.pop(packet.packet_id, SUCCESS), None)
            self.pump()

    def _done(self, packet_id: int, reason: int) -> None:
        """A flight is over without the server's last word."""
        self._outbound.done(packet_id, self._outbound.flights[packet_id])
        self._withheld.discard(packet_id)
        self._answer(packet_id, self._reasons.pop(packet_id, reason), None)

    def _answer(self, packet_id: int, reason: int, properties: Properties | None) -> None:
        answer = self._answers.pop(packet_id, None) or self._releases.pop(packet_id, None)
        if answer is None or answer.done():  # it was given, or the caller has gone
            return
        if reason < FAILURE:
            answer.set_result(reason)
        else:
            text = f"the server did not take the message: {explain(reason, properties)}"
            answer.set_exception(Rejected(text, reason, properties))
