"""Who was surely subscribed to what, when; and in which session each delivery came.

A claim begins with the SUBACK of a session that outlives connections, and ends when a CONNACK says that the session is
gone, or with a CONNECT that asks for a clean one. What is published, from its first sending to its acknowledgement,
within a claim is owed. A session that was lost against the promise owes what it had to the end.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from headwater.routing.topics import matches, split_shared
from headwater_lab.check_broker.history import NEVER, Connect, Delivery, History, Outcome, Subscription


@dataclass(slots=True)
class Claim:
    client: str
    filter: str
    group: str | None
    qos: int
    subscription: Subscription
    until: int = NEVER
    lost_with: Connect | None = None
    """The CONNACK that did not know the session any more."""

    def wants(self, topic: str) -> bool:
        return matches(self.filter, topic)

    def surely(self, first: int, last: int) -> bool:
        return self.subscription.completed < first and last < self.until


@dataclass(slots=True)
class Sessions:
    claims: list[Claim] = field(default_factory=list)
    epochs: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Of each client the places where a new session began."""

    def epoch(self, delivery: Delivery) -> int:
        """Which of its client's sessions a delivery belongs to."""
        return sum(place < delivery.place for place in self.epochs[delivery.client])


def sessions_of(history: History) -> Sessions:
    found = Sessions()
    current: dict[str, list[Claim]] = defaultdict(list)
    operations = [each for each in history.of(Connect) if each.completed != NEVER]
    subscriptions = [each for each in history.of(Subscription) if each.outcome is Outcome.OK]
    lasting: dict[str, bool] = {}
    answered: list[Connect | Subscription] = [*operations, *subscriptions]
    for each in sorted(answered, key=lambda each: each.completed):
        if isinstance(each, Connect):
            if each.outcome is not Outcome.OK:
                continue
            lasting[each.client] = not each.clean
            if not each.present:
                found.epochs[each.client].append(each.completed)
                for claim in current.pop(each.client, []):
                    claim.until = each.invoked if each.clean else each.completed
                    claim.lost_with = None if each.clean else each
        elif lasting.get(each.client):
            group, topic_filter = split_shared(each.filter)
            claim = Claim(each.client, topic_filter, each.filter if group is not None else None, each.granted, each)
            current[each.client].append(claim)
            found.claims.append(claim)
    return found
