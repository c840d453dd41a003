"""How long the relay rests between two turns.

Theory. A message that is fetched alone costs two calls of the system and what is around them; ten of the same client
that are fetched together cost little more. So where packets come faster than they are fetched it pays to let them come:
after a turn the relay rests, and does not even wait for its sockets. It does so while packets come in bursts, of which
some read of the last `MEMORY` turns tells, and most reads find few: then twice the rest is half the calls. A rest is at
most `PATIENCE` times the turn before it, so that a single client that sends in bursts hardly waits, and at most
`LONGEST`, which bounds what is added to the delay.

Traffic in lock-step has one packet in each read, and would have one after any rest. A rest would only make answers late
and caches cold, and put those to sleep who then have to be woken (50 clients with one message under way each, on a busy
machine: 16 µs for a message without rests, 19 with rests of 50 µs). Who sends so much that most reads are full enough
needs none, either; nor is there any while more sockets are ready than a turn serves.
"""

from __future__ import annotations

from typing import Final

LONGEST: Final = 0.002
PATIENCE: Final = 4.0
ENOUGH: Final = 16
"""Packets in a read: resting longer would save little more."""
BURST: Final = 4
"""Packets in a read that did not come one by one."""
MEMORY: Final = 64
"""Turns."""
MOST_EVENTS: Final = 128
"""Sockets that a turn serves."""


class Pace:
    def __init__(self) -> None:
        self._reads = 0
        self._small = 0
        self._bursts = 0
        """Turns for which a burst is remembered."""

    def begin(self) -> None:
        """A turn begins."""
        self._reads = 0
        self._small = 0

    def read(self, packets: int) -> None:
        """A read found so many."""
        self._reads += 1
        if packets < ENOUGH:
            self._small += 1
        if packets >= BURST:
            self._bursts = MEMORY

    def passed(self, reads: int, small: int, bursts: int) -> None:
        """So many reads, of which so many found few packets, and so many a burst (passing.c)."""
        self._reads += reads
        self._small += small
        if bursts:
            self._bursts = MEMORY

    def rest_after(self, took: float, events: int) -> float:
        """Seconds until the next turn, behind one that took so long and served so many sockets."""
        if self._bursts == 0:
            return 0.0
        self._bursts -= 1
        if events >= MOST_EVENTS or 2 * self._small <= self._reads:
            return 0.0
        rest = PATIENCE * took
        return rest if rest < LONGEST else LONGEST
