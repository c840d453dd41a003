"""One population of clients over many lives of a broker on one data folder, up to the last drain and the verdict."""

from __future__ import annotations

import time
from random import Random
from typing import Final

from headwater.disk.crash_points import BROKER_POINTS, STORE_POINTS
from headwater.routing.shared import DISPATCHERS
from headwater_lab.chaos.checker import Checker
from headwater_lab.chaos.draining import Drain, count
from headwater_lab.chaos.history import (
    Acknowledged,
    Connected,
    Killed,
    Received,
    Sent,
    Settled,
    Started,
    Stopped,
)
from headwater_lab.chaos.lives import BrokerFailed, Lives
from headwater_lab.chaos.population import populate
from headwater_lab.chaos.stored import StoredChecker, stored_rows
from headwater_lab.chaos.visitors import Prober
from headwater_lab.chaos.watching import Watching
from headwater_lab.chaos.world import World
from headwater_lab.kill_campaign import EpisodeOutcome

STORED_POINTS: Final = tuple(point for point in STORE_POINTS if "trim" not in point)
"""A broker removes what is old once a minute; `headwater_lab.store_chaos` is about that."""
BOUNDS: Final = {**dict.fromkeys(BROKER_POINTS, 60), "in-recovery": 6, "after-recovery": 1}
STORED_BOUNDS: Final = {**BOUNDS, **dict.fromkeys(STORED_POINTS, 60), "store-in-seal": 4, "store-after-seal": 4}
RANDOM: Final = "random moment"
STOP: Final = "SIGTERM"
SHORTEST, LONGEST = 0.05, 0.5
POINT_LIMIT: Final = 1.5
"""Seconds in which a crash point has to be reached, else it is a random moment after all."""
STOP_LIMIT: Final = 60.0
PEACE: Final = 3.0
SILENCE: Final = 8.0
"""Seconds in which nothing at all happens, after which nothing will."""
STOPS: Final = "friendly ends"
"""The name of their count."""


class Aim:
    """Which moment is next: each crash point in its turn, in random order, and random moments between them.

    A point strikes when it has been passed a random number of times. One that was not reached has its turn again, and
    is to be passed less often.
    """

    def __init__(self, bounds: dict[str, int]) -> None:
        """Points, and how often each is to be passed at most."""
        self.bounds = bounds
        self._turns: list[str] = []

    def choose(self, random: Random) -> tuple[str, str]:
        """A point and its setting; both "" for a random moment, and STOP for a friendly end."""
        if not self._turns:
            self._turns = ["", "", STOP, *self.bounds]
            random.shuffle(self._turns)
        point = self._turns.pop()
        if point == STOP:
            return STOP, ""
        return point, f"{point}:{random.randint(1, self.bounds[point])}" if point else ""

    def missed(self, point: str) -> None:
        if point in self.bounds:
            self.bounds[point] = max(1, self.bounds[point] // 2)
            self._turns.append(point)


class Episode:
    def __init__(self, seed: int, lives: Lives, aim: Aim, graceful: bool = False, stored: bool = False) -> None:
        self.random = Random(seed)
        self.lives = lives
        self.aim = aim
        self.graceful = graceful
        self.world = World(seed, stored)
        self.watching = Watching() if stored else None
        self.outcome = EpisodeOutcome(seed)
        self.drain = Drain(self.world, SILENCE)
        populate(self.world)
        lives.settings = {
            "shared_dispatcher": self.random.choice(sorted(DISPATCHERS)),
            "queue_memory": self.random.choice((0, 10_000, 1 << 28)),
            "max_inflight": self.random.choice((3, 1024)),
        }
        if stored:
            lives.settings |= {"store.enabled": True, "rest.enabled": True, "rest.host": "127.0.0.1"}

    def run(self, kills: int) -> EpisodeOutcome:
        """Live and die so often, then drain and judge; with no kills, live for a while."""
        try:
            if kills == 0:
                self._start("")
                self.world.run_until(self.lives.died, PEACE)
            while self.outcome.kills.total() + (self.outcome.counts[STOPS] if self.graceful else 0) < kills:
                self._live()
            self._drain()
            if self.watching is not None:
                self._look_into_the_store(self.watching)
            self._count()
            return self.outcome
        finally:
            self.world.close()
            self.lives.kill()
            self._watch_no_more()

    # ---- lives -------------------------------------------------------------------------------------------------

    def _start(self, crash_at: str) -> bool:
        world = self.world
        world.life += 1
        listens = self.lives.start(crash_at)
        world.port = self.lives.port
        world.now = time.monotonic()
        if listens:
            self.outcome.waited("recovery", self.lives.seconds_to_listen)
            world.note(Started(world.now))
            if self.watching is not None:
                self.watching.begin(self.lives.rest_port)
            for client in world.clients:
                if client.wake <= world.now:
                    client.wake = world.now + client.random.choice((0.0, 0.05)) * client.random.random()
        return listens

    def _live(self) -> None:
        point, crash_at = self.aim.choose(self.random)
        if not self._start(crash_at):
            self._died(point)
            return
        limit = POINT_LIMIT if crash_at else self.random.uniform(SHORTEST, LONGEST)
        if self.world.run_until(self.lives.died, limit):
            self._died(point)
            return
        if point == STOP or self.graceful:
            self._stop()
            self.outcome.counts[STOPS] += 1
            return
        self.aim.missed(point)
        self.lives.kill()
        self._died("")

    def _died(self, point: str) -> None:
        self._watch_no_more()
        self.world.broker_died()
        self.world.note(Killed(self.world.now, point))
        self.outcome.kills[point or RANDOM] += 1

    def _watch_no_more(self) -> None:
        if self.watching is not None:
            self.watching.end()

    # ---- the end -----------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        world = self.world
        if self.outcome.kills or self.outcome.counts[STOPS]:
            self._start("")
        self.drain.end_of_clients()
        self.drain.until_quiet(lambda: not any(Checker(world.history).lost()))
        self._look("saw the retained messages")
        self.drain.until_quiet(lambda: True)
        self._come_back()
        self.outcome.wrong = [str(each) for each in Checker(world.history).check()]

    def _look(self, what: str) -> None:
        for client in self.world.clients:
            if isinstance(client, Prober):
                client.look_again()
        self.drain.finish(what)

    def _come_back(self) -> None:
        """After a peaceful end nothing is left to deliver, and the rest is as it was."""
        self.world.note(Settled(self.world.now))
        self._stop()
        self._start("")
        self._look("came back after a peaceful end")
        self.drain.until_quiet(lambda: True)

    def _stop(self) -> None:
        self.lives.stop()
        if not self.world.run_until(self.lives.stopped, STOP_LIMIT):
            raise BrokerFailed("the broker was to stop, and did not")
        self._watch_no_more()
        self.world.broker_died()
        self.world.note(Stopped(self.world.now))

    def _look_into_the_store(self, watching: Watching) -> None:
        """After the last end; by itself, and with what was seen of it."""
        self._stop()
        rows = stored_rows(self.lives.data, self.lives.log)
        self.outcome.counts["stored"] = len(rows)
        self.outcome.counts["read by REST"] = len(watching.rows)
        found = StoredChecker(self.world.history, rows, watching.rows).check()
        self.outcome.wrong += [str(each) for each in found]

    def _count(self) -> None:
        history = self.world.history
        count(self.outcome.counts, history, Sent, Acknowledged, Received, Connected)
        self.outcome.counts["events"] = len(history.events)
