"""Notes and letters about sessions, as bytes.

    Claim, Answer             a client is here: who has its session?
    Holds, Released           which sessions a node has, for the time when it cannot be asked
    Claimed                   the same as Claim, for a node that could not be asked
    Begin, Subscriptions, Ready, Messages, Tail     a session, from the node that had it to the one that claimed it
    End                                             the old node has forgotten it
    Switch, Marker            the cut: from here on its messages go to the new node (node/links/moving.py)

Most are about one move: a client id, and the stamp of the claim that it follows from, whose node is the new one.
Everything has bounds, and whatever does not fit raises MalformedFrame.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from headwater.peering.frames.fields import U16, U32, U64, Fields, short
from headwater.peering.frames.frame import MalformedFrame
from headwater.peering.retained.clock import Stamp

NOBODY: Final = 0
HELD: Final = 1
DENIED: Final = 2
MOVING: Final = 3
"""Outcomes of a claim: there is no session here; there is, and it comes; a later claim is known; it is on its way from
here to another node."""
MAX_IDENTIFIERS: Final = 4096
MAX_HOPS: Final = 8
MAX_CUTS: Final = 8
_ENTRY: Final = struct.Struct("!BHH")

_QOS: Final = 0x03
_RETAIN: Final = 0x04
_RELEASED: Final = 0x08


class Move(NamedTuple):
    client_id: str
    stamp: Stamp


class Claim(NamedTuple):
    """`is_clean`: whatever there is of an older session is to end."""

    move: Move
    is_clean: bool


class Answer(NamedTuple):
    """`known`: the latest claim that the node has heard of; its time is 0 where there is none."""

    move: Move
    outcome: int
    known: Stamp


class Held(NamedTuple):
    client_id: str
    stamp: Stamp
    lasts: bool
    """It outlives its connection."""


class Holds(NamedTuple):
    """Sessions of whoever says so, or of others that it has heard of: a claim's node is who has it."""

    sessions: tuple[Held, ...]
    is_all: bool = False
    """With this, all that it has itself has been told."""
    is_informed: bool = False
    """And all that others have, as far as anybody knows."""


class Released(NamedTuple):
    """Sessions that have ended, with their last claims."""

    sessions: tuple[Move, ...]


class Claimed(NamedTuple):
    move: Move
    is_clean: bool


class Begin(NamedTuple):
    """`remaining`: seconds that an absent client had left; `expiry` where there was a connection."""

    move: Move
    expiry: int
    remaining: int
    next_id: int
    username: str | None
    received: tuple[int, ...]
    lineage: str
    """Its first claim."""
    served: Stamp
    """The last claim that was answered by CONNACK; its time is 0 where none was."""


class Subscriptions(NamedTuple):
    """Names as clients write them, and records as on disk."""

    move: Move
    subscriptions: tuple[tuple[str, bytes], ...]


class Cut(NamedTuple):
    """An earlier move of the same client, which is not over: not all nodes have marked their streams. `stamp` is that
    of its claim."""

    stamp: Stamp
    old: str


class Ready(NamedTuple):
    """`before`: what the old node has not seen the end of."""

    move: Move
    before: tuple[Cut, ...] = ()


class Moved(NamedTuple):
    """A message of a session: in flight if it has a packet id. `packet`: a PUBLISH of 5.0."""

    qos: int
    retain: bool
    released: bool
    packet_id: int
    identifiers: tuple[int, ...]
    publisher: str
    packet: bytes


class Messages(NamedTuple):
    """`lineage`: of the session that they are from. `hops`: nodes that have sent it on, because the session had moved
    on."""

    move: Move
    messages: tuple[Moved, ...]
    lineage: str
    hops: int = 0


class Tail(NamedTuple):
    """All that had come from this node before the cut is with the new one."""

    move: Move
    node: str


class End(NamedTuple):
    move: Move


