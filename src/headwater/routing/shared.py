"""Shared subscriptions: groups of which one member gets each message, and the dispatchers that say which one.

MQTT 5.0 (section 4.8.2) leaves the choice to the server. A `Group` knows who its members are and which of them are
there; a `Dispatcher` chooses. Every group has a dispatcher of its own, so what a dispatcher remembers is about one
group. The group hands it a list that never changes: when members come, go, connect or disconnect, the next choice
gets a new list. A dispatcher may so recognise "nothing has changed" by the list itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, cast

from mypy_extensions import mypyc_attr

from headwater.message import Subscription
from headwater.routing.trie import Trie


class Member:
    """A session's part in a group. `online` is changed only by the group, `turn` only by the group's dispatcher."""

    __slots__ = ("key", "online", "subscription", "turn")

    def __init__(self, key: object, subscription: Subscription, online: bool) -> None:
        self.key = key
        self.subscription = subscription
        self.online = online
        self.turn = 0

    def __repr__(self) -> str:
        return f"Member({self.key!r}, {'online' if self.online else 'offline'})"


@mypyc_attr(allow_interpreted_subclasses=True)
class Dispatcher:
    """Chooses the member of one group that gets a message. To be subclassed; only `choose` must be.

    `joined` is called once for each member before it is first offered to `choose`, `left` once when it has left the
    group and will not be offered again. Going offline is not leaving: the member is just missing from the list for a
    while. Events to come, with nothing done by default, are a member's acknowledgement of a message (`acknowledged`)
    and a client's report of its load (`reported`); a subclass should not use these names for anything else.
    """

    def choose(self, members: list[Member], topic: str, publisher: str) -> Member:
        """One of `members`, which is not empty, in order of joining, and never changed by anybody."""
        raise NotImplementedError

    def joined(self, member: Member) -> None:
        """A member has joined the group."""

    def left(self, member: Member) -> None:
        """A member has left the group."""


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

    def choose(self, members: list[Member], topic: str, publisher: str) -> Member:
        if members is not self._members:
            self._members = members
            self._ring = sorted(members, key=_turn_of)
            self._next = 0
        ring = self._ring
        member = ring[self._next]
        self._next += 1
        if self._next == len(ring):
            self._next = 0
        self._turn += 1
        member.turn = self._turn
        return member

    def joined(self, member: Member) -> None:
        # As if it had just been served; sorting keeps those of equal turn in order of joining.
        member.turn = self._turn


class Random(Dispatcher):
    """Any member, all equally likely. A topic's order holds for each member but not across them."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)

    def choose(self, members: list[Member], topic: str, publisher: str) -> Member:
        return members[int(self._random.random() * len(members))]


# By the name used in the configuration. Others may be added.
DISPATCHERS: Final[dict[str, Callable[[], Dispatcher]]] = {"random": Random, "round_robin": RoundRobin}


def dispatcher(name: str) -> Dispatcher:
    """A new dispatcher of that name, for one group; ValueError if there is no such name."""
    make = DISPATCHERS.get(name)
    if make is None:
        raise ValueError(f"there is no dispatcher {name!r}; choose one of: {', '.join(sorted(DISPATCHERS))}")
    return make()


class Group:
    """The sessions that share one filter under one name, in order of joining."""

    def __init__(self, share: str, filter: str, dispatcher: Dispatcher) -> None:
        self.share = share
        self.filter = filter
        self.dispatcher = dispatcher
        self._members: dict[object, Member] = {}
        self._eligible: list[Member] | None = None  # None: to be found out at the next choice

    def __len__(self) -> int:
        return len(self._members)

    def __repr__(self) -> str:
        return f"Group({self.share!r}, {self.filter!r}, {len(self._members)} members)"

    def members(self) -> list[Member]:
        """All members, in order of joining."""
        return list(self._members.values())

    def member(self, key: object) -> Member | None:
        return self._members.get(key)

    def join(self, key: object, subscription: Subscription, online: bool = True) -> Member:
        """Add a member. One that is in the group already keeps its place and gets the new subscription."""
        member = self._members.get(key)
        if member is not None:
            member.subscription = subscription
            self.set_online(key, online)
            return member
        member = Member(key, subscription, online)
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
            self._eligible = None

    def choose_online(self, topic: str, publisher: str) -> Member | None:
        """The member that gets a message; None if the group is empty.

        It is one that is online, if any is. Otherwise it is one that is offline, whose session has outlived its
        connection (or it would have left) and queues the message.
        """
        eligible = self._eligible
        if eligible is None:
            everybody = list(self._members.values())
            eligible = [member for member in everybody if member.online] or everybody
            self._eligible = eligible
        if not eligible:
            return None
        return self.dispatcher.choose(eligible, topic, publisher)


class Groups:
    """All groups of a broker. `len()` counts groups; a group exists while it has members."""

    def __init__(self, new_dispatcher: Callable[[], Dispatcher] = RoundRobin) -> None:
        self._new_dispatcher = new_dispatcher
        self._groups: dict[tuple[str, str], Group] = {}
        self._by_key: dict[object, dict[Group, None]] = {}  # a session's groups, in order of joining
        self._trie = Trie()  # in which the groups are the subscribers

    def __len__(self) -> int:
        return len(self._groups)

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
            group = Group(share, subscription.filter, self._new_dispatcher())
            self._groups[name] = group
            self._trie.add(group.filter, group, subscription)
        is_new = group.member(key) is None
        group.join(key, subscription, online)
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
            del self._groups[(share, filter)]
            self._trie.remove(filter, group)
        return member.subscription

    def leave_all(self, key: object) -> list[Subscription]:
        """Take a session out of all its groups and return its subscriptions there."""
        left: list[Subscription] = []
        for group in list(self._by_key.get(key, {})):
            subscription = self.leave(key, group.share, group.filter)
            if subscription is not None:
                left.append(subscription)
        return left

    def set_online(self, key: object, online: bool) -> None:
        """Note in all its groups that a session has connected or disconnected."""
        for group in self._by_key.get(key, {}):
            group.set_online(key, online)

    def match(self, topic: str) -> list[Group]:
        """The groups whose filter matches the topic, in the trie's order; each is to get the message once."""
        found: list[Group] = []
        for groups in self._trie.match(topic):
            for group in groups:
                found.append(cast(Group, group))
        return found
