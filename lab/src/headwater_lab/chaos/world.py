"""The driver's loop: all clients of an episode in one thread, and the clock that they share."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from typing import Final

from headwater_lab.chaos.client import Client
from headwater_lab.chaos.history import Event, History

TICK: Final = 0.002
"""Seconds between two looks at what clients want to do."""


class World:
    """`now` is read once per turn, `life` counts the broker's lives; `port` is where the present one listens. `stored`:
    it has a delivery store, and subscribers ask for positions."""

    def __init__(self, seed: int, stored: bool = False) -> None:
        self.seed = seed
        self.stored = stored
        self.history = History()
        self.clients: list[Client] = []
        self.life = 0
        self.port = 0
        self.now = time.monotonic()
        self._selector = selectors.DefaultSelector()

    def port_of(self, client: Client) -> int:
        """Where a client connects."""
        return self.port

    def ended(self, client: Client) -> None:
        """The other side has ended its connection."""

    def note(self, event: Event) -> None:
        self.history.add(event)

    def watch(self, client: Client) -> None:
        assert client.connection is not None
        self._selector.register(client.connection.socket, selectors.EVENT_READ, client)

    def unwatch(self, client: Client) -> None:
        assert client.connection is not None
        self._selector.unregister(client.connection.socket)

    def turn(self) -> None:
        ready = self._selector.select(TICK)
        self.now = time.monotonic()
        for key, _ in ready:
            client: Client = key.data
            client.read()
        for client in self.clients:
            client.turn(self.now)

    def run_until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Turns until something is so; False if it was not in that time."""
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                return False
            self.turn()
        return True

    def broker_died(self) -> None:
        """Read what it had sent before; then nobody is connected."""
        self.now = time.monotonic()
        for client in self.clients:
            client.read(to_the_end=True)

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self._selector.close()
