"""Stamps that order what nodes write, by time as far as clocks agree and never against cause and effect.

Theory: hybrid logical clocks (Kulkarni, Demirbas, Madappa, Avva, Leone 2014). A time is milliseconds of the wall clock
and a counter; it is never smaller than one that this node has given or seen. Two nodes that write at the same time are
told apart by their ids.

A node whose clock is far ahead must not take the others with it: what it says counts, but moves no other clock by more
than `AHEAD`. Who replaces what such a node wrote is still later than it, as a new stamp is above the one it replaces. A
node gives no stamp twice in one life.
"""

from __future__ import annotations

from typing import Final, NamedTuple

COUNTER_BITS: Final = 16
AHEAD: Final = 60_000
"""Milliseconds."""
MAX_TIME: Final = (1 << 64) - 1


class Stamp(NamedTuple):
    """The greater one is the later one."""

    time: int
    node: str


NEVER_WRITTEN: Final = Stamp(0, "")


class HybridClock:
    def __init__(self, node: str, last: int = 0) -> None:
        """`last`: the greatest time that this node has given before."""
        self.node = node
        self.last = last
        self._far = 0
        """The last one that was given to replace what a clock far ahead had written."""

    def stamp(self, wall: int, replaces: Stamp = NEVER_WRITTEN) -> Stamp:
        """For something that is written now, `wall` milliseconds, in place of what had that stamp."""
        self.last = max(self.last + 1, wall << COUNTER_BITS)
        time = max(self.last, replaces.time + 1)
        if time > self.last:  # no two are the same, whatever they replace
            time = self._far = max(time, self._far + 1)
        return Stamp(min(time, MAX_TIME), self.node)

    def see(self, stamp: Stamp, wall: int) -> None:
        """Another node has written that."""
        if stamp.time <= (wall + AHEAD) << COUNTER_BITS:
            self.last = max(self.last, stamp.time)
