"""What a node says of its edge: who the nodes are, who owns which topics, what is being moved, and where messages are.

This is the answer to `GET /v1/edge`, of REST and of the admin API, and what `headwater edge status --json` prints. It
is made at a node and read by programs elsewhere, which may be of another version: `decode` takes what has more fields
than it knows, and refuses what lacks one that it needs.

How a reader follows topics from store to store. Each message that is stored is in exactly one store. So whoever reads
all `stores` that overlap its filters has every message once, whatever has been moved. A row of `stores` is a stretch:
the messages of `filters` that one store took while its node owned them, positions `from` to `to`, both included. `to`
is null while it goes on. One store may have several rows for a filter, if topics came back to it.

For the order of one publisher's messages in a topic (`stretches_of`): of rows that match the topic and have the same
store, claim and epoch, the one that ends first counts; and of these, that with the smaller `epoch` comes first. A row
is whole when its `to` is known. Until then (`moves` says whom it waits for) its end may still grow, while the next one
has begun already. A `to` that is smaller than `from`: there is nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import inf
from typing import Any, Final, TypeVar

from headwater.routing.topics import matches

RECEIVING: Final = "receiving"
DELIVERY: Final = "delivery"
ROLES: Final = (RECEIVING, DELIVERY)

SETTLED: Final = "settled"
MOVING: Final = "moving"
STATES: Final = (SETTLED, MOVING)


class MalformedStatus(ValueError):
    """What a node answered is no status of an edge."""


@dataclass(frozen=True)
class EdgeNode:
    """`store`: the id in positions, "" without a store. `rest`: its URL, "" if there is none. `mqtt`: host and port."""

    node: str
    edge: str
    roles: tuple[str, ...]
    store: str
    rest: str
    mqtt: str
    state: str
    """live, suspected or dead, as the node that was asked sees it."""
    ready: bool
    """Whether it takes clients."""


@dataclass(frozen=True)
class Ownership:
    """`node` manages all topics of `filter` that no more specific filter gives to another one."""

    filter: str
    node: str
    store: str
    epoch: int
    """Of two owners of one filter that with the higher one counts; a filter that moves gets a new one."""
    state: str
    """settled; moving: some messages may still go to the owner before it."""


@dataclass(frozen=True)
class Move:
    """A filter that goes from one node to another."""

    filter: str
    epoch: int
    sources: tuple[str, ...]
    """Nodes whose topics these were."""
    target: str
    step: str
    """switching: not all nodes send to the new owner yet; ending: they do, and an old one still takes what is under
    way."""
    since: float
    """Seconds since 1970."""
    waits_for: tuple[str, ...]


@dataclass(frozen=True)
class Stretch:
    """A row of `stores`; see the head of this file."""

    id: str
    node: str
    url: str
    filters: tuple[str, ...]
    claim: str
    """The filter by which the node owned them: the same, or a wider one."""
    epoch: int
    first: int
    last: int | None


@dataclass(frozen=True)
class Unowned:
    """What becomes of topics that nobody owns."""

    rule: str
    """The setting `edge.unowned`."""
    node: str
    """Where they go from the node that was asked; "": they are not stored."""
    topics: int
    """How many times such a topic was looked for there, since its start."""
    last: tuple[str, ...]
    """The latest of them."""


@dataclass(frozen=True)
class EdgeStatus:
    """`node` is the one that was asked."""

    edge: str
    node: str
    nodes: tuple[EdgeNode, ...] = ()
    ownership: tuple[Ownership, ...] = ()
    moves: tuple[Move, ...] = ()
    stores: tuple[Stretch, ...] = ()
    unowned: Unowned = field(default_factory=lambda: Unowned("local", "", 0, ()))

    def owner_of(self, filter: str) -> str:
        """The node that has exactly this filter; "": it is not in the table."""
        return next((each.node for each in self.ownership if each.filter == filter), "")


def stretches_of(status: EdgeStatus, topic: str) -> list[Stretch]:
    """Where messages of a topic are, in the order of each publisher's messages; no position of a store twice."""
    first_to_end: dict[tuple[str, str, int], Stretch] = {}
    for stretch in status.stores:
        if any(matches(filter, topic) for filter in stretch.filters):
            key = (stretch.id, stretch.claim, stretch.epoch)
            known = first_to_end.get(key)
            if known is None or _end_of(stretch) < _end_of(known):
                first_to_end[key] = stretch
    found: list[Stretch] = []
    done: dict[str, float] = {}
    for stretch in sorted(first_to_end.values(), key=lambda each: (each.epoch, each.first)):
        upto = done.get(stretch.id, 0)
        if upto < inf and _end_of(stretch) >= max(stretch.first, upto + 1):
            found.append(replace(stretch, first=int(max(stretch.first, upto + 1))))
            done[stretch.id] = _end_of(stretch)
    return found


