"""Who is in the cluster, and in what state: each node's own judgement, made of what it hears and does not hear.

A sign of life is *progress of the data plane*, not an answer: a digest carries a node's heartbeat and the heartbeat at
which its data plane last advanced. A node whose gossip answers while its data plane stands still is suspected like one
that is silent (`stalled` instead of `silent`). States follow SWIM (Das, Gupta, Motivala: "SWIM: Scalable
Weakly-consistent Infection-style Process Group Membership Protocol", DSN 2002): live, suspected, dead, and left.

    live ──φ ≥ THRESHOLD──► suspected ──`dead_after` more──► dead ──`forget_after` quiet──► forgotten
      ▲─────progress────────────┘  ▲────progress, by others─────┘      left ──────the same──────┘

Opinions are not shared, so no member can have another one declared dead. Old news must not look like life: what others
say of a node that is new here, restarted or dead makes it suspected, and only progress after that makes it live; what
it says itself makes it live at once. A forgotten node leaves a grave, its generation and heartbeat: news that are not
newer are refused. Gossip about a dead node ends at half of `forget_after`, so that when it is forgotten nobody is left
who speaks of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from .bounds import MAX_GRAVES, MAX_NODES, MAX_NUMBER
from .messages import NodeDigest
from .phi import Arrivals
from .replica import Replica

THRESHOLD: Final = 8.0
STALLED: Final = 5
"""Heartbeats without progress with which a node is not taken for live when it is first heard of."""
LEFT_KEY: Final = "left"
FORGET_KEY: Final = "forget."


class State(StrEnum):
    LIVE = "live"
    SUSPECTED = "suspected"
    DEAD = "dead"
    LEFT = "left"


class Change(NamedTuple):
    """A node came, went, or is judged otherwise; None: it is not known."""

    node: str
    before: State | None
    after: State | None
    reason: str


@dataclass(frozen=True)
class Timing:
    """In seconds, but for `dead_after`."""

    interval: float = 1.0
    """Between two heartbeats, and two rounds of gossip."""
    dead_after: float = 5.0
    """Intervals for which a node is suspected before it is dead."""
    forget_after: float = 86400.0
    tombstone_life: float = 3600.0


@dataclass(slots=True)
class Member:
    replica: Replica
    state: State
    since: float
    """When this state began."""
    last_progress: float
    last_heartbeat: float
    reason: str
    arrivals: Arrivals = field(default_factory=Arrivals)

    def quiet_since(self) -> float:
        return max(self.since, self.last_heartbeat)


class Roster:
    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self.members: dict[str, Member] = {}
        self.graves: dict[str, tuple[int, int, float]] = {}
        """Generation and heartbeat up to which news are old, and when the grave was made; oldest first."""
        self.changes: list[Change] = []
        self.refused = 0
        """Nodes that were not taken because there were too many."""

    def hear(self, news: NodeDigest, direct: bool, now: float) -> None:
        """What somebody knows of a node; `direct`: the node itself said so."""
        member = self.members.get(news.node)
        if member is not None and news.generation == member.replica.generation:
            self._update(member, news, direct, now)
        elif member is None or news.generation > member.replica.generation:
            self._add(news, direct, now)

    def _add(self, news: NodeDigest, direct: bool, now: float) -> None:
        before = self.members.get(news.node)
        if self._is_buried(news) or (before is None and not self._make_room(now)):
            return
        fresh = direct and news.heartbeat - news.progress < STALLED
        state = State.LIVE if fresh else State.SUSPECTED
        reason = "joined" if before is None else "restarted"
        replica = Replica(news.node, news.generation, news.heartbeat, news.progress)
        self.members[news.node] = Member(replica, state, now, now, now, reason)
        self.changes.append(Change(news.node, before.state if before else None, state, reason))

    def _update(self, member: Member, news: NodeDigest, direct: bool, now: float) -> None:
        replica = member.replica
        replica.note_collected(news.collected)
        if news.heartbeat <= replica.heartbeat:
            return
        replica.heartbeat = news.heartbeat
        member.last_heartbeat = now
        if news.progress <= replica.progress:
            return
        replica.progress = news.progress
        silence = (now - member.last_progress) / self._timing.interval
        member.last_progress = now
        if member.state == State.DEAD:
            member.arrivals = Arrivals()
            self._move(member, State.LIVE if direct else State.SUSPECTED, "back", now)
        elif member.state != State.LEFT:
            member.arrivals.add(silence)
            self._move(member, State.LIVE, "progress", now)

    def mark_left(self, member: Member, now: float) -> None:
        self._move(member, State.LEFT, "left", now)

    def phi(self, member: Member, now: float, patience: int) -> float:
        return member.arrivals.phi((now - member.last_progress) / self._timing.interval / patience)

    def excuse(self, missed: float, now: float) -> None:
        """We did not run for so long: that counts against nobody."""
        for member in self.members.values():
            member.last_progress = min(now, member.last_progress + missed)
            if member.state == State.SUSPECTED:
                member.since = min(now, member.since + missed)

    def judge(self, now: float, patience: int, forgotten: dict[str, int]) -> None:
        """Move everybody whose time has come. `forgotten`: the generations that operators want forgotten, by node."""
        timing = self._timing
        for node, member in list(self.members.items()):
            if member.state in (State.LIVE, State.SUSPECTED):
                if self.phi(member, now, patience) < THRESHOLD:
                    continue
                if member.state == State.LIVE:
                    stalled = member.last_heartbeat - member.last_progress > 2 * timing.interval
                    self._move(member, State.SUSPECTED, "stalled" if stalled else "silent", now)
                elif now - member.since >= timing.dead_after * timing.interval * patience:
                    self._move(member, State.DEAD, member.reason, now)
            elif forgotten.get(node, -1) >= member.replica.generation:
                self.bury(node, MAX_NUMBER, now)
            elif now - member.quiet_since() >= timing.forget_after:
                self.bury(node, member.replica.heartbeat, now)
        over = [node for node, grave in self.graves.items() if now - grave[2] >= timing.forget_after]
        for node in over:
            del self.graves[node]

    def bury(self, node: str, heartbeat: int, now: float) -> None:
        member = self.members.pop(node)
        self.graves.pop(node, None)
        self.graves[node] = (member.replica.generation, heartbeat, now)
        if len(self.graves) > MAX_GRAVES:
            del self.graves[next(iter(self.graves))]
        self.changes.append(Change(node, member.state, None, "forgotten"))

    def gossiped(self, now: float) -> Iterator[Replica]:
        """Those of whom others are told."""
        for member in self.members.values():
            gone = member.state in (State.DEAD, State.LEFT)
            if not gone or now - member.quiet_since() < self._timing.forget_after / 2:
                yield member.replica

    def _is_buried(self, news: NodeDigest) -> bool:
        grave = self.graves.get(news.node)
        return grave is not None and (news.generation, news.heartbeat) <= grave[:2]

    def _make_room(self, now: float) -> bool:
        if len(self.members) < MAX_NODES - 1:
            return True
        gone = [node for node, each in self.members.items() if each.state in (State.DEAD, State.LEFT)]
        if not gone:
            self.refused += 1
            return False
        node = min(gone, key=lambda each: self.members[each].quiet_since())
        self.bury(node, self.members[node].replica.heartbeat, now)
        return True

    def _move(self, member: Member, state: State, reason: str, now: float) -> None:
        if member.state != state:
            self.changes.append(Change(member.replica.node, member.state, state, reason))
            member.state, member.since, member.reason = state, now, reason
