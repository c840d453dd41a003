"""The dispatchers that keep what belongs together with one member, by consistent hashing.

Every member has a few points on a ring of 2**32, and a text belongs to the first point at or behind its own hash. When
a member goes, only what was its moves (to many others, as its points lie apart); when one comes, it takes a little from
each. The points depend on the order of joining alone, so they stay while a member is in the group.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final
from zlib import crc32

from mypy_extensions import mypyc_attr

from headwater.routing.dispatcher import Dispatcher, Member

POINTS: Final = 64  # per member: shares differ by about 1/sqrt(64) then


@mypyc_attr(allow_interpreted_subclasses=True)
class Ring(Dispatcher):
    """What the two have in common; `choose` is theirs. O(log n) per message, O(n log n) when the members change."""

    def __init__(self) -> None:
        self.waits = True
        self._joined = 0
        self._members: list[Member] = []
        self._places: list[int] = []
        self._owners: list[Member] = []

    def joined(self, member: Member) -> None:
        self._joined += 1
        member.turn = self._joined

    def owner(self, members: list[Member], text: str) -> Member:
        if members is not self._members:
            self._lay_out(members)
        at = bisect_left(self._places, _place(text.encode("utf-8", "surrogatepass")))
        return self._owners[at if at < len(self._owners) else 0]

    def _lay_out(self, members: list[Member]) -> None:
        by_place: dict[int, Member] = {}
        for member in members:
            for point in range(POINTS):
                by_place.setdefault(_place(b"%d/%d" % (member.turn, point)), member)
        self._members = members
        self._places = sorted(by_place)
        self._owners = [by_place[place] for place in self._places]


def _place(text: bytes) -> int:
    """A hash that is the same in every process. CRC alone leaves similar texts near each other: so it is mixed."""
    mixed = crc32(text)
    mixed = ((mixed ^ (mixed >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return mixed ^ (mixed >> 16)


class HashTopic(Ring):
    """All messages of a topic go to one member: their order holds while membership is stable."""

    def choose(self, members: list[Member], topic: str, publisher: str, now: float) -> Member:
        return self.owner(members, topic)


class HashClient(Ring):
    """All messages of a publisher go to one member: their order holds while membership is stable."""

    def choose(self, members: list[Member], topic: str, publisher: str, now: float) -> Member:
        return self.owner(members, publisher)
