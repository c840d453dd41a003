"""Which stores an edge has, where they are, and which topics each has had from which position to which.

Theory. Ownership of topic filters moves between stores while they run: the old store takes a filter's messages up to a
position, the new one from a position on. A *holding* is one such range, and a move ends one and begins another. Every
message is in exactly one store, so whoever reads all holdings has all messages, each once. What a topic was published
as in order is in order across a move if everything of the ended holding comes before everything of the one that took
over: that is a *precedence*. While a move goes on, the old store may still get what is under way, so nobody can say yet
where its holding ends: what the new one has waits until then, or for a minute, should a node be away. A store of which
all holdings have ended gets nothing more: it ends at the last of their positions, and whoever has read so far need not
ask it again.

Of one store the holdings with the most specific filter count that matches a topic: `plant/#` up to 100 and `#` without
end is a store to which nothing more of `plant/#` comes. `epoch` says which of two holdings began first.

Pure: a node makes such a directory of what it knows of its cluster, and readers get it from `GET /v1/edge`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from headwater.routing.topics import levels_of

MOST_HOLDINGS: Final = 10_000
"""Of a directory that is read: more are taken for a mistake."""
LONGEST_MOVE: Final = 60.0
"""Seconds for which readers wait for a move to end."""
EVERYTHING: Final = "#"


class Holding(NamedTuple):
    """`store`, which is served at `url` by `node`, has had what `filters` match from position `first` to `last`; None:
    it has them still. `epoch` grows with each move."""

    store: str
    node: str
    url: str
    filters: tuple[str, ...]
    first: int
    last: int | None
    epoch: int = 0


class Move(NamedTuple):
    """`filter` is on its way from the nodes `sources` to another one, since a time in seconds since 1970."""

    filter: str
    epoch: int
    sources: tuple[str, ...]
    since: float


class Place(NamedTuple):
    """A store: where it is, and the position behind which it gets nothing more (None: it goes on)."""

    id: str
    node: str
    url: str
    ended: int | None


class Precedence(NamedTuple):
    """Everything of `earlier` up to `last` comes before everything of `later` from `first` on."""

    earlier: str
    last: int
    later: str
    first: int


class Directory:
    """The holdings of an edge, in the order in which they began. `node` is the one that was asked."""

    def __init__(self, holdings: Iterable[Holding] = (), moves: Iterable[Move] = (), node: str = "") -> None:
        self.holdings = tuple(sorted(holdings, key=lambda each: each.epoch))
        self.moves = tuple(moves)
        self.node = node
        self.places = _places(self.holdings)

    def holders(self, filter: str | None) -> list[Place]:
        """The stores that have, or have had, something that the filter matches; None asks for all topics."""
        return [place for id, place in self.places.items() if filter is None or self._may_have(id, filter)]

    def _may_have(self, store: str, filter: str) -> bool:
        """By its most specific holdings; one that ended before it began has nothing."""
        return any(
            filters_overlap(held, filter) and not self._is_shadowed(store, held, filter)
            for each in self.holdings
            if each.store == store and (each.last is None or each.last >= each.first)
            for held in each.filters
        )

    def waiting(self, done: Mapping[str, int]) -> list[Precedence]:
        """What has to be read of one store before another one is read on; `done` is how far each has been read."""
        return [
            each for each in self.precedences() if each.later in done and done.get(each.earlier, each.last) < each.last
        ]

    def precedences(self) -> list[Precedence]:
        """One for each move, as far as there is something to wait for."""
        found: list[Precedence] = []
        for earlier in self.holdings:
            for later in self.holdings if earlier.last else ():
                if later.epoch > earlier.epoch and later.store != earlier.store and self._follows(earlier, later):
                    found.append(Precedence(earlier.store, earlier.last or 0, later.store, later.first))
        return found

    def _follows(self, earlier: Holding, later: Holding) -> bool:
        """Whether there is a topic for which both count."""
        return any(
            filters_overlap(one, other)
            and not self._is_shadowed(earlier.store, one, other)
            and not self._is_shadowed(later.store, other, one)
            for one in earlier.filters
            for other in later.filters
        )

    def _is_shadowed(self, store: str, filter: str, by: str) -> bool:
        """Whether the store has a more specific holding for everything that `filter` and `by` have in common."""
        return any(
            held != filter and filter_covers(filter, held) and filter_covers(held, by)
            for each in self.holdings
            if each.store == store
            for held in each.filters
        )

    def withheld(self, now: float) -> dict[str, int]:
        """Of stores to which something moves at the moment: the position from which on they are to be read later. `now`
        is in seconds since 1970."""
        found: dict[str, int] = {}
        for move in self.moves:
            if not 0 <= now - move.since < LONGEST_MOVE:
                continue
            for later in self.holdings:
                if later.epoch == move.epoch and _share([move.filter], later.filters) and self._is_open(move, later):
                    found[later.store] = min(later.first, found.get(later.store, later.first))
        return found

    def _is_open(self, move: Move, later: Holding) -> bool:
        return any(
            each.last is None
            and each.epoch < move.epoch
            and each.node in move.sources
            and each.store != later.store
            and _share([move.filter], each.filters)
            for each in self.holdings
        )

    def joined(self, other: Directory) -> Directory:
        """What two nodes know together: of a holding, that it has ended, if one knows it."""
        known: dict[tuple[str, tuple[str, ...], int], Holding] = {}
        for each in (*self.holdings, *other.holdings):
            key = (each.store, each.filters, each.first)
            old = known.get(key)
            if old is None or (old.last is None and each.last is not None):
                known[key] = each
        moves = {each.epoch: each for each in (*self.moves, *other.moves)}
        return Directory(known.values(), moves.values(), self.node)


def directory_of(found: object) -> Directory:
    """Of the answer of `GET /v1/edge`. Raises ValueError, which says what is wrong."""
    stores = found.get("stores") if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping) or not isinstance(stores, list):
        raise ValueError("a directory has a list of `stores`")
    if len(stores) > MOST_HOLDINGS:
        raise ValueError(f"a directory has at most {MOST_HOLDINGS} ranges of stores")
    moves = found.get("moves")
    if moves is not None and (not isinstance(moves, list) or len(moves) > MOST_HOLDINGS):
        raise ValueError("`moves` of a directory is a list")
    holdings = [_holding(each, number) for number, each in enumerate(stores)]
    return Directory(holdings, map(_move, moves or []), _text(found, "node", ""))


def _holding(found: Any, number: int) -> Holding:
    if not isinstance(found, Mapping):
        raise ValueError("a store of a directory is an object")
    filters = found.get("filters")
    if not isinstance(filters, list) or not all(isinstance(each, str) and each for each in filters):
        raise ValueError("`filters` is a list of topic filters")
    first, last = _count(found, "from", 1), _count(found, "to", None)
    epoch = _count(found, "epoch", number)
    assert first is not None and epoch is not None
    id, node = _text(found, "id", None), _text(found, "node", "")
    return Holding(id, node, _url(found, "url"), tuple(filters), first, last, epoch)


def _url(found: Mapping[str, Any], name: str) -> str:
    url = _text(found, name, "")
    if url and urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"{url!r} is no address such as http://localhost:8080")
    return url.rstrip("/")


def _move(found: Any) -> Move:
    if not isinstance(found, Mapping) or not isinstance(found.get("since"), (int, float)):
        raise ValueError("a move of a directory is an object, which says since when it goes on")
    sources = found.get("from")
    if not isinstance(sources, list) or not all(isinstance(each, str) for each in sources):
        raise ValueError("`from` of a move is a list of nodes")
    epoch = _count(found, "epoch", 0)
    assert epoch is not None
    return Move(_text(found, "filter", None), epoch, tuple(sources), float(found["since"]))


def _text(found: Mapping[str, Any], name: str, default: str | None) -> str:
    value = found.get(name)
    value = default if value is None else value
    if not isinstance(value, str) or (default is None and not value):
        raise ValueError(f"`{name}` of a store is a text")
    return value


def _count(found: Mapping[str, Any], name: str, default: int | None) -> int | None:
    value = found.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"`{name}` of a store is a position")
    return value


def _places(holdings: Iterable[Holding]) -> dict[str, Place]:
    """The last holding of a store says where it is."""
    found: dict[str, Place] = {}
    for each in holdings:
        known = found.get(each.store)
        ended = each.last
        if known is not None:
            ended = None if known.ended is None or each.last is None else max(known.ended, each.last)
        found[each.store] = Place(each.store, each.node, each.url or (known.url if known else ""), ended)
    return dict(sorted(found.items()))


def _share(some: Iterable[str], others: Iterable[str]) -> bool:
    return any(filters_overlap(one, other) for one in some for other in others)


def filters_overlap(one: str, other: str) -> bool:
    """Whether there is a topic that both match. `#` here has topics that begin with `$`, too."""
    ours, theirs = levels_of(one), levels_of(other)
    for mine, its in zip(ours, theirs, strict=False):
        if EVERYTHING in (mine, its):
            return True
        if mine != its and "+" not in (mine, its):
            return False
    longer = ours if len(ours) > len(theirs) else theirs
    return len(ours) == len(theirs) or longer[min(len(ours), len(theirs))] == EVERYTHING


def filter_covers(wide: str, narrow: str) -> bool:
    """Whether all topics that `narrow` matches are matched by `wide`."""
    ours, theirs = levels_of(wide), levels_of(narrow)
    for at, mine in enumerate(ours):
        if mine == EVERYTHING:
            return True
        if at == len(theirs) or theirs[at] == EVERYTHING or mine not in ("+", theirs[at]):
            return False
    return len(ours) == len(theirs)
