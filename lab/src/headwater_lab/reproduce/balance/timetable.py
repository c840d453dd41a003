"""Absolute deadlines, so that no sleep that took too long makes everything behind it late.

Creation. Message k is created at begin + k·period, whenever the publisher's thread really woke up for it: what it was
late by is part of the message's latency, and also written down apart.

Start. A member works on one message at a time, each for exactly its service time. One that starts at t ends at t + s,
and one that was there by then starts at t + s, not when Python woke up to take it. Whether it was there is looked at
when Python does wake up, a fraction of a millisecond later; one that came just in between counts as there, though never
as started before it was created. One that finds the member idle starts when the member's code has it in hand: the way
through sockets, broker and event loops is part of its latency.

    latency = start - creation
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from headwater_lab.reproduce.balance.plan import PAYLOAD

_HEAD: Final = struct.Struct("!Idd")


class Stamp(NamedTuple):
    """What a message says of itself: its number, when it was created (the deadline), when it was really sent."""

    number: int
    created: float
    sent: float


def write_stamp(stamp: Stamp) -> bytes:
    return _HEAD.pack(*stamp).ljust(PAYLOAD, b".")


def read_stamp(payload: bytes) -> Stamp:
    return Stamp(*_HEAD.unpack_from(payload))


class Taken(NamedTuple):
    """A message that a member took. `seen`: when the member's code had it in hand; `waited`: it was there when the
    work before it ended."""

    number: int
    member: int
    created: float
    sent: float
    seen: float
    start: float
    waited: bool

    @property
    def latency(self) -> float:
        return self.start - self.created


class Work:
    """One member's work; `taken` is all of it, in order."""

    def __init__(self, member: int, service: float) -> None:
        self.member = member
        self.service = service
        self.free_at = 0.0
        self.taken: list[Taken] = []

    def begin(self, stamp: Stamp, now: float, waited: bool) -> float:
        """Take a message, now; returns when it will be done."""
        start = max(self.free_at, stamp.created) if waited else max(self.free_at, now)
        self.free_at = start + self.service
        self.taken.append(Taken(stamp.number, self.member, stamp.created, stamp.sent, now, start, waited))
        return self.free_at
