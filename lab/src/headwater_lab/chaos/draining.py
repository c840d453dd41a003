"""The end of an episode: clients come to theirs, and all that is owed comes, or nothing has come for long.

A broker that owes nothing any more cannot be asked for it. So who waits here waits for what clients see: an answer to a
ping, behind which there is nothing that was sent before, and silence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from headwater_lab.chaos.history import Event, History, Oddity
from headwater_lab.chaos.publisher import Publisher
from headwater_lab.chaos.world import World

NEVER: Final = "never"
"""Begins what is said of a client that did not come to its end."""
IMPATIENT: Final = 1.0
"""Seconds of silence that are enough when it was in vain to wait once: something is wrong anyway."""


class Drain:
    """`patience`: seconds in which nothing at all happens, after which nothing will."""

    def __init__(self, world: World, patience: float) -> None:
        self._world = world
        self._patience = patience

    def calm(self, is_calm: bool = True) -> None:
        """Nobody begins anything new, and everybody comes back at once; or they go on."""
        for client in self._world.clients:
            client.calm = is_calm
            client.wake = min(client.wake, self._world.now)

    def end_of_clients(self) -> None:
        """All finish, with a last message to each topic."""
        self.calm()
        self.finish("came to its end")
        for client in self._world.clients:
            if isinstance(client, Publisher):
                for topic in client.topics:
                    client.publish(topic, client.last_qos(topic))
        self.finish("came to its end after the last messages")

    def finish(self, what: str) -> None:
        """Wait until all clients have; who does not is odd."""
        clients = self._world.clients
        if not self._wait(lambda: all(client.finished() for client in clients)):
            for client in clients:
                if not client.finished():
                    self._world.note(Oddity(self._world.now, client.name, f"{NEVER} {what}: {client.state()}"))

    def until_quiet(self, satisfied: Callable[[], bool]) -> None:
        """Until nothing comes any more and nothing is missing, or nothing has come for long."""
        world = self._world
        last_news = world.now
        while True:
            seen = len(world.history.events)
            self._round_trip()
            if len(world.history.events) != seen:
                last_news = world.now
            elif satisfied():
                return
            elif world.now > last_news + self._patience:
                self._patience = IMPATIENT
                return

    def _wait(self, done: Callable[[], bool]) -> bool:
        """Until it is so, or nothing has happened for long."""
        world = self._world
        seen, since = 0, world.now
        while not done():
            world.turn()
            if len(world.history.events) != seen:
                seen, since = len(world.history.events), world.now
            elif world.now > since + self._patience:
                self._patience = IMPATIENT
                return False
        return True

    def _round_trip(self) -> None:
        """All have had an answer to a ping, so they have what was sent before."""
        clients = self._world.clients
        for client in clients:
            client.pongs = 0
            client.ping()
        self._world.run_until(lambda: all(client.pongs for client in clients), self._patience)


def count(counts: Counter[str], history: History, *kinds: type[Event]) -> None:
    """Events of these kinds, by their names, and what was published."""
    for event in history.events:
        if isinstance(event, kinds):
            counts[type(event).__name__.lower()] += 1
    counts["published"] = len(history.notes)
