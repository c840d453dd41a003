"""What waits in a session, taken out of it: for another node, or for another session of the same client."""

from __future__ import annotations

from typing import Final

from headwater.message import Delivery
from headwater.node.links.moves import MUCH
from headwater.node.links.post import LARGEST
from headwater.node.links.retaining import packet_of
from headwater.node.plane.counters import TOO_LARGE
from headwater.node.protocol.server import Server
from headwater.peering.sessions.messages import Moved
from headwater.session.outbound import Flight
from headwater.session.session import Session

MANY: Final = 64
"""Messages in one letter."""
ROOM: Final = 1 << 20
"""What may be around a message in a letter."""


def take_some(server: Server, session: Session) -> list[Moved]:
    """As much as goes into one letter, flights first; []: nothing is left."""
    outbound, delivering = session.outbound, server.delivering
    found: list[Moved] = []
    size = 0
    while len(found) < MANY and size < MUCH:
        if outbound.flights:
            packet_id = next(iter(outbound.flights))
            moved = _flight(server, session, packet_id, outbound.flights[packet_id])
        else:
            first = outbound.first(server.hot.now)
            if first is None:
                break
            delivery = outbound.take()
            if delivery.qos == 0:
                continue  # it waited for its connection, which is over
            delivering.fetch(delivery)
            moved = moved_of(server, delivery, 0)
            delivering.forget(delivery)
        if len(moved.packet) > LARGEST - ROOM:
            server.stats.drops[TOO_LARGE] += 1
            continue
        found.append(moved)
        size += len(moved.packet)
    for delivery in outbound.take_given_up():
        delivering.dropped(session, delivery, delivering.why_given_up(delivery))
    return found


def _flight(server: Server, session: Session, packet_id: int, flight: Flight) -> Moved:
    delivering = server.delivering
    if flight.released:
        moved = Moved(2, False, True, packet_id, (), "", b"")
    else:
        delivery = session.flight_delivery(flight)
        delivery.journaled = flight.journaled
        delivering.fetch(delivery)
        delivery.journaled = None
        moved = moved_of(server, delivery, packet_id)
    session.outbound.take_flight(packet_id)
    delivering.landed(flight)
    return moved


def moved_of(server: Server, delivery: Delivery, packet_id: int) -> Moved:
    message = delivery.message
    packet = packet_of(message, server.hot.now)
    identifiers = tuple(delivery.identifiers or ())
    return Moved(delivery.qos, delivery.retain, False, packet_id, identifiers, message.publisher, packet)
