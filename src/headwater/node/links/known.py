"""What a client knows of its session, so that QoS 2 comes once also to one that had two (`session_lost` "clean").

Theory. A client that is told "session present" 0 forgets what it had received, so a flight of QoS 2 that it gets again
after that is a second delivery. Two marks before a session's lineage say when that may be; they move with it, and are
on disk with it. Both go when the client has said something behind the CONNACK by which it was told.

    UNSEEN    the session began anew, and nothing shows that the client has seen so. It is told again, "session present"
              0, and its flights are dropped: the client may have had them.
    DOUBTED   a younger session of the client has met this one, which goes on, or has claimed it while it could not go.
              The client may have been told of that one in between. Flights that were not released go on with PUBREL:
              whoever has had the message finds that in order, whoever has not does not get it.

What is dropped so is counted.
"""

from __future__ import annotations

from typing import Final

from headwater.node.links.moves import Moves
from headwater.node.plane.channel import Channel
from headwater.peering.retained.clock import NEVER_WRITTEN, Stamp
from headwater.session.session import UNSEEN, Session

DOUBTED: Final = "!"


class Known:
    """Of clients that are connected here."""

    def __init__(self, moves: Moves) -> None:
        self.moves = moves
        self._unheard: dict[Channel, float] = {}
        """Who was told something that it may not have seen, and when."""

    def attached(self, channel: Channel, session: Session) -> None:
        """Before its flights are sent again."""
        is_unknown = session.is_unknown_to_client
        if not is_unknown and not session.lineage.startswith(DOUBTED):
            return
        self._unheard[channel] = self.moves.server.hot.now
        for packet_id, flight in list(session.outbound.flights.items()):
            if flight.qos == 2 and is_unknown:
                session.outbound.take_flight(packet_id)
                self.moves.server.delivering.landed(flight)
                self.moves.server.delivering.ended(session, flight.group, 1)
                self.moves.drop(0 if flight.released else 1)
            elif flight.qos == 2 and not flight.released:
                session.outbound.received(packet_id, 0)
                if flight.journaled is not None and self.moves.journal is not None:
                    self.moves.journal.released(flight.journaled)
                self.moves.drop(1)

    def detached(self, channel: Channel, session: Session) -> None:
        """Whoever has said something since has seen the CONNACK; of others that is not known."""
        told_at = self._unheard.pop(channel, None)
        if told_at is not None and (channel.last_seen > told_at or has_shown(session)):
            session.lineage = first_claim(session.lineage)


def has_shown(session: Session) -> bool:
    """Whether its client could only have done what it did if it had seen that the session began anew."""
    return session.lineage.startswith(UNSEEN) and not session.is_unknown_to_client


def first_claim(lineage: str) -> str:
    """Without what is marked in it."""
    return lineage.lstrip(UNSEEN + DOUBTED)


def is_same(one: str, other: str) -> bool:
    """Whether they are of one session."""
    return first_claim(one) == first_claim(other)


def meets(session: Session, lineage: str) -> None:
    """Another session of its client has come, and this one goes on."""
    if born(lineage) > born(session.lineage):
        doubt(session)


def doubt(session: Session) -> None:
    if not session.lineage.startswith(UNSEEN):
        session.lineage = DOUBTED + first_claim(session.lineage)


def born(lineage: str) -> Stamp:
    """When a session of that lineage began."""
    number, _, node = first_claim(lineage).partition(" ")
    return Stamp(int(number), node) if number.isdecimal() else NEVER_WRITTEN
