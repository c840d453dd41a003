"""Messages at which the home broker ends the connection, which would be repeated at each connection for ever.

Theory. A broker may end the connection at a PUBLISH that it does not like (NATS: a topic with `.`), and says of none
which it was. What is in flight goes again [MQTT-4.4.0-1], so that one would end each connection, and what is behind it
would never come. So after such an end what was in flight is tried one at a time, and nothing else is written:

    ended by the home broker -> trial: the oldest goes alone -> acknowledged: the next one; after the last one, all
                                                             -> ended again: it was this one; MOST_ENDS -> given up
                                                             -> no answer for PATIENCE: all

Innocent messages pass, as each is acknowledged alone. The first end, at which many may have been in flight, counts for
the oldest one, as acknowledgements come in the order of the messages; the others are counted in trials.

A home broker that could not be reached in between was stopped or killed: that says nothing about messages, and the
count begins anew. QoS 0 is not repeated: nothing of it is remembered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final

from headwater.node.plane.channel import Channel
from headwater.node.protocol.server import Server
from headwater.session.outbound import Flight
from headwater.session.session import Session
from headwater.wire.reasons import (
    IMPLEMENTATION_SPECIFIC_ERROR,
    MALFORMED_PACKET,
    NOT_AUTHORIZED,
    PACKET_TOO_LARGE,
    PAYLOAD_FORMAT_INVALID,
    PROTOCOL_ERROR,
    QOS_NOT_SUPPORTED,
    RETAIN_NOT_SUPPORTED,
    TOPIC_NAME_INVALID,
    UNSPECIFIED_ERROR,
)

log = logging.getLogger("headwater.proxy")

MOST_ENDS: Final = 3
"""Ends of connections in a row at one message, until it is given up."""
PATIENCE: Final = 2.0
"""Seconds that a trial waits for one acknowledgement: who does not like a message ends the connection sooner."""
OF_A_MESSAGE: Final = frozenset(
    (
        UNSPECIFIED_ERROR,
        MALFORMED_PACKET,
        PROTOCOL_ERROR,
        IMPLEMENTATION_SPECIFIC_ERROR,
        NOT_AUTHORIZED,
        TOPIC_NAME_INVALID,
        PACKET_TOO_LARGE,
        PAYLOAD_FORMAT_INVALID,
        RETAIN_NOT_SUPPORTED,
        QOS_NOT_SUPPORTED,
    )
)
"""Reasons of a DISCONNECT that a message can be the cause of."""


class Trial:
    """What is in flight goes one at a time; then `done` is called, unless the connection ends before.

    While `unsent` has something, the session sends nothing by itself, and with a window of 0 none of that either.
    """

    def __init__(self, server: Server, channel: Channel, session: Session, done: Callable[[], None]) -> None:
        self.is_on = True
        self.acknowledged = 0
        self._server = server
        self._channel = channel
        self._session = session
        self._done = done
        self._out = 0
        self._window = 0

    def begin(self, window: int, reserved: Collection[int]) -> None:
        outbound = self._session.outbound
        self._window = window
        outbound.connected(0)
        outbound.unsent = [each for each in outbound.flights if each not in reserved]
        self._timer = self._server.timers.at(self._server.hot.now + PATIENCE, self._time_is_over)
        self.look()

    def look(self) -> None:
        """Something came: it may have been an acknowledgement, which takes the message out of `unsent`."""
        outbound = self._session.outbound
        while self.is_on and outbound.unsent and outbound.unsent[0] != self._out:
            if self._out:
                self.acknowledged += 1
            self._out = outbound.unsent[0]
            self._server.timers.cancel(self._timer)
            self._timer = self._server.timers.at(self._server.hot.now + PATIENCE, self._time_is_over)
            self._server.delivering.resend(self._channel, self._session, [self._out])
        if self.is_on and not outbound.unsent:
            self.acknowledged += 1
            self._open(self._window)

    def _time_is_over(self) -> None:
        self.look()
        outbound = self._session.outbound
        if self.is_on:
            outbound.unsent = outbound.unsent[1:]  # the first one is out
            self._open(self._window - 1)

    def _open(self, quota: int) -> None:
        self.stop()
        outbound = self._session.outbound
        outbound.window = self._window
        outbound.quota = quota
        self._server.delivering.drain(self._channel)
        self._done()

    def stop(self) -> None:
        self.is_on = False
        self._server.timers.cancel(self._timer)


class Suspects:
    """Of one session, over all its connections."""

    def __init__(self, server: Server, session: Session) -> None:
        self.given_up = 0
        self.is_due = False
        """Whether the next connection begins with a trial."""
        self._server = server
        self._session = session
        self._flight: Flight | None = None
        self._ends = 0

    def forget(self) -> None:
        """The home broker is not there."""
        self.is_due = False
        self._flight = None
        self._ends = 0

    def ended(self, trial: Trial | None) -> bool:
        """The home broker has ended a connection that the session had. Whether a message was given up."""
        packet_id, flight = next(iter(self._session.outbound.flights.items()), (0, None))
        if flight is None:
            self.forget()
            return False
        is_again = trial is not None and trial.is_on and flight is self._flight
        self._ends = self._ends + 1 if is_again else 1
        self._flight = flight
        self.is_due = True
        if self._ends < MOST_ENDS:
            return False
        self._give_up(packet_id, flight)
        return True

    def _give_up(self, packet_id: int, flight: Flight) -> None:
        delivering = self._server.delivering
        what = "a PUBREL"
        if not flight.released:
            delivery = self._session.flight_delivery(flight)
            delivering.fetch(delivery)
            what = f"a message, topic {delivery.message.topic[:200]!r}"
            delivery.journaled = None  # it is the flight's
        self._session.outbound.take_flight(packet_id)
        delivering.landed(flight)
        self.given_up += 1
        self._flight = None
        log.warning("the home broker has ended %d connections at %s: it is given up", MOST_ENDS, what)
