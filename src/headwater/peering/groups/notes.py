"""What nodes tell each other of their members of shared groups, and its bytes.

A node tells which groups have members at it, and how these are doing, in notes (node/links/post.py). When a link comes
up it tells all, in some notes from the one that is the BEGINNING to the one that is the END: groups that are not among
these have no members there. A group is named once and has a number from then on, which the teller gives; what changes
is told by number.

    note   form:1 part:1 (BEGINNING | END), then for each group: kind:1 number:4 and
           NAMED  name:text2 state      a group that the other side may not know
           KNOWN  state                 one that it knows
           GONE                         it has no members here any more
    state  members:4 online:4 credit:4 taken:4 weight:f4 capacity:f4 slots:1, then for each slot
           starts_in:f4 service:f4 alike:2

A *slot* is a member, or several that are alike: when it would start on a message that came now, how long it takes for
one. `MAX_SLOTS` are enough to tell who is free: of more members, neighbours in the order of their starts share one.
`taken` counts what the teller has had from the other side for this group: messages that are still on their way are not
in its state, and the other side adds them.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from headwater.peering.frames.fields import U16, Fields
from headwater.peering.frames.frame import MalformedFrame

FORM: Final = 1
BEGINNING: Final = 1
END: Final = 2
GONE: Final = 0
NAMED: Final = 1
KNOWN: Final = 2
MAX_SLOTS: Final = 16
MAX_NAME: Final = 4096
"""Bytes of a group's name, `$share/…`. Groups with longer ones are of one node."""
MAX_GROUPS_BYTES: Final = 64 << 20
"""Bytes that the groups of one node may take at another one, each counted with `GROUP_BYTES` and its name."""
GROUP_BYTES: Final = 4096
MOST_CREDIT: Final = 0xFFFFFFFF
LONGEST: Final = 3600.0
"""Seconds; nobody is believed to be busy for longer, or to take longer for one message."""

_STATE: Final = struct.Struct("!IIIIffB")
_SLOT: Final = struct.Struct("!ffH")
_ENTRY: Final = struct.Struct("!BI")


class Slot(NamedTuple):
    starts_in: float
    """Seconds; negative: it has been free for so long."""
    service: float
    """Seconds for a message; 0.0: not known."""
    alike: int
    """Members."""


class GroupState(NamedTuple):
    """Of a group's members at one node. `credit`: messages that they would be sent at once."""

    members: int
    online: int
    credit: int
    weight: float
    capacity: float
    slots: list[Slot]


class Entry(NamedTuple):
    """`name` is "" where it is known; `state` is None where the group is gone."""

    number: int
    name: str
    taken: int
    state: GroupState | None


def slots_of(outlooks: list[tuple[float, float]], now: float) -> list[Slot]:
    """Of members that would start at a time, and take so long for one message."""
    if len(outlooks) > MAX_SLOTS:
        outlooks = sorted(outlooks)
    slots: list[Slot] = []
    total = len(outlooks)
    parts = min(total, MAX_SLOTS)
    for part in range(parts):
        alike = outlooks[total * part // parts : total * (part + 1) // parts]
        starts = rate = 0.0
        known = 0
        for start, service in alike:
            starts += start
            if service > 0.0:
                rate += 1.0 / service
                known += 1
        mean = known / rate if known else 0.0
        slots.append(Slot(_bounded(starts / len(alike) - now), min(mean, LONGEST), min(len(alike), 0xFFFF)))
    return slots


def _bounded(seconds: float) -> float:
    return min(max(seconds, -LONGEST), LONGEST)


def encode_note(entries: list[Entry], part: int) -> bytes:
    made = [bytes((FORM, part))]
    for entry in entries:
        if entry.state is None:
            made.append(_ENTRY.pack(GONE, entry.number))
            continue
        made.append(_ENTRY.pack(NAMED if entry.name else KNOWN, entry.number))
        if entry.name:
            name = entry.name.encode()
            made.append(U16.pack(len(name)) + name)
        state = entry.state
        made.append(
            _STATE.pack(
                *(state.members, state.online, min(state.credit, MOST_CREDIT), entry.taken & 0xFFFFFFFF),
                *(state.weight, state.capacity, len(state.slots)),
            )
        )
        for slot in state.slots:
            made.append(_SLOT.pack(slot.starts_in, slot.service, slot.alike))
    return b"".join(made)


def decode_note(data: bytes) -> tuple[list[Entry], int]:
    """Raises MalformedFrame."""
    fields = Fields(data)
    if fields.u8() != FORM:
        raise MalformedFrame("a note about groups in an unknown form")
    part = fields.u8()
    if part > BEGINNING | END:
        raise MalformedFrame(f"part {part} of what is told about groups")
    found: list[Entry] = []
    while fields.at < len(data):
        kind, number = fields.u8(), fields.u32()
        if kind == GONE:
            found.append(Entry(number, "", 0, None))
            continue
        if kind not in (NAMED, KNOWN):
            raise MalformedFrame(f"a group's entry of kind {kind}")
        name = ""
        if kind == NAMED:
            size = fields.u16()
            if not 0 < size <= MAX_NAME:
                raise MalformedFrame(f"the name of a group has {size} bytes")
            name = fields.text(size)
        found.append(_state(fields, number, name))
    return found, part


def _state(fields: Fields, number: int, name: str) -> Entry:
    members, online, credit, taken, weight, capacity, count = _STATE.unpack(fields.take(_STATE.size))
    if count > MAX_SLOTS or online > members:
        raise MalformedFrame("a group's state that cannot be")
    slots: list[Slot] = []
    for _ in range(count):
        starts_in, service, alike = _SLOT.unpack(fields.take(_SLOT.size))
        if not (-LONGEST <= starts_in <= LONGEST and 0.0 <= service <= LONGEST and alike):
            raise MalformedFrame("a member's state that cannot be")
        slots.append(Slot(starts_in, service, alike))
    if not (0.0 <= weight <= 1e9 and 0.0 <= capacity <= 1e9):
        raise MalformedFrame("a group's weight that cannot be")
    return Entry(number, name, taken, GroupState(members, online, credit, weight, capacity, slots))
