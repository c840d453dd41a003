"""What the members really have to do, written by them into shared memory; and the dispatcher that reads it there.

The clairvoyant dispatcher gives each message to the member that can start on it first, and among several to whoever has
been free for longest. It is the bound of what any dispatcher can do that gives messages away as they come. To know
what nobody could, it reads of each member, on a memory page that both processes map: until when it is busy with what it
has taken, how many it has taken, and how long one takes it. What it has given a member that the member has not taken
is on the way or waits there; it is behind what was taken.

All clocks are CLOCK_MONOTONIC, which processes of one machine share. A slot is written and read in one go of 24 bytes;
should the two meet in the middle, one choice may be wrong.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import Final, NamedTuple, cast

from headwater.routing.dispatcher import Dispatcher, Member
from headwater.session.session import Session

_SLOT: Final = struct.Struct("=dqd")


class Slot(NamedTuple):
    """`free_at`: when the member will have done what it has taken; `taken`: how many those are; `service`: seconds that
    a message takes it."""

    free_at: float
    taken: int
    service: float

    def starts_at(self, given: int, now: float) -> float:
        """When it will start on a message dispatched now, if `given` were before."""
        behind = given - self.taken
        if behind <= 0:
            return max(now, self.free_at)
        return max(now, self.free_at) + behind * self.service


class Board:
    """One slot per member, in a file that all processes of a trial map."""

    def __init__(self, file: Path, members: int) -> None:
        """Opens the file, which is made if it is not there."""
        size = members * _SLOT.size
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.fstat(descriptor).st_size < size:
                os.ftruncate(descriptor, size)
            self._memory = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)

    def write(self, member: int, slot: Slot) -> None:
        _SLOT.pack_into(self._memory, member * _SLOT.size, *slot)

    def read(self, member: int) -> Slot:
        return Slot(*_SLOT.unpack_from(self._memory, member * _SLOT.size))


class Clairvoyant(Dispatcher):
    """Who really can start first is next. A topic's order holds for each member but not across them."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._given: dict[Member, int] = {}

    def choose(self, members: list[Member], topic: str, publisher: str, now: float) -> Member:
        chosen = min([each for each in members if each.ready], key=lambda member: self._rank(member, now))
        self.taken(chosen, now)
        return chosen

    def taken(self, member: Member, now: float) -> None:
        self._given[member] = self._given.get(member, 0) + 1

    def given_back(self, member: Member, count: int, now: float) -> None:
        self._given[member] -= count

    def _rank(self, member: Member, now: float) -> tuple[float, float]:
        slot = self._board.read(member_number(member))
        return slot.starts_at(self._given.get(member, 0), now), slot.free_at


def client_id(member: int) -> str:
    return f"member-{member}"


def member_number(member: Member) -> int:
    """Of a broker's member, whose client id is `client_id(number)`."""
    return int(cast(Session, member.key).client_id.removeprefix("member-"))
