"""`bfp`: the filter as it is, and the patterns of wildcards in use (Naaman, 2016; Chen et al., 2018).

A pattern says at which levels a filter has `+`, and at which `#`, or none. Patterns travel with the Bloom filter; of a
topic, what each of them makes of it is asked for, and the topic itself. It is quick where few patterns are in use.
`bfp-paper` leaves out `#` behind the topic's last level, as the paper's count of forms does.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.interest.elements import Asking, Method
from headwater.interest.filter import Incompatible
from headwater.interest.written import Reading, Writing

NONE = -1
Pattern = tuple[tuple[int, ...], int]
"""Levels with `+`, and that with `#`, or −1."""


def pattern_of(levels: list[str]) -> Pattern | None:
    """None: it has no wildcards."""
    rest = len(levels) - 1 if levels[-1] == "#" else NONE
    plus = tuple(at for at, level in enumerate(levels) if level == "+")
    return (plus, rest) if plus or rest != NONE else None


def apply(pattern: Pattern, levels: list[str]) -> list[str]:
    """The filter with this pattern that matches the topic, if it has enough levels."""
    plus, rest = pattern
    made = list(levels if rest == NONE else levels[:rest])
    for at in plus:
        made[at] = "+"
    return made if rest == NONE else [*made, "#"]


def _by_generality(pattern: Pattern) -> tuple[bool, int, int, tuple[int, ...]]:
    """Those first that match most."""
    plus, rest = pattern
    return rest == NONE, rest, -len(plus), plus


class Bfp(Method):
    def __init__(self, is_mended: bool = True) -> None:
        self.name = "bfp" if is_mended else "bfp-paper"
        self.is_mended = is_mended
        self._counts: dict[Pattern, int] = {}
        self._sorted: list[Pattern] | None = None

    @property
    def patterns(self) -> list[Pattern]:
        if self._sorted is None:
            self._sorted = sorted(self._counts, key=_by_generality)
        return self._sorted

    def elements(self, levels: list[str]) -> Iterable[str]:
        return ["/".join(levels)]

    def added(self, levels: list[str]) -> None:
        pattern = pattern_of(levels)
        if pattern is not None:
            self._count(pattern, 1)

    def removed(self, levels: list[str]) -> None:
        pattern = pattern_of(levels)
        if pattern is not None:
            self._count(pattern, -1)

    def _count(self, pattern: Pattern, by: int) -> None:
        count = self._counts.get(pattern, 0) + by
        if count:
            self._counts[pattern] = count
        else:
            del self._counts[pattern]
        self._sorted = None

    def search(self, levels: list[str], asking: Asking) -> bool:
        deepest = len(levels) if self.is_mended else len(levels) - 1
        is_system = self.is_mended and levels[0].startswith("$")
        for pattern in self.patterns:
            plus, rest = pattern
            if rest > deepest or (plus and plus[-1] >= len(levels)):
                continue
            if is_system and (rest == 0 or (plus and plus[0] == 0)):
                continue
            if asking.has("/".join(apply(pattern, levels))):
                return True
        return asking.has("/".join(levels))

    def merge(self, other: Method) -> None:
        assert isinstance(other, Bfp)
        for pattern, count in other._counts.items():
            self._count(pattern, count)

    def write(self, made: Writing) -> None:
        made.number(len(self.patterns))
        for plus, rest in self.patterns:
            made.number(rest + 1)
            made.number(len(plus))
            for at in plus:
                made.number(at)

    def read(self, data: Reading) -> None:
        """Raises Incompatible."""
        for _ in range(data.number()):
            rest = data.number() - 1
            plus = tuple(data.number() for _ in range(data.number()))
            if list(plus) != sorted(set(plus)) or (rest != NONE and plus and plus[-1] >= rest):
                raise Incompatible("malformed pattern of wildcards")
            self._count((plus, rest), 1)
