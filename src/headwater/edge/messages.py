"""Notes and letters of nodes about who owns which topics (owners.py), as bytes: a kind, and JSON.

    View            from here on in this stream, the sender's messages go to these owners
    Seen            how far the sender has come in the views of others
    Order, Answer   claim this filter; what has come of it

A View is a letter for messages of QoS 1 and 2 and a note for those of QoS 0; the others are notes.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from headwater.edge.ownership import LONGEST_FILTER, Claim, Table
from headwater.peering.frames.frame import MalformedFrame

LARGEST: Final = 4 << 20
"""Bytes of one."""
LONGEST_TEXT: Final = 2000


class View(NamedTuple):
    """`number` grows with each one of a node, over its restarts."""

    number: int
    table: Table


class Seen(NamedTuple):
    numbers: dict[str, int]


class Order(NamedTuple):
    """`joins`: the filter may go once it says nothing that a wider one does not. `is_dry`: only say what would be."""

    number: int
    filter: str
    joins: bool
    is_dry: bool


class Answer(NamedTuple):
    number: int
    is_done: bool
    text: str


Message = View | Seen | Order | Answer

_KINDS: Final[dict[bytes, str]] = {b"v": "View", b"s": "Seen", b"o": "Order", b"a": "Answer"}


def encode(message: Message) -> bytes:
    if isinstance(message, View):
        return b"v" + _json([message.number, list(message.table.claims.values()), message.table.rest])
    if isinstance(message, Seen):
        return b"s" + _json(message.numbers)
    return (b"o" if isinstance(message, Order) else b"a") + _json(list(message))


def is_view(body: bytes) -> bool:
    return body[:1] == b"v"


def decode(body: bytes) -> Message:
    """Raises MalformedFrame."""
    if len(body) > LARGEST or body[:1] not in _KINDS:
        raise MalformedFrame("a message about owners that cannot be")
    try:
        found: Message = _READERS[body[:1]](json.loads(body[1:]))
        return found
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise MalformedFrame(f"a {_KINDS[body[:1]]} that cannot be") from None


def _view(found: Any) -> View:
    number, claims, rest = found
    return View(_number(number), Table([_claim(*each) for each in claims], _text(rest)))


def _claim(filter: Any, epoch: Any, node: Any) -> Claim:
    return Claim(_text(filter), _number(epoch), _text(node))


def _seen(found: Any) -> Seen:
    return Seen({_text(node): _number(number) for node, number in found.items()})


def _order(found: Any) -> Order:
    number, filter, joins, is_dry = found
    return Order(_number(number), _text(filter), bool(joins), bool(is_dry))


def _answer(found: Any) -> Answer:
    number, is_done, text = found
    return Answer(_number(number), bool(is_done), _text(text, LONGEST_TEXT))


_READERS: Final[dict[bytes, Any]] = {b"v": _view, b"s": _seen, b"o": _order, b"a": _answer}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _text(value: Any, longest: int = LONGEST_FILTER) -> str:
    if not isinstance(value, str) or len(value.encode()) > longest:
        raise ValueError
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 64:
        raise ValueError
    return value
