"""Notes of proxies about the sessions at their brokers, as bytes: those of moving sessions, of which they need four
(Claim, Answer, Holds, Released), and where a proxy takes clients that others lead to it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headwater.peering.frames.fields import U16, Fields
from headwater.peering.frames.frame import MalformedFrame
from headwater.peering.sessions import messages as said
from headwater.peering.sessions.messages import Answer, Claim, Holds, Released

KEY: Final = 32
"""Bytes of what a proxy has to show at another one's door."""
_DOOR: Final = 0
_OTHER: Final = 1


class Door(NamedTuple):
    """The first thing that a proxy says to another node. Its port, and what is to be shown there; it goes over the link
    alone, so nobody else knows it."""

    port: int
    key: bytes


Note = Door | Claim | Answer | Holds | Released


def encode(note: Note) -> bytes:
    if isinstance(note, Door):
        return bytes((_DOOR,)) + U16.pack(note.port) + note.key
    return bytes((_OTHER,)) + said.encode(note)


def decode(data: bytes) -> Note:
    """Raises MalformedFrame."""
    fields = Fields(data)
    if fields.u8() == _DOOR:
        door = Door(fields.u16(), fields.take(KEY))
        fields.end()
        return door
    note = said.decode(data[1:])
    if not isinstance(note, (Claim, Answer, Holds, Released)):
        raise MalformedFrame(f"{type(note).__name__} is nothing between proxies")
    return note
