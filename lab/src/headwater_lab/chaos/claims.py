"""Who was subscribed to what, when: surely, or perhaps.

Theory. A SUBSCRIBE takes effect somewhere between its sending and its SUBACK, an UNSUBSCRIBE likewise; a kill between
the two leaves both possible. So a claim has two spans: a narrow one, in which the client is surely subscribed and
must be given what is published, and a wide one, outside of which it must not be given anything.

    asked ... sure_from ================ leaving ... gone
      |<----------- may be given ----------------->|
                 |<---- must be given -->|

A session that ends takes its claims with it, and what waits because of them: surely with the CONNACK of its
successor, perhaps (`doubtful`) with a CONNECT that asked for a clean start, or by expiring.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from headwater.routing.topics import matches, split_shared
from headwater_lab.chaos.history import (
    Connected,
    Connecting,
    Disconnected,
    History,
    Subscribed,
    Subscribing,
    Unsubscribed,
    Unsubscribing,
)

END: Final = 1 << 60
"""A place behind every other."""


@dataclass(slots=True)
class Claim:
    client: str
    name: str
    filter: str
    share: str | None
    qos: int
    asked: int
    sure_from: int = END
    leaving: int = END
    gone: int = END
    session_gone: int = END
    doubtful: bool = False

    def surely(self, first: int, last: int) -> bool:
        """Whether it holds for all of this span."""
        return self.sure_from < first and last < self.leaving and not self.doubtful

    def perhaps(self, published: int, received: int) -> bool:
        """Whether what was published from then on may be received now."""
        return self.asked < received and published < self.gone and received < self.session_gone

    def wants(self, topic: str) -> bool:
        return matches(self.filter, topic)


@dataclass(slots=True)
class _Session:
    claims: dict[str, list[Claim]] = field(default_factory=dict)
    clean: bool = False
    expiry: int | None = None
    away: bool = True

    def end(self, place: int) -> None:
        """Another session has taken its place."""
        if not self.clean and self.expiry is not None:
            self.doubt()
        for claims in self.claims.values():
            for claim in claims:
                claim.session_gone = place
                claim.gone = min(claim.gone, place)
        self.claims = {}

    def doubt(self) -> None:
        for claims in self.claims.values():
            for claim in claims:
                claim.doubtful = True


class _Book:
    def __init__(self) -> None:
        self.claims: list[Claim] = []
        self.sessions: dict[str, _Session] = {}

    def subscribing(self, place: int, event: Subscribing) -> None:
        own = self.sessions[event.client].claims.setdefault(event.filter, [])
        if own and own[-1].leaving == END and not own[-1].doubtful:
            return  # asked for again, or renewed
        share, topic_filter = split_shared(event.filter)
        own.append(Claim(event.client, event.filter, topic_filter, share, event.qos, place))
        self.claims.append(own[-1])

    def subscribed(self, place: int, event: Subscribed) -> None:
        claim = self.sessions[event.client].claims[event.filter][-1]
        claim.sure_from = min(claim.sure_from, place)

    def unsubscribing(self, place: int, event: Unsubscribing) -> None:
        for claim in self.sessions[event.client].claims.get(event.filter, []):
            claim.leaving = min(claim.leaving, place)

    def unsubscribed(self, place: int, event: Unsubscribed) -> None:
        for claim in self.sessions[event.client].claims.get(event.filter, []):
            claim.gone = min(claim.gone, place)

    def connecting(self, place: int, event: Connecting) -> None:
        session = self.sessions.setdefault(event.client, _Session())
        session.clean = event.clean
        if event.clean or event.forgot:
            session.doubt()

    def connected(self, place: int, event: Connected, expiry: int | None) -> None:
        session = self.sessions[event.client]
        if not event.present:
            session.end(place)
        session.expiry = expiry
        session.away = False


def claims_of(history: History) -> list[Claim]:
    book = _Book()
    expiries: dict[str, int | None] = {}
    for place, event in enumerate(history.events):
        match event:
            case Subscribing():
                book.subscribing(place, event)
            case Subscribed():
                book.subscribed(place, event)
            case Unsubscribing():
                book.unsubscribing(place, event)
            case Unsubscribed():
                book.unsubscribed(place, event)
            case Connecting():
                book.connecting(place, event)
                expiries[event.client] = event.expiry
            case Connected():
                book.connected(place, event, expiries[event.client])
            case Disconnected():
                book.sessions[event.client].away = True
    for session in book.sessions.values():
        if session.away and session.expiry is not None:  # it may be gone by now
            session.doubt()
    return book.claims
