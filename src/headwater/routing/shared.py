"""Shared subscriptions: groups of which one member gets each message.

MQTT 5.0 (section 4.8.2) leaves the choice to the server. A `Group` knows who its members are, which of them are there
and what each has been sent; a `Dispatcher` chooses. Every group has a dispatcher of its own, so what a dispatcher
remembers is about one group. The group hands it a list that never changes: when members come, go, connect or
disconnect, the next choice gets a new list. A dispatcher may so recognise "nothing has changed" by the list itself.

A message belongs to the group until it is sent: it is given only to a member that is there and has room. Which that
is, the node says (`block`, `readied`); what nobody has room for waits there, in a bounded queue of the group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from mypy_extensions import mypyc_attr

from headwater.message import Subscription
from headwater.routing.dispatcher import Dispatcher, Member
from headwater.routing.dispatchers.adaptive import Adaptive
from headwater.routing.dispatchers.capacity import Capacity
from headwater.routing.dispatchers.hashes import HashClient, HashTopic
from headwater.routing.dispatchers.least import (
    LeastBytes,
    LeastConnections,
    LeastLoad,
    LeastPending,
    LeastResponseTime,
)
from headwater.routing.dispatchers.score import MendedScore, Score
from headwater.routing.dispatchers.turns import Random, RoundRobin, Sticky, WeightedRoundRobin
from headwater.routing.trie import Subscribers, Trie

# By the name used in the configuration. Others may be added.
DISPATCHERS: Final[dict[str, Callable[[], Dispatcher]]] = {
    "adaptive": Adaptive,
    "capacity": Capacity,
    "hash_client": HashClient,
    "hash_topic": HashTopic,
    "least_bytes": LeastBytes,
    "least_connections": LeastConnections,
    "least_load": LeastLoad,
    "least_pending": LeastPending,
    "least_response_time": LeastResponseTime,
    "random": Random,
    "round_robin": RoundRobin,
    "score": Score,
    "score_mended": MendedScore,
    "sticky": Sticky,
    "weighted_round_robin": WeightedRoundRobin,
}


def dispatcher(name: str) -> Dispatcher:
    """A new dispatcher of that name, for one group; ValueError if there is no such name."""
    make = DISPATCHERS.get(name)
    if make is None:
        raise ValueError(f"there is no dispatcher {name!r}; choose one of: {', '.join(sorted(DISPATCHERS))}")
    made = make()
    made.name = name
    return made


@mypyc_attr(allow_interpreted_subclasses=True)
class Watcher:
    """Who looks at the connections of members."""

    def watch(self, group: Group, member: Member) -> None:
        """The member is not `watched` and was sent something: sample it at the next tick."""
        raise NotImplementedError


class Group:
    """The sessions that share one filter under one name, in order of joining."""

    def __init__(self, share: str, filter: str, dispatcher: Dispatcher, watcher: Watcher | None = None) -> None:
        self.share = share
        self.filter = filter
        self.dispatcher = dispatcher
        self.watcher = watcher
        self._members: dict[object, Member] = {}
        self._eligible: list[Member] | None = None  # those online; None: to be found out at the next choice
        self._ready = 0  # of those, the ones that are ready
        self.sent_messages = 0  # to members so far
        self.number = 0
        """By which a journal knows it; 0: what waits in it is not on disk."""
        self.gate: Subscription | None = None
        """Has the condition that messages for the group have to meet; None: there is none."""
        self.is_held = False
        """Other brokers have members of it: it stays, with what waits in it, when it has none here."""

    def __len__(self) -> int:
        return len(self._members)

    def __repr__(self) -> str:
        return f"Group({self.share!r}, {self.filter!r}, {len(self._members)} members)"

    @property
    def name(self) -> str:
        """As its members wrote it."""
        return f"$share/{self.share}/{self.filter}"

    def members(self) -> list[Member]:
        """All members, in order of joining."""
        return list(self._members.values())

    def member(self, key: object) -> Member | None:
        return self._members.get(key)

    def join(
        self, key: object, subscription: Subscription, online: bool = True, weight: int = 1, advised: float = 1.0
    ) -> Member:
        """Add a member. One that is in the group already keeps its place and gets the new subscription."""
        member = self._members.get(key)
        if member is not None:
            member.subscription = subscription
            self.set_online(key, online)
            return member
        member = Member(key, subscription, online)
        member.weight = weight
        member.advise(advised)
        self._members[key] = member
        self._eligible = None
        self.dispatcher.joined(member)
        return member

    def leave(self, key: object) -> Member | None:
        """Remove a member and return it; None if there is none."""
        member = self._members.pop(key, None)
        if member is not None:
            self._eligible = None
            self.dispatcher.left(member)
        return member

    def set_online(self, key: object, online: bool) -> None:
        """Note that a member has connected or disconnected. Others are ignored."""
        member = self._members.get(key)
        if member is not None and member.online != online:
            member.online = online
            member.ready = True
            self._eligible = None

    def use(self, dispatcher: Dispatcher) -> None:
        """From now on choose by another dispatcher. It knows of the past only what the members themselves hold."""
        for member in self._members.values():
            self.dispatcher.left(member)
        self.dispatcher = dispatcher
        self._eligible = None
        for member in self._members.values():
            member.turn = 0
            member.model = None
            dispatcher.joined(member)

    def choose_online(self, topic: str, publisher: str, now: float) -> Member | None:
        """The member that gets a message: one that is online and ready, unless the dispatcher waits for one that is
        not. None: there is none, the message has to wait."""
        eligible = self._eligible
        if eligible is None:
            eligible = self._find_eligible()
        dispatcher = self.dispatcher
        if self._ready == 0 and (not eligible or not dispatcher.waits):
            return None
        member = dispatcher.choose(eligible, topic, publisher, now)
        if member.ready or dispatcher.waits:
            return member
        dispatcher.given_back(member, 1, now)  # by one that does not look who is ready
        return dispatcher.choose([member for member in eligible if member.ready], topic, publisher, now)

    def _find_eligible(self) -> list[Member]:
        eligible = [member for member in self._members.values() if member.online]
        self._eligible = eligible
        self._ready = len([member for member in eligible if member.ready])
        return eligible

    @property
    def any_ready(self) -> bool:
        """Whether a member is there that has room, as far as is known."""
        if self._eligible is None:
            self._find_eligible()
        return self._ready > 0

    def any_online(self) -> bool:
        return bool(self._find_eligible() if self._eligible is None else self._eligible)

    def block(self, member: Member) -> None:
        """The member has no room."""
        if member.ready:
            member.ready = False
            self._ready -= self._is_eligible(member)

    def readied(self, member: Member, now: float) -> None:
        """The member has room again."""
        if not member.ready:
            member.ready = True
            self._ready += self._is_eligible(member)
            self.dispatcher.readied(member, now)

    def _is_eligible(self, member: Member) -> bool:
        return member.online and self._members.get(member.key) is member

    # ---- what happens to what was chosen: book-keeping first, then the dispatcher ---------------------------------

    def sent(self, member: Member, size: int, qos: int, now: float) -> None:
        """The message that was chosen for has become the member's."""
        self.sent_messages += 1
        member.sent_messages += 1
        member.sent_bytes += size
        if self.dispatcher.wants_samples and not member.watched and self.watcher is not None:
            self.watcher.watch(self, member)
        member.sent_since_report += 1
        if qos:
            member.in_flight_since.append(now)
        self.dispatcher.sent(member, size, qos, now)

    def also(self, member: Member, left: int, size: int, now: float) -> int:
        """How many of `left` more messages like the one that was just sent, with QoS 0, have become the member's."""
        count = self.dispatcher.also(member, left, now)
        if count:
            self.sent_messages += count
            member.sent_messages += count
            member.sent_bytes += count * size
            member.sent_since_report += count
        return count

    def acknowledged(self, member: Member, now: float, count: int = 1) -> None:
        """Deliveries with QoS 1 or 2 have ended: the oldest, as clients acknowledge in order [MQTT-4.6.0-2]. One that
        does not balances the same in the mean."""
        in_flight = member.in_flight_since
        if count == 1:
            if in_flight:
                self.dispatcher.acknowledged(member, in_flight.popleft(), now)
            return
        ended: list[float] = []
        while in_flight and len(ended) < count:
            ended.append(in_flight.popleft())
        if ended:
            self.dispatcher.acknowledged_together(member, ended, now)

    def reported(self, member: Member, waiting: int, seconds_per_message: float | None, now: float) -> None:
        """A report that `reports.read_report` has found valid."""
        self.dispatcher.reported(member, waiting, seconds_per_message, now)
        member.waiting = waiting
        member.sent_since_report = 0
        if seconds_per_message is not None:
            member.reported_seconds = seconds_per_message

    def sampled(self, member: Member, unsent_bytes: int, now: float) -> None:
        self.dispatcher.sampled(member, unsent_bytes, now)
        member.unsent_bytes = unsent_bytes

    def given_back(self, member: Member, count: int, qos: int, now: float) -> None:
        """The newest `count` messages of the member, sent with that QoS, are its no longer."""
        in_flight = member.in_flight_since
        for _ in range(min(count, len(in_flight)) if qos else 0):
            in_flight.pop()
        member.sent_since_report = max(0, member.sent_since_report - count)
        self.dispatcher.given_back(member, count, now)


