"""Chance in proportion to what is left of each member's capacity.

After M. Matić, M. Antić, S. Ivanović, I. Pap, "Scheduling messages within MQTT shared subscription group in the
clustered cloud architecture", TELFOR 2020. A subscriber i has the capacity t_i, broker k that of its subscribers,
BR_k = Σ t_i, and gets a message with the probability BR_k / Σ t_i over all; so each subscriber gets it with
t_i / Σ t_i, however the subscribers are spread over brokers. Being sent a message lowers a capacity, time restores it.

The paper presumes that all capacities are known beforehand. Here a member's full capacity is BURST messages times its
weight, and what is advised of it, restored at the rate at which it says it processes, else in RECOVERY seconds. Who
joins is as tired as the others are: were it rested, a group that members keep coming to would leave nothing for those
who stay.
"""

from __future__ import annotations

import random
from typing import Final, cast

from headwater.routing.dispatcher import PARTS, Dispatcher, Member

BURST: Final = 10.0
RECOVERY: Final = 0.25  # seconds from empty to full
LEAST: Final = 0.01  # of the full capacity is always left, so that everybody has a chance


class _Tank:
    def __init__(self) -> None:
        self.level = BURST
        self.at = -1.0  # -1.0: it has not been looked at


class Capacity(Dispatcher):
    """By chance, in proportion to the capacity left. A topic's order holds for each member but not across them.
    A choice looks at all members."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)
        self._members: dict[Member, _Tank] = {}

    def joined(self, member: Member) -> None:
        level = 0.0
        full = 0.0
        for other, tank in self._members.items():
            level += tank.level
            full += _full(other)
        tank = _Tank()
        tank.level = _full(member) * (level / full if full > 0.0 else 1.0)
        self._members[member] = tank
        member.model = tank

    def left(self, member: Member) -> None:
        self._members.pop(member, None)

    def choose(self, members: list[Member], topic: str, publisher: str, now: float) -> Member:
        total = 0.0
        for member in members:
            level = self.capacity(member, now)
            if member.ready:
                total += level
        ticket = self._random.random() * total
        chosen = members[len(members) - 1]
        for member in members:
            if member.ready:
                chosen = member
                ticket -= cast(_Tank, member.model).level
                if ticket < 0.0:
                    break
        tank = cast(_Tank, chosen.model)
        tank.level = max(tank.level - 1.0, LEAST * BURST)
        return chosen

    def capacity(self, member: Member, now: float) -> float:
        """What is left of the member's capacity, in messages."""
        tank = cast(_Tank, member.model)
        full = _full(member)
        rate = 1.0 / member.reported_seconds if member.reported_seconds > 0.0 else full / RECOVERY
        if tank.at >= 0.0:
            tank.level = min(full, tank.level + (now - tank.at) * rate)
        tank.at = now
        return tank.level


def _full(member: Member) -> float:
    return BURST * member.pull / PARTS
