"""How long the relay rests between two turns.

Theory. A message that is fetched alone costs two calls of the system and what is around them; ten that are fetched
together cost little more. So it pays to let them come: after a turn the relay rests, and does not even wait for its
sockets. But who waits for an answer waits for the rest as well, so it is taken only where it pays:

- never longer than `PATIENCE` times the turn before it: who sends little to an idle relay hardly waits;
- longer than `SHORT` only while reads find several packets at once, but most of them few: then packets come faster
  than they are fetched, and twice the rest is half the calls. Traffic in lock-step, one packet in each read, gains
  nothing by long rests and gets none; nor does who sends so much that each read is full enough;
- not at all while more sockets are ready than a turn serves.

`LONGEST` bounds what is added to the delay.
"""

from __future__ import annotations

from typing import Final

SHORT: Final = 0.0002
LONGEST: Final = 0.002
PATIENCE: Final = 4.0
ENOUGH: Final = 16
"""Packets in a read: resting longer would save little more."""
SEVERAL: Final = 1.5
"""Packets in a read, from which on they do not come one by one."""
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
        """Seconds until the next turn, behind one that took so long and served so many."""
        if events >= MOST_EVENTS:
            return 0.0
        most = SHORT
        if self._packets > SEVERAL * self._reads and 2 * self._small > self._reads:
            most = LONGEST
        rest = PATIENCE * took
        return rest if rest < most else most