class Groups:
    """All groups of a broker. `len()` counts groups; a group exists while it has members, or is held."""

    def __init__(self, new_dispatcher: Callable[[str], Dispatcher]) -> None:
        """`new_dispatcher` makes one for the group of that name, `$share/…`."""
        self._new_dispatcher = new_dispatcher
        self.watcher: Watcher | None = None
        self.weight_of: Callable[[object], int] | None = None
        self.advised_of: Callable[[str, object], float] | None = None
        """What is advised of a session that joins the group of that name."""
        self._groups: dict[tuple[str, str], Group] = {}
        self._by_key: dict[object, dict[Group, None]] = {}  # a session's groups, in order of joining
        self._trie = Trie()  # in which the groups are the subscribers

    def __len__(self) -> int:
        return len(self._groups)

    def all(self) -> list[Group]:
        """All groups, the oldest first."""
        return list(self._groups.values())

    def get(self, share: str, filter: str) -> Group | None:
        return self._groups.get((share, filter))

    def join(self, key: object, subscription: Subscription, online: bool = True) -> bool:
        """Add a session to the group of its subscription (True), or renew its subscription there (False)."""
        share = subscription.share
        if share is None:
            raise ValueError(f"{subscription!r} is not shared")
        name = (share, subscription.filter)
        group = self._groups.get(name)
        if group is None:
            group = self._make(share, subscription.filter)
        if len(group) == 0:
            self._trie.add(group.filter, group, subscription)
        is_new = group.member(key) is None
        weight = 1 if self.weight_of is None else self.weight_of(key)
        advised = 1.0 if self.advised_of is None else self.advised_of(group.name, key)
        group.join(key, subscription, online, weight, advised)
        if is_new:
            self._by_key.setdefault(key, {})[group] = None
        return is_new

    def leave(self, key: object, share: str, filter: str) -> Subscription | None:
        """Take a session out of a group and return its subscription there; None if it was not a member."""
        group = self._groups.get((share, filter))
        if group is None:
            return None
        member = group.leave(key)
        if member is None:
            return None
        mine = self._by_key[key]
        del mine[group]
        if not mine:
            del self._by_key[key]
        if len(group) == 0:
            self._trie.remove(filter, group)
            if not group.is_held:
                del self._groups[(share, filter)]
        return member.subscription

    def hold(self, share: str, filter: str) -> Group:
        """The group of that name, which stays though nobody here is in it, until it is released."""
        group = self._groups.get((share, filter))
        if group is None:
            group = self._make(share, filter)
        group.is_held = True
        return group

    def release(self, group: Group) -> None:
        """It goes with its last member, or now."""
        group.is_held = False
        if len(group) == 0:
            self._groups.pop((group.share, group.filter), None)

    def has_members(self, share: str, filter: str) -> bool:
        group = self._groups.get((share, filter))
        return group is not None and len(group) > 0

    def _make(self, share: str, filter: str) -> Group:
        group = Group(share, filter, self._new_dispatcher(f"$share/{share}/{filter}"), self.watcher)
        self._groups[share, filter] = group
        return group

    def set_online(self, key: object, online: bool) -> None:
        """Note in all its groups that a session has connected or disconnected."""
        for group in self._by_key.get(key, {}):
            group.set_online(key, online)

    def of(self, key: object) -> list[Group]:
        """The groups a session is in, in order of joining. A report of its load or a sample of its connection is for
        each of them."""
        return list(self._by_key.get(key, {}))

    def match(self, topic: str) -> list[Group]:
        """The groups whose filter matches the topic, in the trie's order; each is to get the message once."""
        found: list[Group] = []
        for groups in self._trie.match(topic):
            for group in groups:
                found.append(cast(Group, group))
        return found

    def by_filter(self, topic: str) -> list[Subscribers]:
        """The same, as a dictionary for each filter that matches: to be read only, and before the next change."""
        return self._trie.match(topic)