class Switch(NamedTuple):
    """Whoever gets this marks its streams to the old node and to the new one; first for the moves `before` it."""

    move: Move
    old: str
    before: tuple[Cut, ...] = ()


class Marker(NamedTuple):
    """Messages of who sends this, behind it, are the new node's affair."""

    move: Move
    old: str


Message = (
    Claim
    | Answer
    | Holds
    | Released
    | Claimed
    | Begin
    | Subscriptions
    | Ready
    | Messages
    | Tail
    | End
    | Switch
    | Marker
)


# ---- bytes ----------------------------------------------------------------------------------------------------------


def _text(text: str) -> bytes:
    data = text.encode()
    return U16.pack(len(data)) + data


def _move(move: Move) -> bytes:
    return _text(move.client_id) + _stamp(move.stamp)


def _stamp(stamp: Stamp) -> bytes:
    return U64.pack(stamp.time) + short(stamp.node)


def _read_text(fields: Fields) -> str:
    return fields.text(fields.u16())


def _read_stamp(fields: Fields) -> Stamp:
    time, node = fields.u64(), fields.node()
    if not time:
        raise MalformedFrame("a claim without a time")
    return Stamp(time, node)


def _read_move(fields: Fields) -> Move:
    client_id = _read_text(fields)
    if not client_id:
        raise MalformedFrame("a session without a client id")
    return Move(client_id, _read_stamp(fields))


def encode(message: Message) -> bytes:
    kind = _KINDS.index(type(message))
    return bytes((kind,)) + _body(message)


def _body(message: Message) -> bytes:
    if isinstance(message, Holds):
        found = [bytes((message.is_all, message.is_informed)), U32.pack(len(message.sessions))]
        for each in message.sessions:
            found += [_text(each.client_id), _stamp(each.stamp), bytes((each.lasts,))]
        return b"".join(found)
    if isinstance(message, Released):
        return U32.pack(len(message.sessions)) + b"".join(map(_move, message.sessions))
    return _move(message.move) + _rest(message)


def _rest(message: Message) -> bytes:
    """Behind the move."""
    if isinstance(message, (Claim, Claimed)):
        return bytes((message.is_clean,))
    if isinstance(message, Answer):
        return bytes((message.outcome,)) + U64.pack(message.known.time) + short(message.known.node)
    if isinstance(message, Begin):
        user = b"\x00" if message.username is None else b"\x01" + _text(message.username)
        head = U32.pack(message.expiry) + U32.pack(message.remaining) + U16.pack(message.next_id) + user
        ids = U16.pack(len(message.received)) + b"".join(map(U16.pack, message.received))
        return head + ids + short(message.lineage) + U64.pack(message.served.time) + short(message.served.node)
    if isinstance(message, Subscriptions):
        found = [U32.pack(len(message.subscriptions))]
        for name, record in message.subscriptions:
            found += [_text(name), U16.pack(len(record)), record]
        return b"".join(found)
    if isinstance(message, Messages):
        head = bytes((message.hops,)) + short(message.lineage) + U32.pack(len(message.messages))
        return head + b"".join(map(_moved, message.messages))
    if isinstance(message, Tail):
        return short(message.node)
    if isinstance(message, Marker):
        return short(message.old)
    if isinstance(message, Switch):
        return short(message.old) + _cuts(message.before)
    if isinstance(message, Ready):
        return _cuts(message.before)
    return b""


def _cuts(cuts: tuple[Cut, ...]) -> bytes:
    return bytes((len(cuts),)) + b"".join(_stamp(cut.stamp) + short(cut.old) for cut in cuts)


def _moved(moved: Moved) -> bytes:
    flags = moved.qos | (_RETAIN if moved.retain else 0) | (_RELEASED if moved.released else 0)
    head = _ENTRY.pack(flags, moved.packet_id, len(moved.identifiers))
    names = b"".join(map(U32.pack, moved.identifiers)) + _text(moved.publisher)
    return head + names + U32.pack(len(moved.packet)) + moved.packet


