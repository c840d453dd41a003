"""Who had a session when, and so what CONNACK has to say of it.

What a CONNACK said must be so after a crash; a CONNECT without an answer may have had its effect, or not. A session
ends its expiry interval after its connection did. A crash ends connections too, and the broker may count from its
next start; but not again from each start after that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headwater_lab.chaos.history import Connected, Connecting, Disconnected, History, Started

SLACK: Final = 1.5
"""Seconds by which an interval may be missed: they are whole seconds, and a machine can be busy."""


@dataclass(slots=True)
class _Known:
    """What the client knows of its session: `exists` is None while that is open. It is away since `away` at the
    earliest, and since `counted` at the latest."""

    exists: bool | None = False
    expiry: int | None = None
    connecting: Connecting | None = None
    away: float | None = None
    counted: float = 0.0
    restarted: bool = False

    def expected(self, now: float) -> bool | None:
        assert self.connecting is not None
        if self.connecting.clean:
            return False
        if self.exists and self.expiry is not None and self.away is not None:
            if self.connecting.at > self.counted + self.expiry + SLACK:
                return False
            if now > self.away + self.expiry - SLACK:
                return None
        return self.exists

    def disconnected(self, now: float) -> None:
        connecting = self.connecting
        if connecting is None:
            if self.expiry == 0:
                self.exists = False
        elif connecting.clean or not self.exists:  # it was asked for, and nothing is known
            self.exists = False if connecting.expiry == 0 and self.exists is False else None
        self.connecting = None
        self.away = now if self.away is None else self.away
        self.counted = now
        self.restarted = False

    def broker_started(self, now: float) -> None:
        if self.away is not None and not self.restarted:
            self.counted = now
            self.restarted = True

    def connected(self) -> None:
        assert self.connecting is not None
        self.exists = True
        self.expiry = self.connecting.expiry
        self.connecting = None
        self.away = None


def wrong_sessions(history: History) -> Iterator[tuple[int, str]]:
    """Places of CONNACKs that say what cannot be, and a text for each."""
    clients: dict[str, _Known] = {}
    for place, event in enumerate(history.events):
        if isinstance(event, Started):
            for known in clients.values():
                known.broker_started(event.at)
        elif isinstance(event, Connecting):
            clients.setdefault(event.client, _Known()).connecting = event
        elif isinstance(event, Disconnected):
            clients[event.client].disconnected(event.at)
        elif isinstance(event, Connected):
            known = clients[event.client]
            expected = known.expected(event.at)
            if expected is not None and event.present != expected:
                yield place, f"{event.client} was told that it has {'a' if event.present else 'no'} session"
            known.connected()
