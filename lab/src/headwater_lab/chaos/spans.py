"""When a message can have been published: between its sending and its acknowledgement.

A will is published between its CONNECT and the client's next CONNACK. It is due when an accepted connection ended
without DISCONNECT. DISCONNECT calls it off, but nobody acknowledges that: only another CONNACK of the same life of
the broker shows that it was read. A will with a delay is called off when the client comes back in time.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from headwater_lab.chaos.claims import END
from headwater_lab.chaos.history import (
    Connected,
    Connecting,
    Disconnected,
    History,
    Killed,
    Leaving,
    Started,
    Stopped,
)
from headwater_lab.chaos.sessions import SLACK


@dataclass(slots=True)
class Span:
    """Places in the history. `due`: it must have been published; `called_off`: it must not."""

    sent: int = END
    sent_last: int = END
    acknowledged: int = END
    times: int = 0
    due: bool = False
    called_off: bool = False


@dataclass(slots=True)
class _Connection:
    will: int
    accepted: bool = False
    leaving: Leaving | None = None
    ended_at: float | None = None
    counted_at: float | None = None
    """From when on a delay counts at the latest: the first start of the broker after a kill."""
    returned_at: float | None = None
    """When the client tried to connect again, whether it was answered or not."""
    killed: bool = False

    def called_off(self, now: float, delay: int) -> bool:
        """Whether it was, if the client is connected again now."""
        if not self.accepted or self.ended_at is None:
            return False
        if self.leaving is not None and not self.leaving.with_will:
            return not self.killed
        return delay > 0 and now < self.ended_at + delay - SLACK

    def due(self, now: float, delay: int) -> bool:
        """Whether it must have been published, if it is `now` and the client is not back yet."""
        if not self.accepted or self.ended_at is None or (self.leaving is not None and not self.leaving.with_will):
            return False
        return delay == 0 or now > (self.counted_at or self.ended_at) + delay + SLACK


def read_wills(history: History, spans: dict[int, Span]) -> None:
    clients: dict[str, list[_Connection]] = defaultdict(list)
    """Connections whose wills may still come, the present one last."""
    for place, event in enumerate(history.events):
        match event:
            case Connecting():
                for connection in clients[event.client]:
                    connection.returned_at = connection.returned_at or event.at
                clients[event.client].append(_Connection(event.will))
                if event.will:
                    spans[event.will] = Span(place, place, times=1)
            case Connected():
                connections = clients[event.client]
                connections[-1].accepted = True
                for connection in connections[:-1]:
                    _settle(history, spans, connection, place, event.at, True)
                clients[event.client] = connections[-1:]
            case Leaving():
                clients[event.client][-1].leaving = event
            case Disconnected():
                clients[event.client][-1].ended_at = event.at
            case Started():
                for connections in clients.values():
                    for connection in connections:
                        if connection.ended_at is not None and connection.counted_at is None:
                            connection.counted_at = event.at
            case Killed() | Stopped():
                for connections in clients.values():
                    for connection in connections:
                        connection.killed = True
    for connections in clients.values():
        for connection in connections:
            _settle(history, spans, connection, len(history.events), history.events[-1].at, False)


def _settle(
    history: History, spans: dict[int, Span], connection: _Connection, place: int, now: float, returned: bool
) -> None:
    """The client is connected again, or the history is over."""
    if connection.will:
        span = spans[connection.will]
        delay = history.notes[connection.will].delay
        span.acknowledged = place
        span.called_off = returned and connection.called_off(now, delay)
        span.due = connection.due(connection.returned_at or now, delay)