def is_switch(data: bytes) -> bool:
    """Whether that is an encoded Switch."""
    return bool(data) and data[0] == _SWITCH


def decode(data: bytes) -> Message:
    """Raises MalformedFrame."""
    fields = Fields(data)
    kind = fields.u8()
    if kind >= len(_KINDS):
        raise MalformedFrame(f"there is nothing of kind {kind} to be said of sessions")
    message = _read(_KINDS[kind], fields)
    fields.end()
    return message


def _read(kind: type, fields: Fields) -> Message:
    if kind is Holds:
        is_all, is_informed = fields.flag(), fields.flag()
        return Holds(tuple(_read_held(fields) for _ in range(fields.u32())), is_all, is_informed)
    if kind is Released:
        return Released(tuple(_read_move(fields) for _ in range(fields.u32())))
    move = _read_move(fields)
    if kind is Claim:
        return Claim(move, fields.flag())
    if kind is Claimed:
        return Claimed(move, fields.flag())
    if kind is Answer:
        return Answer(move, _at_most(fields.u8(), MOVING), Stamp(fields.u64(), fields.node(may_be_empty=True)))
    if kind is Begin:
        return _read_begin(move, fields)
    if kind is Subscriptions:
        count = fields.u32()
        return Subscriptions(move, tuple((_read_text(fields), fields.take(fields.u16())) for _ in range(count)))
    if kind is Messages:
        hops, lineage = _at_most(fields.u8(), MAX_HOPS), fields.text(fields.u8())
        return Messages(move, tuple(_read_moved(fields) for _ in range(fields.u32())), lineage, hops)
    if kind is Tail:
        return Tail(move, fields.node())
    if kind is Switch:
        return Switch(move, fields.node(), _read_cuts(fields))
    if kind is Ready:
        return Ready(move, _read_cuts(fields))
    return End(move) if kind is End else Marker(move, fields.node())


def _read_cuts(fields: Fields) -> tuple[Cut, ...]:
    return tuple(Cut(_read_stamp(fields), fields.node()) for _ in range(_at_most(fields.u8(), MAX_CUTS)))


def _read_held(fields: Fields) -> Held:
    return Held(_read_text(fields), _read_stamp(fields), fields.flag())


def _read_begin(move: Move, fields: Fields) -> Begin:
    expiry, remaining, next_id = fields.u32(), fields.u32(), fields.u16()
    username = _read_text(fields) if fields.flag() else None
    received = tuple(fields.u16() for _ in range(fields.u16()))
    if not next_id or 0 in received:
        raise MalformedFrame("a packet id is 0")
    lineage = fields.text(fields.u8())
    served = Stamp(fields.u64(), fields.node(may_be_empty=True))
    return Begin(move, expiry, remaining, next_id, username, received, lineage, served)


def _read_moved(fields: Fields) -> Moved:
    flags, packet_id, count = fields.u8(), fields.u16(), fields.u16()
    qos = flags & _QOS
    if qos not in (1, 2) or flags > 0x0F or count > MAX_IDENTIFIERS:
        raise MalformedFrame("malformed message of a session")
    identifiers = tuple(fields.u32() for _ in range(count))
    publisher = _read_text(fields)
    packet = fields.take(fields.u32())
    released = bool(flags & _RELEASED)
    if released and not (packet_id and qos == 2):
        raise MalformedFrame("a message that is released and was not sent")
    return Moved(qos, bool(flags & _RETAIN), released, packet_id, identifiers, publisher, packet)


def _at_most(value: int, most: int) -> int:
    if value > most:
        raise MalformedFrame(f"{value} where there may be {most}")
    return value


_KINDS: Final[list[type]] = [
    *(Claim, Answer, Holds, Released, Claimed, Begin, Subscriptions, Ready, Messages, Tail, End, Switch, Marker)
]
_SWITCH: Final = _KINDS.index(Switch)
