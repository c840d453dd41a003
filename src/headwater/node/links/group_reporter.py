"""What other nodes are told of the members here of shared groups (peering/groups/notes.py).

Theory. That a group has members here, or none any more, and who of them is there, is told at once: before the turn
ends, and before others hear of the subscription, so that a SUBACK promises what it does for any other. How members are
doing is looked at every `INTERVAL` for groups that are *active*: messages came for them from other nodes, or were
dealt out from here. It is told if it differs from what others make of what they were told last. A group that has had
nothing to tell for `IDLE` seconds is looked at no more, unless it was said to have no room: somebody may wait for it.

Each peer has a list of what it is still to be told, of which it gets `AT_ONCE` groups at a time. So whoever is linked
anew gets all, and whose link takes nothing gets the latest state when it does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, cast

from headwater.node.links.post import Post, Service
from headwater.node.plane.timers import Timer
from headwater.node.protocol.server import Server
from headwater.node.protocol.sharing import has_room
from headwater.peering.groups.notes import (
    BEGINNING,
    END,
    GROUP_BYTES,
    MAX_GROUPS_BYTES,
    MAX_NAME,
    MOST_CREDIT,
    Entry,
    GroupState,
    encode_note,
    slots_of,
)
from headwater.routing.dispatcher import NOMINAL, PARTS
from headwater.routing.shared import Group
from headwater.session.session import Session

log = logging.getLogger("headwater.cluster")

INTERVAL: Final = 0.02
"""Seconds between two looks at active groups."""
AHEAD: Final = 0.05
"""Seconds of work that may be on its way to members here, or wait here, though none of them has room: else members with
small windows would have nothing to do until the next report."""
IDLE: Final = 1.0
AT_ONCE: Final = 256
LOOKED_AT: Final = 64
"""Active groups that are looked at in one interval; others in the next."""
MANY_MEMBERS: Final = 64
"""Of a group with more, its members are looked at less often, in proportion."""
UNBOUNDED: Final = 1 << 16
"""Messages that a member takes at once that has no window: it subscribed with QoS 0."""
NOTABLE: Final = 0.001
"""Seconds by which a start has to differ from what was told."""


class OwnGroup:
    """A group with members here."""

    def __init__(self, group: Group, number: int) -> None:
        self.group = group
        self.name = group.name
        self.number = number
        self.taken: dict[str, int] = {}
        """Messages that nodes have sent for it, since their links are up."""
        self.state: GroupState | None = None
        """As of the last look; what peers were told, or are to be."""
        self.looked_at = -1.0
        self.busy_until = 0.0
        self.is_news = False
        """Something came for it since it was told of."""

    @property
    def size(self) -> int:
        return GROUP_BYTES + len(self.name.encode())


class _Peer:
    def __init__(self) -> None:
        self.pending: dict[OwnGroup, None] = {}
        self.gone: list[int] = []
        self.named: set[int] = set()
        self.has_begun = False
        """It was told something."""
        self.has_all = False
        """It was told all that there was."""

    @property
    def is_owed(self) -> bool:
        return bool(self.pending or self.gone or not self.has_all)


class GroupReporter:
    """`due` is called when it is time to `flush` and to `look`."""

    def __init__(self, server: Server, post: Post, service: Service, due: Callable[[], None]) -> None:
        self.server = server
        self.post = post
        self.service = service
        self.due = due
        self.own: dict[str, OwnGroup] = {}
        self.max_bytes = MAX_GROUPS_BYTES
        self._bytes = 0
        self._by_filter: dict[str, dict[OwnGroup, None]] = {}
        self._peers: dict[str, _Peer] = {}
        self._active: dict[OwnGroup, None] = {}
        self._news: dict[OwnGroup, None] = {}
        """Those of which members came or went."""
        self._made = 0
        self._timer: Timer | None = None
        self._is_said = False
        """The log says that groups are not told."""

    # ---- what happens here ---------------------------------------------------------------------------------------

    def added(self, group: Group) -> None:
        """It has its first member here."""
        own = OwnGroup(group, self._made)
        if len(own.name.encode()) > MAX_NAME or self._bytes + own.size > self.max_bytes:
            self._complain(own.name)
            return
        self._made += 1
        self._bytes += own.size
        self.own[own.name] = own
        self._by_filter.setdefault(group.filter, {})[own] = None
        self._changed(own)

    def _complain(self, name: str) -> None:
        if not self._is_said:
            self._is_said = True
            log.warning(
                "the shared group %.200r, and perhaps others, gets nothing from other nodes: its name is longer than "
                "%d bytes, or there are too many groups (%d bytes for all)",
                *(name, MAX_NAME, self.max_bytes),
            )

    def removed(self, group: Group) -> None:
        """It has no member here any more."""
        own = self.own.pop(group.name, None)
        if own is None:
            return
        self._bytes -= own.size
        of_filter = self._by_filter[group.filter]
        del of_filter[own]
        if not of_filter:
            del self._by_filter[group.filter]
        self._active.pop(own, None)
        self._news.pop(own, None)
        for peer in self._peers.values():
            peer.pending.pop(own, None)
            if own.number in peer.named:
                peer.named.discard(own.number)
                peer.gone.append(own.number)
        self._soon(self.server.hot.now)

    def members_changed(self, filter: str) -> None:
        """Somebody with this filter came, went, connected or disconnected."""
        for own in self._by_filter.get(filter, {}):
            self._changed(own)

    def everything_changed(self) -> None:
        for own in self.own.values():
            self._changed(own)

    def _changed(self, own: OwnGroup) -> None:
        self._news[own] = None
        self._soon(self.server.hot.now)

    def used(self, name: str, node: str = "", count: int = 0) -> None:
        """Messages are on their way to members here, `count` of them sent by that node."""
        own = self.own.get(name)
        if own is not None:
            if count:
                own.taken[node] = own.taken.get(node, 0) + count
                own.is_news = True
            self._active[own] = None
            own.busy_until = self.server.hot.now + IDLE
            self._soon(self.server.hot.now + INTERVAL)

    # ---- peers ---------------------------------------------------------------------------------------------------

    def link_up(self, node: str) -> None:
        peer = self._peers[node] = _Peer()
        for own in self.own.values():
            own.taken.pop(node, None)
            peer.pending[own] = None
        self.flush()

    def link_down(self, node: str) -> None:
        self._peers.pop(node, None)

    # ---- notes ---------------------------------------------------------------------------------------------------

    def flush(self) -> list[tuple[OwnGroup, GroupState]]:
        """Tell of those who came and went; the groups of which that is new, as they are now."""
        news: list[tuple[OwnGroup, GroupState]] = []
        for own in self._news:
            news.append((own, self._look(own)))
            self._tell_all(own)
        self._news.clear()
        self._send()
        return news

    def look(self) -> list[tuple[OwnGroup, GroupState]]:
        """Look at active groups, and tell what has changed; those that were looked at, as they are now."""
        seen: list[tuple[OwnGroup, GroupState]] = []
        now = self.server.hot.now
        for own in list(self._active)[:LOOKED_AT]:
            del self._active[own]
            pause = INTERVAL * len(own.group) / MANY_MEMBERS
            if now < own.looked_at + pause:
                self._active[own] = None  # behind the others
                continue
            before, looked_at = own.state, own.looked_at
            state = self._look(own)
            seen.append((own, state))
            is_new = before is None or own.is_news or differs(before, looked_at, state, now)
            if is_new:
                own.busy_until = now + IDLE
                self._tell_all(own)
            elif before is not None:
                own.state, own.looked_at = before, looked_at  # what others know
            if own.busy_until > now or state.credit == 0:
                self._active[own] = None
        self._send()
        return seen

    def _look(self, own: OwnGroup) -> GroupState:
        now = self.server.hot.now
        own.state = state_of(own.group, self.server.sharing.waiting(own.group), now)
        own.looked_at = now
        if own.state.credit == 0:
            self._active[own] = None
        return own.state

    def _tell_all(self, own: OwnGroup) -> None:
        own.is_news = False
        for peer in self._peers.values():
            peer.pending[own] = None

    def _send(self) -> None:
        for node, peer in self._peers.items():
            if peer.is_owed:
                self._send_to(node, peer)
        if self._active or any(peer.is_owed for peer in self._peers.values()):
            self._soon(self.server.hot.now + INTERVAL)

    def _send_to(self, node: str, peer: _Peer) -> None:
        entries = [Entry(number, "", 0, None) for number in peer.gone]
        some = list(peer.pending)[:AT_ONCE]
        now = self.server.hot.now
        for own in some:
            state = own.state
            if state is None or own.looked_at != now:
                state = self._look(own)
            name = "" if own.number in peer.named else own.name
            entries.append(Entry(own.number, name, own.taken.get(node, 0), state))
        is_end = not peer.has_all and len(some) == len(peer.pending)
        part = (0 if peer.has_begun else BEGINNING) | (END if is_end else 0)
        if not self.post.note(node, self.service, encode_note(entries, part)):
            return
        peer.has_begun = True
        peer.has_all = peer.has_all or is_end
        peer.gone.clear()
        for own in some:
            del peer.pending[own]
            peer.named.add(own.number)

    def _soon(self, when: float) -> None:
        if self._timer is not None:
            if self._timer.when <= when:
                return
            self.server.timers.cancel(self._timer)
        self._timer = self.server.timers.at(when, self._is_due)

    def _is_due(self) -> None:
        self._timer = None
        self.due()


def state_of(group: Group, waiting: int, now: float) -> GroupState:
    """How the members here are doing; `waiting` messages wait for them here."""
    dispatcher = group.dispatcher
    outlooks: list[tuple[float, float]] = []
    online = 0
    credit = 0
    weight = 0.0
    capacity = 0.0
    ahead = 0.0
    for member in group.members():
        if not member.online:
            continue
        online += 1
        start, service = dispatcher.outlook(member, now)
        if service > 0.0:
            ahead += AHEAD / service
        if has_room(member):
            weight += member.pull / PARTS
            capacity += dispatcher.capacity(member, now)
            session = cast(Session, member.key)
            credit += session.outbound.quota if member.subscription.qos else UNBOUNDED
        else:
            start = now + max(1, member.in_flight) * (service or NOMINAL)
        outlooks.append((start, service))
    credit = min(max(credit + int(ahead) - waiting, 0), MOST_CREDIT)
    return GroupState(len(group), online, credit, weight, capacity, slots_of(outlooks, now))


def differs(told: GroupState, told_at: float, state: GroupState, now: float) -> bool:
    """Whether others, who go on by themselves, would have another picture."""
    if told.members != state.members or told.online != state.online or len(told.slots) != len(state.slots):
        return True
    if (told.credit == 0) != (state.credit == 0) or abs(told.credit - state.credit) * 8 > told.credit:
        return True
    if abs(told.capacity - state.capacity) * 8 > told.capacity:
        return True
    for before, slot in zip(told.slots, state.slots, strict=True):
        expected = max(told_at + before.starts_in - now, 0.0)
        if abs(expected - max(slot.starts_in, 0.0)) > NOTABLE or before.alike != slot.alike:
            return True
        if abs(before.service - slot.service) * 20 > before.service:
            return True
    return False
