"""The seam: what every interest filter can do, whatever it is made of."""

from __future__ import annotations

from typing import Final, NamedTuple

from mypy_extensions import trait

MOST_PROBES: Final = 4096
"""Of one look-up, unless something else is said; past it the answer is "maybe", which is yes."""


class Incompatible(ValueError):
    """Two filters of different makes or sizes cannot be put together, nor bytes read that are no filter."""


class Statistics(NamedTuple):
    """`filters` are those that were added and not removed, each as often as it was; None where that is not known, as in
    what another broker has sent. `elements` is what is stored of them, each once. Bytes are those of the filter as it
    is shared, and all that is kept here. `given_up` counts look-ups that reached the bound on work."""

    filters: int | None
    elements: int | None
    shared_bytes: int
    kept_bytes: int
    lookups: int
    probes: int
    given_up: int


class Interest:
    """May somebody want this topic? Never no if somebody does, but for the methods whose names say that they are a
    paper's.

    Topics and filters are well formed (`routing.topics`). `probes` is what the last look-up has asked for: elements of
    a Bloom filter, or lines of a summary.
    """

    def __init__(self, most_probes: int = MOST_PROBES) -> None:
        self.probes = 0
        self.most_probes = most_probes
        self.lookups = 0
        self.total_probes = 0
        self.given_up = 0

    def may_match(self, topic: str) -> bool:
        raise NotImplementedError

    def merge(self, other: Interest) -> None:
        """Have what the other one has as well. Raises Incompatible."""
        raise NotImplementedError

    def encode(self) -> bytes:
        """What others need in order to ask; `methods.decode` reads it."""
        raise NotImplementedError

    def statistics(self) -> Statistics:
        raise NotImplementedError

    def _answered(self, answer: bool, probes: int) -> bool:
        self.probes = probes
        self.lookups += 1
        self.total_probes += probes
        return answer

    def _gave_up(self, probes: int) -> bool:
        self.given_up += 1
        return self._answered(True, probes)


@trait
class Owned:
    """Of the broker whose clients subscribe: it changes."""

    def add(self, filter: str) -> None:
        """A shared subscription counts with its inner filter. What is added twice is removed twice."""
        raise NotImplementedError

    def remove(self, filter: str) -> None:
        """Raises KeyError, and changes nothing, if the filter is known not to be there."""
        raise NotImplementedError