def _end_of(stretch: Stretch) -> float:
    return inf if stretch.last is None else stretch.last


def encode(status: EdgeStatus) -> dict[str, Any]:
    """As a value of JSON."""
    found = asdict(status)
    for row, each in zip(found["stores"], status.stores, strict=True):
        del row["first"], row["last"]
        row.update({"from": each.first, "to": each.last})
    for row in found["moves"]:
        row.update({"from": row.pop("sources"), "to": row.pop("target")})
    fields: dict[str, Any] = _listed(found)
    return fields


def _listed(value: Any) -> Any:
    """JSON knows no tuples, and who takes the value as it is may not either."""
    if isinstance(value, dict):
        return {name: _listed(each) for name, each in value.items()}
    return [_listed(each) for each in value] if isinstance(value, tuple | list) else value


def decode(value: object) -> EdgeStatus:
    """Raises MalformedStatus."""
    fields = _object(value)
    return EdgeStatus(
        edge=_field(fields, "edge", str),
        node=_field(fields, "node", str),
        nodes=_all(fields, "nodes", _node),
        ownership=_all(fields, "ownership", _ownership),
        moves=_all(fields, "moves", _move),
        stores=_all(fields, "stores", _stretch),
        unowned=_unowned(_object(fields.get("unowned"))),
    )


def _node(row: Mapping[str, Any]) -> EdgeNode:
    return EdgeNode(
        node=_field(row, "node", str),
        edge=_field(row, "edge", str),
        roles=_texts(row, "roles"),
        store=_field(row, "store", str),
        rest=_field(row, "rest", str),
        mqtt=_field(row, "mqtt", str),
        state=_field(row, "state", str),
        ready=_field(row, "ready", bool),
    )


def _ownership(row: Mapping[str, Any]) -> Ownership:
    return Ownership(
        filter=_field(row, "filter", str),
        node=_field(row, "node", str),
        store=_field(row, "store", str),
        epoch=_field(row, "epoch", int),
        state=_field(row, "state", str),
    )


def _move(row: Mapping[str, Any]) -> Move:
    return Move(
        filter=_field(row, "filter", str),
        epoch=_field(row, "epoch", int),
        sources=_texts(row, "from"),
        target=_field(row, "to", str),
        step=_field(row, "step", str),
        since=float(_field(row, "since", (int, float))),
        waits_for=_texts(row, "waits_for"),
    )


def _stretch(row: Mapping[str, Any]) -> Stretch:
    last = row.get("to")
    return Stretch(
        id=_field(row, "id", str),
        node=_field(row, "node", str),
        url=_field(row, "url", str),
        filters=_texts(row, "filters"),
        claim=_field(row, "claim", str),
        epoch=_field(row, "epoch", int),
        first=_field(row, "from", int),
        last=None if last is None else _field(row, "to", int),
    )


def _unowned(row: Mapping[str, Any]) -> Unowned:
    return Unowned(_field(row, "rule", str), _field(row, "node", str), _field(row, "topics", int), _texts(row, "last"))


_Row = TypeVar("_Row")


def _all(fields: Mapping[str, Any], name: str, read: Callable[[Mapping[str, Any]], _Row]) -> tuple[_Row, ...]:
    return tuple(read(_object(each)) for each in _field(fields, name, list))


def _object(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise MalformedStatus(f"an object was expected, and this is {value!r:.100}")
    return value


def _field(fields: Mapping[str, Any], name: str, kind: type | tuple[type, ...]) -> Any:
    value = fields.get(name)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise MalformedStatus(f"{name!r} is {value!r:.100}")
    return value


def _texts(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = _field(fields, name, list)
    if not all(isinstance(each, str) for each in found):
        raise MalformedStatus(f"{name!r} is {found!r:.100}")
    return tuple(found)
