"""What a node tells all others of its part in an edge, in its map of the cluster's gossip.

A map has keys with short values, and arrives in parts (peering/membership). So a declaration is compressed and cut into
pieces, each of which says which of how many it is and of which declaration: whoever has all pieces of one has it whole,
and until then the one before counts. What does not fit is refused where it would have been told (`encode` raises).
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headwater.edge.ownership import LONGEST_FILTER, Claim

KEY: Final = "edge."
"""What keys of its pieces begin with; their numbers follow."""
PIECE: Final = 1000
MOST_PIECES: Final = 6
"""Of the 8,192 bytes that a node may write into its map, these leave room for what else is there."""
LARGEST: Final = 64 << 10
"""Bytes of a declaration that is not compressed."""
_HEAD: Final = struct.Struct("!IBB")


class TooLarge(ValueError):
    """More than a node can tell the others."""


class DeclaredClaim(NamedTuple):
    """`sources`: nodes that had its topics; `step` and `waits`: how its move goes on, "" and none if it is settled."""

    filter: str
    epoch: int
    since: float
    sources: tuple[str, ...] = ()
    step: str = ""
    waits: tuple[str, ...] = ()


class Row(NamedTuple):
    """Positions that this node's store gave to topics of a filter; `last` is None while it goes on. `claim`: the filter
    by which this node owned them."""

    filter: str
    epoch: int
    first: int
    last: int | None
    claim: str


class Declaration(NamedTuple):
    edge: str
    roles: tuple[str, ...]
    store: str = ""
    rest: str = ""
    claims: tuple[DeclaredClaim, ...] = ()
    rows: tuple[Row, ...] = ()
    ended: tuple[Claim, ...] = ()
    """Claims of others, of whose topics this node takes nothing any more, and its own that it has dropped: the
    latest ones."""

    def claims_of(self, node: str) -> list[Claim]:
        return [Claim(each.filter, each.epoch, node) for each in self.claims]


def encode(declaration: Declaration, serial: int) -> dict[str, bytes]:
    """Values by keys. Old rows and what has ended are left out where there is no room. Raises TooLarge."""
    rows, ended = list(declaration.rows), list(declaration.ended)
    while True:
        text = json.dumps([*declaration[:5], rows, ended], separators=(",", ":"), ensure_ascii=False)
        data = zlib.compress(text.encode(), 9)
        pieces = [data[at : at + PIECE] for at in range(0, len(data), PIECE)]
        if len(pieces) <= MOST_PIECES and len(text) <= LARGEST // 4:
            break
        closed = [row for row in rows if row.last is not None]
        if len(ended) > 4:
            del ended[: len(ended) // 2]
        elif closed:
            for row in closed[: (len(closed) + 1) // 2]:
                rows.remove(row)
        else:
            raise TooLarge("a node cannot tell the others of so many filters; give some to another node")
    heads = [_HEAD.pack(serial & 0xFFFFFFFF, number, len(pieces)) for number in range(len(pieces))]
    return {f"{KEY}{number}": head + piece for number, (head, piece) in enumerate(zip(heads, pieces, strict=True))}


def pieces_of(values: Mapping[str, bytes]) -> tuple[bytes, ...]:
    """Those of a node's map that are pieces of its declaration, as they are now."""
    found = [values.get(f"{KEY}{number}") for number in range(MOST_PIECES)]
    return tuple(each for each in found if each is not None)


def decode(pieces: tuple[bytes, ...]) -> Declaration | None:
    """None: it is not all there, or is none."""
    if not pieces or any(len(each) < _HEAD.size for each in pieces):
        return None
    serial, _, count = _HEAD.unpack_from(pieces[0])
    if count > len(pieces):
        return None
    for number, piece in enumerate(pieces[:count]):
        if _HEAD.unpack_from(piece) != (serial, number, count):
            return None
    reader = zlib.decompressobj()
    try:
        text = reader.decompress(b"".join(each[_HEAD.size :] for each in pieces[:count]), LARGEST)
        return _declaration(json.loads(text)) if reader.eof else None
    except (zlib.error, ValueError, TypeError, KeyError):
        return None


def _declaration(found: Any) -> Declaration:
    edge, roles, store, rest, claims, rows, ended = found[:7]
    return Declaration(
        _text(edge),
        tuple(_text(each) for each in roles),
        _text(store),
        _text(rest),
        tuple(_claim(*each) for each in claims),
        tuple(_row(*each) for each in rows),
        tuple(Claim(_filter(filter), _number(epoch), _text(node)) for filter, epoch, node in ended),
    )


def _claim(filter: Any, epoch: Any, since: Any, sources: Any, step: Any, waits: Any, *_more: Any) -> DeclaredClaim:
    return DeclaredClaim(
        _filter(filter),
        _number(epoch),
        float(since),
        tuple(_text(each) for each in sources),
        _text(step),
        tuple(_text(each) for each in waits),
    )


def _row(filter: Any, epoch: Any, first: Any, last: Any, claim: Any, *_more: Any) -> Row:
    return Row(_filter(filter), _number(epoch), _number(first), None if last is None else _number(last), _filter(claim))


def _filter(value: Any) -> str:
    if not isinstance(value, str) or not value or len(value.encode()) > LONGEST_FILTER:
        raise ValueError
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > LONGEST_FILTER:
        raise ValueError
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ValueError
    return value
