"""Which node owns a topic: a table of filters, of which the most specific one that matches counts.

Theory. Of two filters that match the same topic, compare level by level from the left, a name before `+` before `#`
(and the end of a filter before `#`). At the first level where they differ they differ in kind: two different names
cannot both match. So which is the more specific follows from the filters alone, whatever the topic, and the order of
kinds (`specificity`) is a total order among all filters that match one topic. A table looks at its filters in that
order and takes the first that matches.

Several nodes may claim one filter: the claim with the highest (epoch, node) counts, wherever it is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from headwater.routing.topics import ANY_LEVELS, InvalidTopicFilter, check_filter, is_guarded, levels_match, levels_of

LONGEST_FILTER: Final = 256
"""Bytes of a filter that is owned."""
_KINDS: Final = {"+": 1, "#": 2}


class Claim(NamedTuple):
    """`node` owns `filter`, says the node itself."""

    filter: str
    epoch: int
    node: str

    @property
    def rank(self) -> tuple[int, str]:
        return (self.epoch, self.node)


def check_owned(filter: str) -> None:
    """Raise InvalidTopicFilter if it is none that a node may own."""
    if len(filter.encode(errors="replace")) > LONGEST_FILTER:
        raise InvalidTopicFilter(f"the topic filter has more than {LONGEST_FILTER} bytes")
    check_filter(filter, ANY_LEVELS)
    if filter.startswith(("$share/", "$SYS")) or is_guarded(filter):
        raise InvalidTopicFilter(f"what is below {filter.partition('/')[0]} belongs to each node alone")


def specificity(filter: str) -> tuple[int, ...]:
    """Of two filters that match a topic, that with the smaller one is more specific."""
    return tuple(_KINDS.get(level, 0) for level in filter.split("/"))


def overlap(one: str, other: str) -> bool:
    """Whether some topic matches both."""
    if _is_apart(one, other) or _is_apart(other, one):
        return False
    first, second = _levels(one), _levels(other)
    for index in range(max(len(first), len(second)) + 1):
        here = first[index] if index < len(first) else None
        there = second[index] if index < len(second) else None
        if here == "#" or there == "#" or (here is None and there is None):
            return True
        if here is None or there is None or (here != there and "+" not in (here, there)):
            return False
    return True


def intersection(one: str, other: str) -> str:
    """The filter of all topics that match both; they overlap."""
    first, second = _levels(one), _levels(other)
    found: list[str] = []
    for index in range(min(len(first), len(second))):  # one that is longer ends with a `#` that stands for nothing
        here, there = first[index], second[index]
        if here == "#" or there == "#":
            found += second[index:] if here == "#" else first[index:]
            break
        found.append(there if here == "+" else here)
    return "#" if found == ["+", "#"] else "/".join(found)


def covers(wide: str, narrow: str) -> bool:
    """Whether all topics that match `narrow` match `wide`."""
    if _is_apart(wide, narrow):
        return False
    first, second = _levels(wide), _levels(narrow)
    for index in range(max(len(first), len(second)) + 1):
        here = first[index] if index < len(first) else None
        there = second[index] if index < len(second) else None
        if here == "#" or (here is None and there is None):
            return True
        if here is None or there is None or there == "#" or here not in ("+", there):
            return False
    return True


def _is_apart(wildcard: str, name: str) -> bool:
    """[MQTT-4.7.2-1]: a wildcard in the first level does not reach topics that begin with `$`."""
    return name.startswith("$") and wildcard.startswith(("+", "#"))


def _levels(filter: str) -> list[str]:
    """Each topic has a level, so `#` alone is `+/#`."""
    return ["+", "#"] if filter == "#" else filter.split("/")


class Table:
    """Never changes. `rest` is the node of topics that no filter matches; "": they have none."""

    def __init__(self, claims: Iterable[Claim] = (), rest: str = "") -> None:
        self.rest = rest
        self.claims: dict[str, Claim] = {}
        for claim in claims:
            before = self.claims.get(claim.filter)
            if before is None or before.rank < claim.rank:
                self.claims[claim.filter] = claim
        order = sorted(self.claims.values(), key=lambda each: (specificity(each.filter), each.filter))
        self._ordered = [(claim, levels_of(claim.filter), claim.filter.startswith(("+", "#"))) for claim in order]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self.rest == other.rest and self.claims == other.claims

    def __hash__(self) -> int:
        return hash((self.rest, frozenset(self.claims.values())))

    def __iter__(self) -> Iterator[Claim]:
        """The most specific ones first."""
        return (claim for claim, _, _ in self._ordered)

    def __len__(self) -> int:
        return len(self.claims)

    def claim_of(self, topic: str) -> Claim | None:
        levels = levels_of(topic)
        is_system = topic.startswith("$")
        for claim, filter_levels, is_wide in self._ordered:
            if not (is_system and is_wide) and levels_match(filter_levels, levels):
                return claim
        return None

    def owner(self, topic: str) -> str:
        """ "": nobody."""
        claim = self.claim_of(topic)
        return self.rest if claim is None else claim.node

    def is_of(self, node: str) -> bool:
        """Whether some topics are this node's."""
        return self.rest == node or any(each.node == node for each in self.claims.values())

    def rank_of(self, filter: str) -> tuple[int, str]:
        """Of the claim of exactly this filter; (0, ""): there is none."""
        claim = self.claims.get(filter)
        return (0, "") if claim is None else claim.rank

    def with_claim(self, claim: Claim) -> Table:
        others = [each for each in self.claims.values() if each.filter != claim.filter]
        return Table([*others, claim], self.rest)

    def without(self, filter: str) -> Table:
        return Table([each for each in self.claims.values() if each.filter != filter], self.rest)

    def with_rest(self, rest: str) -> Table:
        return Table(self.claims.values(), rest)

    def losers(self, filter: str) -> set[str]:
        """Nodes that may own topics of a filter by this table, and do not if another node claims the filter."""
        own = specificity(filter)
        found = {each.node for each in self if specificity(each.filter) >= own and overlap(each.filter, filter)}
        if not any(covers(each.filter, filter) for each in self) and self.rest:
            found.add(self.rest)
        return found

    def wider(self, filter: str) -> Claim | None:
        """The most specific claim of another filter that has all topics of this one."""
        for claim in self:
            if claim.filter != filter and covers(claim.filter, filter):
                return claim
        return None

    def is_spare(self, claim: Claim) -> bool:
        """Whether all its topics would be the same node's without it."""
        others = self.without(claim.filter)
        wider = others.wider(claim.filter)
        return wider is not None and others.losers(claim.filter) == {claim.node} == {wider.node}
