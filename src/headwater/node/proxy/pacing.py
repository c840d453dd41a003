"""How long the relay rests between two turns.

Theory. A message that is fetched alone costs two calls of the system and what is around them; ten of the same client
that are fetched together cost little more. So where packets come faster than they are fetched it pays to let them come:
after a turn the relay rests, and does not even wait for its sockets. It can tell by the reads of the turn: they found
several packets on average, but most of them few. Then twice the rest is half the calls, up to `LONGEST`, which bounds
what is added to the delay.

Traffic in lock-step has one packet in each read, and would have one after any rest. A rest brings more sockets into one
turn then, which saves little, and a long one makes answers late, caches cold, and puts those to sleep who have to be
woken: so it is `SHORT`, and there is none behind a turn that served fewer than `SOME` sockets. Who sends so much that
most reads are full enough needs none, either; nor is there any while more sockets are ready than a turn serves.

No rest is longer than `PATIENCE` times the turn before it, so that a single client that sends in bursts hardly waits.
"""

from __future__ import annotations

from typing import Final

SHORT: Final = 0.00005
LONGEST: Final = 0.002
PATIENCE: Final = 4.0
ENOUGH: Final = 16
"""Packets in a read: resting longer would save little more."""
SEVERAL: Final = 1.5
"""Packets in a read, from which on they do not come one by one."""
SOME: Final = 2
MOST_EVENTS: Final = 128
"""Sockets that a turn serves."""


class Pace:
    def __init__(self) -> None:
        self._packets = 0
        self._reads = 0
        self._small = 0

    def begin(self) -> None:
        """A turn begins."""
        self._packets = 0
        self._reads = 0
        self._small = 0

    def read(self, packets: int) -> None:
        """A read found so many."""
        self._reads += 1
        self._packets += packets
        if packets < ENOUGH:
            self._small += 1

    def rest_after(self, took: float, events: int) -> float:
        """Seconds until the next turn, behind one that took so long and served so many sockets."""
        if events >= MOST_EVENTS or 2 * self._small <= self._reads:
            return 0.0
        most = SHORT
        if self._packets > SEVERAL * self._reads:
            most = LONGEST
        elif events < SOME:
            return 0.0
        rest = PATIENCE * took
        return rest if rest < most else most
