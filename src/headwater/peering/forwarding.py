"""Which messages are new here, and which go on: counters, hops and windows in one place.

    a message is published here   `number` gives it its counter; it goes to `Coordination.links(topic)` with 0 hops
    a run comes over a link       `admit` says which of its messages are new, and whether they may go on; `look` says
                                  so before, where there may be no room for them yet
    it goes on                    to `links(topic)` but for the link that it came by, with one hop more, as it is

In a full mesh the hop limit is 1: nothing goes on, and a peer speaks for itself alone.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headwater.peering.frames.frame import MalformedFrame, Run
from headwater.peering.windows import Windows

MESH: Final = 1
GRAPH: Final = 16
"""Links that a message may cross where neighbours are configured."""


class Admission(NamedTuple):
    """`fresh`: which messages of a run are new, one bit each, the first the lowest. `origin` is never ""."""

    origin: str
    fresh: int
    may_go_on: bool


class Forwarding:
    def __init__(self, node: str, boot: int, hop_limit: int = MESH) -> None:
        self.node = node
        self.boot = boot
        self.hop_limit = hop_limit
        self.windows = Windows()
        self.repeated = 0
        """Messages that were dropped because they had come already, or late."""
        self.stopped = 0
        """Messages that have reached the hop limit and were not relayed."""
        self._counter0 = 0
        self._counter1 = 0

    def number0(self, count: int) -> int:
        """The counter of the first of so many QoS 0 messages that are published here."""
        first = self._counter0
        self._counter0 += count
        return first

    def number1(self, count: int) -> int:
        first = self._counter1
        self._counter1 += count
        return first

    def look(self, run: Run, peer: str) -> Admission:
        """What `admit` would say of a run with positions. What is not applied at once must not count as seen: the link
        may break before it is, and then it comes again."""
        origin = self._origin(run, peer)
        if run.hops >= self.hop_limit or origin == self.node:
            return Admission(origin, 0, False)
        if self.hop_limit == MESH:  # there is one way: positions tell what is new
            return Admission(origin, (1 << run.messages) - 1, False)
        fresh = self.windows.fresh1(origin, run.boot, run.counter, run.messages)
        return Admission(origin, fresh, run.hops + 1 < self.hop_limit)

    def _origin(self, run: Run, peer: str) -> str:
        origin = run.origin or peer
        if (run.hops == 0) != (origin == peer):
            raise MalformedFrame(f"a run of {origin} with {run.hops} hops")
        return origin

    def known0(self, run: Run, peer: str) -> int:
        """Where nothing goes on: of a run of QoS 0, how many messages from its first on are not new. Raises
        MalformedFrame if the peer may not send it."""
        origin = self._origin(run, peer)
        if run.hops >= self.hop_limit:
            self.stopped += run.messages
            return run.messages
        known = self._take0(origin, run)
        self.repeated += known
        return known

    def _take0(self, origin: str, run: Run) -> int:
        if origin == self.node:
            return run.messages
        return self.windows.take0(origin, run.boot, run.counter, run.messages)

    def admit(self, run: Run, peer: str) -> Admission:
        """Raises MalformedFrame if the peer may not send it."""
        origin = self._origin(run, peer)
        if run.hops >= self.hop_limit:
            self.stopped += run.messages
            return Admission(origin, 0, False)
        every = (1 << run.messages) - 1
        if not run.position:
            known = self._take0(origin, run)
            fresh = every >> known << known
        elif origin == self.node:
            fresh = 0
        else:
            fresh = self.windows.take1(origin, run.boot, run.counter, run.messages)
        if fresh != every:
            self.repeated += run.messages - fresh.bit_count()
        may_go_on = run.hops + 1 < self.hop_limit
        if fresh and not may_go_on and self.hop_limit > MESH:
            self.stopped += fresh.bit_count()
        return Admission(origin, fresh, may_go_on)
