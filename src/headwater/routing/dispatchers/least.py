"""The dispatchers known from load balancers: the member with the least of something is next.

Each looks at all members for each message; among those with equally little, whoever was chosen longest ago is next, so
that each is round robin as long as it knows nothing.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from headwater.routing.dispatcher import Dispatcher, Member

REMEMBERED_PUBLISHERS: Final = 65_536
SMOOTHING: Final = 0.125  # of the newest response time in the mean


@mypyc_attr(allow_interpreted_subclasses=True)
class Least(Dispatcher):
    """Of what, `cost` says. A topic's order holds for each member but not across them."""

    def __init__(self) -> None:
        self._turn = 0

    def joined(self, member: Member) -> None:
        member.turn = self._turn

    def cost(self, member: Member) -> float:
        raise NotImplementedError

    def choose(self, members: list[Member], topic: str, publisher: str, now: float) -> Member:
        best = members[0]
        least = self.cost(best)
        for member in members:
            if not member.ready:
                continue
            cost = self.cost(member)
            if cost < least or (cost == least and member.turn < best.turn) or not best.ready:
                best = member
                least = cost
        self._turn += 1
        best.turn = self._turn
        return best


class LeastPending(Least):
    """The fewest messages pending: those it has not acknowledged or, where it reports its queue, those that waited
    there and those sent since."""

    def cost(self, member: Member) -> float:
        reported = member.waiting + member.sent_since_report if member.waiting >= 0 else 0
        return max(member.in_flight, reported)


class LeastBytes(Least):
    """The fewest bytes sent to it so far. Who joins starts with the average of the others, not with a burst."""

    def __init__(self) -> None:
        super().__init__()
        self._head_start: dict[Member, int] = {}

    def joined(self, member: Member) -> None:
        super().joined(member)
        others = [other.sent_bytes + start for other, start in self._head_start.items()]
        self._head_start[member] = sum(others) // len(others) - member.sent_bytes if others else 0

    def left(self, member: Member) -> None:
        self._head_start.pop(member, None)

    def cost(self, member: Member) -> float:
        return member.sent_bytes + self._head_start.get(member, 0)


class LeastLoad(Least):
    """The least work by its own last report: messages waiting times seconds for each, and nothing else. It is blind
    between reports, so all goes to one member until the next report comes: a baseline."""

    def cost(self, member: Member) -> float:
        return max(0, member.waiting) * member.reported_seconds


class LeastResponseTime(Least):
    """The shortest time from dispatch to acknowledgement (a moving mean), times what it has in flight and one."""

    def __init__(self) -> None:
        super().__init__()
        self._mean: dict[Member, float] = {}

    def left(self, member: Member) -> None:
        self._mean.pop(member, None)

    def acknowledged(self, member: Member, sent_at: float, now: float) -> None:
        mean = self._mean.get(member, now - sent_at)
        self._mean[member] = mean + SMOOTHING * (now - sent_at - mean)

    def cost(self, member: Member) -> float:
        return self._mean.get(member, 0.0) * (1 + member.in_flight)


class LeastConnections(Least):
    """Each publisher is bound to one member when it is first seen: to the one with the fewest publishers.

    As with connections through a balancer, what a publisher sends keeps its order as long as its member is there. The
    publishers that were longest silent are forgotten when there are more than `REMEMBERED_PUBLISHERS`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits = True
        self._bound: dict[str, Member] = {}
        self._count: dict[Member, int] = {}
        self._members: list[Member] = []
        self._there: set[Member] = set()

    def left(self, member: Member) -> None:
        self._count.pop(member, None)
        self._bound = {publisher: other for publisher, other in self._bound.items() if other is not member}

    def cost(self, member: Member) -> float:
        return self._count.get(member, 0)

    def choose(self, members: list[Member], topic: str, publisher: str, now: float) -> Member:
        if members is not self._members:
            self._members = members
            self._there = set(members)
        before = self._bound.pop(publisher, None)
        if before is not None and before in self._there:
            self._bound[publisher] = before  # at the end: heard of last
            return before
        if before is not None:
            self._count[before] -= 1
        elif len(self._bound) >= REMEMBERED_PUBLISHERS:
            self._count[self._bound.pop(next(iter(self._bound)))] -= 1
        chosen = super().choose(members, topic, publisher, now)
        self._bound[publisher] = chosen
        self._count[chosen] = self._count.get(chosen, 0) + 1
        return chosen
