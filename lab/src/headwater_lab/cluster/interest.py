"""What telling interest by `bloom` saves and costs, against `subscribe`: two nodes' coordination, without sockets.

Filters and topics are random (a fixed seed). For bytes, names of ten characters, six levels, each filter with at least
one wildcard. For messages, one of three thousand names at each level, so that a share of the topics is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Final, NamedTuple

from headwater.peering.coordination import Coordination
from headwater.routing.feed import FILTER_ADDED, FILTER_REMOVED, RouteChange
from headwater_lab.reproduce.interest.trial import names, with_wildcards

SEED: Final = 1
LEVELS: Final = 6
NAMES: Final = 3000
FILTERS: Final = 6000
"""For messages: three topics in ten are wanted."""
TICK: Final = 0.05
GROWTH: Final = 0.2
LINGERS: Final = 6.0
"""Seconds after which every removal has been told."""
HERE, THERE = "here", "there"


class Told:
    """`there` tells `here` by a method what its clients want, over a link that is up."""

    def __init__(self, method: str, filters: Iterable[str]) -> None:
        self.here = Coordination(HERE, 1)
        self.there = Coordination(THERE, 1, method)
        self.now = 1.0
        self.change(FILTER_ADDED, filters)
        self.here.link(THERE, True, self.now)
        self.there.link(HERE, True, self.now)
        self.exchange()

    def change(self, kind: str, filters: Iterable[str]) -> None:
        for each in filters:
            self.there.route_changed(RouteChange(kind, each, None, 0), self.now)

    def exchange(self, seconds: float = 0.0) -> None:
        """Until nobody has anything to say, so much later."""
        self.now += seconds
        is_quiet = False
        while not is_quiet:
            is_quiet = True
            for sender, receiver in ((self.here, self.there), (self.there, self.here)):
                for _, frame in sender.tick(self.now).sends:
                    receiver.received(sender.node, frame, self.now)
                    is_quiet = False

    @property
    def bytes(self) -> int:
        """Of states and changes since the link is up."""
        traffic = self.there.traffic(HERE)
        assert traffic is not None
        return traffic.state_bytes + traffic.change_bytes

    def crosses(self, topic: str) -> bool:
        return bool(self.here.links(topic))


class Crossed(NamedTuple):
    """Messages, one of each topic. `denied`: those that were wanted and did not cross."""

    exact: int
    summary: int
    denied: int
    topics: int


def messages(filters: int, topics: int) -> Crossed:
    random = Random(SEED)
    wanted = [_few_names(random, with_wildcards(["?"] * LEVELS, 0, random)) for _ in range(filters)]
    asked = [_few_names(random, ["?"] * LEVELS) for _ in range(topics)]
    exact, summary = (Told(method, wanted) for method in ("subscribe", "bloom"))
    yes = [(exact.crosses(topic), summary.crosses(topic)) for topic in asked]
    return Crossed(
        exact=sum(each for each, _ in yes),
        summary=sum(each for _, each in yes),
        denied=sum(is_wanted and not crosses for is_wanted, crosses in yes),
        topics=topics,
    )


def _few_names(random: Random, levels: list[str]) -> str:
    """`?` stands for any of `NAMES`. Filters of wildcards alone would want everything."""
    while all(level in "+#" for level in levels):
        levels = with_wildcards(["?"] * LEVELS, 0, random)
    return "/".join(f"name{random.randrange(NAMES)}" if level == "?" else level for level in levels)


def wildcard_filters(count: int, seed: int = SEED) -> list[str]:
    """Of six levels of ten characters, where a wildcard may be at any."""
    random = Random(seed)
    found = (with_wildcards(names(LEVELS, random), 0, random) for _ in range(2 * count))
    several = ("/".join(levels) for levels in found if any(level not in "+#" for level in levels))
    return [each for each, _ in zip(several, range(count), strict=False)]


class Bytes(NamedTuple):
    """Of the whole state; of changes, half of them removals; and of growing by `GROWTH`."""

    state: int
    changes: int
    growth: int


def told_bytes(method: str, filters: int, changes: int, rate: float) -> Bytes:
    """`rate`: changes in a second."""
    told = Told(method, wildcard_filters(filters))
    state = told.bytes
    coming, going = wildcard_filters(changes // 2, SEED + 1), []
    at_once = int(rate * TICK / 2)
    for at in range(0, len(coming), at_once):
        several = coming[at : at + at_once]
        told.change(FILTER_ADDED, several)
        going.append(several)
        if len(going) > 1.0 / TICK:
            told.change(FILTER_REMOVED, going.pop(0))
        told.exchange(TICK)
    for several in going:
        told.change(FILTER_REMOVED, several)
        told.exchange(TICK)
    told.exchange(LINGERS)
    changed = told.bytes
    coming = wildcard_filters(int(GROWTH * filters), SEED + 2)
    for at in range(0, len(coming), at_once):
        told.change(FILTER_ADDED, coming[at : at + at_once])
        told.exchange(TICK)
    return Bytes(state, changed - state, told.bytes - changed)
