"""What the methods of the papers have in common: strings in a classical Bloom filter, and a search that asks for some.

A method says which strings a filter is stored as, and which it asks for in search of a topic; `Shared` is what can be
asked, `Counted` what filters can be added to and removed from.
"""

from __future__ import annotations

from collections.abc import Iterable

from mypy_extensions import mypyc_attr

from headwater.interest.bloom import Bloom, CountingBloom
from headwater.interest.filter import MOST_PROBES, Incompatible, Interest, Owned, Statistics
from headwater.interest.written import Writing
from headwater.routing.topics import split_shared


class Enough(Exception):
    """The bound on work is reached."""


class Method:
    """Strings of a filter, and a way to search."""

    name = ""

    def elements(self, levels: list[str]) -> Iterable[str]:
        """That a filter is stored as."""
        raise NotImplementedError

    def search(self, levels: list[str], asking: Asking) -> bool:
        """Whether a topic is found, by asking for strings. Raises Enough."""
        raise NotImplementedError

    def added(self, levels: list[str]) -> None:
        """Besides its strings, note what is to be known of a filter."""

    def removed(self, levels: list[str]) -> None:
        """Forget that again."""

    def merge(self, other: Method) -> None:
        """Know what the other does, too."""

    def write(self, made: Writing) -> None:
        """What has to travel beside the strings."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Asking:
    """Counts what is asked for."""

    def __init__(self, bloom: Bloom, most: int) -> None:
        self.probes = 0
        self._bloom = bloom
        self._most = most

    def has(self, element: str) -> bool:
        if self.probes == self._most:
            raise Enough
        self.probes += 1
        return self._bloom.has(element.encode())


class Elements(Interest):
    """A method over a filter of another broker."""

    def __init__(self, method: Method, bloom: Bloom, most_probes: int = MOST_PROBES) -> None:
        super().__init__(most_probes)
        self.method = method
        self.bloom = bloom

    def may_match(self, topic: str) -> bool:
        asking = Asking(self.bloom, self.most_probes)
        try:
            found = self.method.search(topic.split("/"), asking)
        except Enough:
            return self._gave_up(asking.probes)
        return self._answered(found, asking.probes)

    def merge(self, other: Interest) -> None:
        if not isinstance(other, Elements) or other.method.name != self.method.name:
            raise Incompatible("these filters are of different methods")
        self.bloom.merge(other.bloom)
        self.method.merge(other.method)

    def encode(self) -> bytes:
        made = Writing(self.method.name)
        self.bloom.write(made)
        self.method.write(made)
        return made.done()

    def statistics(self) -> Statistics:
        shared, kept = len(self.bloom.ones), self.bloom.kept_bytes()
        return Statistics(None, None, shared, kept, self.lookups, self.total_probes, self.given_up)


class CountedElements(Elements, Owned):
    """A method over a filter of this broker's own."""

    def __init__(self, method: Method, bloom: CountingBloom, most_probes: int = MOST_PROBES) -> None:
        super().__init__(method, bloom, most_probes)
        self.counting = bloom
        self.filters = 0

    def add(self, filter: str) -> None:
        levels = _levels(filter)
        for element in self.method.elements(levels):
            self.counting.add(element.encode())
        self.method.added(levels)
        self.filters += 1

    def remove(self, filter: str) -> None:
        """The last string is the filter's own."""
        levels = _levels(filter)
        for element in reversed(list(self.method.elements(levels))):
            self.counting.remove(element.encode())
        self.method.removed(levels)
        self.filters -= 1

    def may_match(self, topic: str) -> bool:
        self.counting.settle()
        return super().may_match(topic)

    def merge(self, other: Interest) -> None:
        super().merge(other)
        if isinstance(other, CountedElements):
            self.filters += other.filters

    def encode(self) -> bytes:
        self.counting.settle()
        return super().encode()

    def statistics(self) -> Statistics:
        self.counting.settle()
        return super().statistics()._replace(filters=self.filters)


def _levels(filter: str) -> list[str]:
    return split_shared(filter)[1].split("/")
