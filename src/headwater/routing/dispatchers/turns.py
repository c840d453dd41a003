"""The dispatchers that look at nothing but whose turn it is."""

from __future__ import annotations

import random

from headwater.routing.dispatcher import Dispatcher, Member


def _turn_of(member: Member) -> int:
    return member.turn


class RoundRobin(Dispatcher):
    """Whoever has waited longest is next; who joins waits behind all others.

    As long as two members are both there, their shares differ by at most one message. Consecutive messages of a
    topic go to different members, so a topic's order holds for each member but not across them.

    The members are sorted by their last turn only when the list is a new one; from then on going round the sorted
    list keeps that order by itself.
    """

    def __init__(self) -> None:
        self._turn = 0
        self._members: list[Member] = []
        self._ring: list[Member] = []
        self._next = 0

    def choose(self, members: list[Member], topic: str, publisher: str, now: float) -> Member:
        if members is not self._members:
            self._members = members
            self._ring = sorted(members, key=_turn_of)
            self._next = 0
        ring = self._ring
        while True:
            member = ring[self._next]
            self._next += 1
            if self._next == len(ring):
                self._next = 0
            if member.ready:
                break
        self._turn += 1
        member.turn = self._turn
        return member

    def joined(self, member: Member) -> None:
        # As if it had just been served; sorting keeps those of equal turn in order of joining.
        member.turn = self._turn


class WeightedRoundRobin(Dispatcher):
    """Round robin in which a member's share is its weight's part of the sum of weights, without bursts.

    Everybody gains its weight in each turn, the richest is chosen and pays the sum. Over any sum-of-weights messages
    each member gets exactly its weight, as evenly spread as can be. Advice multiplies the weight. A topic's order
    holds for each member but not across them. A choice looks at all members.
    """

    def choose(self, members: list[Member], topic: str, publisher: str, now: float) -> Member:
        best = members[0]
        total = 0
        for member in members:
            if member.ready:
                weight = member.pull
                total += weight
                member.turn += weight
                if member.turn > best.turn or not best.ready:
                    best = member
        best.turn -= total
        return best


class Random(Dispatcher):
    """Any member, all equally likely. A topic's order holds for each member but not across them."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)

    def choose(self, members: list[Member], topic: str, publisher: str, now: float) -> Member:
        member = members[int(self._random.random() * len(members))]
        if not member.ready:
            ready = [other for other in members if other.ready]
            member = ready[int(self._random.random() * len(ready))]
        return member


class Sticky(Dispatcher):
    """One member gets everything as long as it is there; then another one does, chosen by chance.

    Everything keeps its order while the member stays; the others are its reserve.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.waits = True
        self._random = random.Random(seed)
        self._members: list[Member] = []
        self._favourite: Member | None = None

    def choose(self, members: list[Member], topic: str, publisher: str, now: float) -> Member:
        favourite = self._favourite
        if favourite is None or (members is not self._members and favourite not in members):
            favourite = members[int(self._random.random() * len(members))]
            self._favourite = favourite
        self._members = members
        return favourite

    def left(self, member: Member) -> None:
        if member is self._favourite:
            self._favourite = None
