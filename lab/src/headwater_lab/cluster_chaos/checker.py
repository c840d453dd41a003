"""What must not be in a cluster.

Theory. The rules are those of `headwater_lab.chaos.checker`, whatever node a client is at, with these differences:

- Nodes may be no members for a while: then nobody owes them anything, nor they others.
- Order is kept between clients that stay. A publisher that moves has published at two nodes, and messages of a session
  whose move a kill has interrupted may come before those that the old node still had.
- A will is due when the connection of an accepted CONNECT ended without DISCONNECT. It must come to the watchers at all
  nodes (else `wills_missing`), once (`wills_twice`). DISCONNECT calls it off; surely so if nothing was wrong with the
  cluster then and for `CALM` seconds after, because the node must tell the will's deputy (docs/cluster.md).
- A message that was sent once to a shared group must be received once. It may come again, to any member, if the
  connection of who had it ended before (members note ends in their order, roving.py), and not later than `ACKNOWLEDGED`
  seconds after it had been received: until then the acknowledgement, which is sent at once, may not have been read or
  not be on disk. All else is `group_twice`.
- A node that has just started, or cannot reach a session, may refuse a client, which then comes back.
- Retained messages are compared at the end: at all nodes the same (`retained_divergent`); and, if no clock jumped, not
  older than the last one acknowledged, since each topic has one writer.
- `stuck` is what does not go on though nothing is wrong: a cluster that does not heal, a client that cannot connect, a
  flight that does not end (episode.py has the limits).
- With a clock that jumps nothing is known of what expires.
- With `cluster.session_lost = "clean"` a client may begin anew, while something is wrong. What it was owed of QoS 1 it
  still is; of QoS 2 what it was sent may be dropped, and is not judged. If nodes were cut off from each other, or
  stopped, one of them may know an older session of the client: then it may get messages twice, and QoS 2 may be lost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headwater_lab.chaos.checker import KINDS, Checker, Violation
from headwater_lab.chaos.claims import END
from headwater_lab.chaos.draining import NEVER
from headwater_lab.chaos.history import (
    Connected,
    Connecting,
    Disconnected,
    Event,
    History,
    Leaving,
    Note,
    Received,
    Shown,
)
from headwater_lab.chaos.sessions import SLACK
from headwater_lab.chaos.spans import Span
from headwater_lab.cluster_chaos.world import home, stays

WILLS_TWICE: Final = "wills_twice"
WILLS_MISSING: Final = "wills_missing"
GROUP_TWICE: Final = "group_twice"
RETAINED: Final = "retained_divergent"
QOS2: Final = "qos2_twice"
STUCK: Final = "stuck"
SESSION: Final = "session"
CLUSTER_KINDS: Final = (*KINDS, QOS2, RETAINED, WILLS_TWICE, WILLS_MISSING, GROUP_TWICE, STUCK, "node")
CALM: Final = 1.0
ACKNOWLEDGED: Final = 5.0
COME_BACK_LATER: Final = ("refused with 0x88", "refused with 0x89", "refused with 0x03")
CLOCK: Final = "clock jumps"
KILL: Final = "kill -9"
TERMINATE: Final = "SIGTERM"
RESTART: Final = "rolling restart"
BEGINS: Final = "begins: "
DEATHS: Final = (KILL, TERMINATE, RESTART)
"""Faults in which nodes that live hear of each other: what they begin with."""


@dataclass(slots=True)
class Parted(Event):
    """A node is about to leave, or to be forgotten; nothing is under way."""

    node: str


@dataclass(slots=True)
class Rejoined(Event):
    """It is linked with all others again."""

    node: str


@dataclass(slots=True)
class Fault(Event):
    """Something was done to the cluster, or is over."""

    text: str

    def is_death(self) -> bool:
        return not self.text.startswith(BEGINS) or self.text.removeprefix(BEGINS).startswith(DEATHS)


@dataclass(slots=True)
class Calm(Event):
    """From here on nothing is wrong with the cluster, or it is over with that."""

    is_calm: bool


class ClusterChecker(Checker):
    """`on_the_way`: seconds for which what a node has sent may be held back, by a link that is cut or a node that is
    stopped. `may_begin_anew`: clients whose sessions cannot be reached."""

    def __init__(self, history: History, on_the_way: float, may_begin_anew: bool = False) -> None:
        super().__init__(history)
        self._may_begin_anew = may_begin_anew
        self._begun: dict[str, list[int]] = defaultdict(list)
        """Places at which clients were told that their sessions are gone."""
        self._fell_apart = any(isinstance(event, Fault) and not event.is_death() for event in history.events)
        if may_begin_anew:
            self._read_beginnings()
        self._on_the_way = SLACK + on_the_way
        self._clock_jumped = any(isinstance(event, Fault) and CLOCK in event.text for event in history.events)
        self._apart: list[tuple[str, int, int]] = []
        parted: dict[str, int] = {}
        for place, event in enumerate(history.events):
            if isinstance(event, Parted):
                parted[event.node] = place
            elif isinstance(event, Rejoined):
                self._apart.append((event.node, parted.pop(event.node), place))
        self._apart += [(node, place, END) for node, place in parted.items()]
        self._doubt_wills()

    def check(self) -> list[Violation]:
        found = [*super().check(), *self.group_twice()]
        if self._may_begin_anew:
            troubles = self._troubles()
            found = [each for each in found if each.kind != SESSION or not self._may_be_gone(each.place, troubles)]
        return found

    # ---- sessions that begin anew ------------------------------------------------------------------------------

    def _read_beginnings(self) -> None:
        """The first session of a client is none that begins anew. What one that is gone was owed comes to the next."""
        asked: dict[str, int] = {}
        leaving: dict[tuple[str, int], int] = {}
        known: set[str] = set()
        for place, event in enumerate(self.events):
            if isinstance(event, Connecting):
                asked[event.client] = place
            elif isinstance(event, Connected):
                if not event.present and event.client in known:
                    self._begun[event.client].append(place)
                    leaving[event.client, place] = asked[event.client]
                known.add(event.client)
        for client in self._begun:
            for claim in self.claims[client]:
                if claim.session_gone != END:
                    claim.leaving = min(claim.leaving, leaving[client, claim.session_gone])
                    claim.gone = claim.session_gone = END

    def _may_be_gone(self, place: int, troubles: list[tuple[float, float]]) -> bool:
        event = self.events[place]
        if not isinstance(event, Connected) or event.present or stays(event.client):
            return False
        # Whoever says nothing is told so again.
        is_silent = not self.claims[event.client] and self._begun[event.client][0] < place
        return is_silent or any(since <= event.at < until for since, until in troubles)

    def _is_in_doubt(self, client: str, place: int) -> bool:
        """Whether QoS 2 that was published there may be lost, or come twice, because the client began anew."""
        begun = self._begun.get(client, ())
        return any(self._fell_apart or place < each for each in begun)

    def _is_short(self, note: Note) -> bool:
        """Whether it may have expired: an episode may take minutes, and what waits for a lazy client is old then."""
        if note.expiry is None:
            return False
        return self._clock_jumped or note.expiry < self.events[-1].at - self.events[0].at + SLACK

    # ---- lost and doubled --------------------------------------------------------------------------------------

    def lost(self) -> Iterator[Violation]:
        for found in super().lost():
            if found.text.startswith("will "):
                found.kind = WILLS_MISSING
            yield found

    def doubled(self) -> Iterator[Violation]:
        for found in super().doubled():
            event = self.events[found.place]
            assert isinstance(event, Received)
            if self._fell_apart and event.client in self._begun:
                continue
            if self.history.notes[event.message].will:
                found.kind = WILLS_TWICE
            elif event.qos == 2:
                found.kind = QOS2
            yield found

    def reordered(self) -> Iterator[Violation]:
        for found in super().reordered():
            event = self.events[found.place]
            assert isinstance(event, Received)
            if stays(event.client) and stays(self.history.notes[event.message].publisher):
                yield found

    def odd(self) -> Iterator[Violation]:
        for found in super().odd():
            if f": {NEVER} " in found.text:
                found.kind = STUCK
            if not found.text.endswith(COME_BACK_LATER):
                yield found

    # ---- wills -------------------------------------------------------------------------------------------------

    def _doubt_wills(self) -> None:
        """Whether a will was called off is known only of a cluster in which nothing was wrong."""
        wills: dict[str, int] = {}
        left: dict[int, float] = {}
        troubles = self._troubles()
        for event in self.events:
            match event:
                case Leaving():
                    left[wills.get(event.client, 0)] = event.at
                case Connecting():
                    wills[event.client] = event.will
        for will, span in self.spans.items():
            if span.called_off and any(since < left[will] + CALM and left[will] < until for since, until in troubles):
                span.called_off = False

    def _troubles(self) -> list[tuple[float, float]]:
        """When something was wrong, from when to when."""
        found, since = [], self.events[0].at if self.events else 0.0
        is_calm = False
        for event in self.events:
            if isinstance(event, Calm) and event.is_calm != is_calm:
                is_calm = event.is_calm
                if is_calm:
                    found.append((since, event.at))
                else:
                    since = event.at
        return found if is_calm else [*found, (since, float("inf"))]

    # ---- groups ------------------------------------------------------------------------------------------------

    def group_twice(self) -> Iterator[Violation]:
        ends: dict[str, list[int]] = defaultdict(list)
        for place, event in enumerate(self.events):
            if isinstance(event, Disconnected):
                ends[event.client].append(place)
        for message, received in self.received.items():
            note = self.history.notes.get(message)
            if note is None or self.spans[message].times != 1:
                continue
            had: tuple[int, Received] | None = None
            for place, event in received:
                if self._group(event.client, note.topic) is None:
                    continue
                if had is not None and not self._may_come_again(had, place, ends[had[1].client]):
                    text = f"message {message} of {note.publisher} came to {event.client}"
                    yield Violation(GROUP_TWICE, place, f"{text}, and {had[1].client} had got it (event {had[0]})")
                had = place, event

    def _may_come_again(self, had: tuple[int, Received], place: int, ends: list[int]) -> bool:
        number = bisect_right(ends, had[0])
        if number == len(ends) or ends[number] > place:
            return False
        return self.events[ends[number]].at < had[1].at + ACKNOWLEDGED

    # ---- retained ----------------------------------------------------------------------------------------------

    def stale(self) -> Iterator[Violation]:
        """Of what was shown last at each node."""
        last = {event.client: place for place, event in enumerate(self.events) if isinstance(event, Shown)}
        shown = [event for event in (self.events[place] for place in last.values()) if isinstance(event, Shown)]
        for topic in sorted({topic for each in shown for topic in each.found}):
            found = {each.client: each.found.get(topic, 0) for each in shown}
            if len(set(found.values())) > 1:
                yield Violation(RETAINED, max(last.values()), f"{topic} differs: {found}")
        if not self._clock_jumped:
            for violation in super().stale():
                if violation.place in last.values():
                    violation.kind = RETAINED
                    yield violation

    # ---- nodes that are apart ----------------------------------------------------------------------------------

    def _owed(self, note: Note, span: Span) -> Iterator[set[str]]:
        for clients in super()._owed(note, span):
            if note.qos == 2 and any(self._is_in_doubt(each, span.sent) for each in (*clients, note.publisher)):
                continue
            if not any(self._were_apart(note, span, client) for client in clients):
                yield clients

    def _were_apart(self, note: Note, span: Span, client: str) -> bool:
        one, other = home(note.publisher), home(client)
        return one != other and any(
            node in (one, other) and span.sent < until and since < span.acknowledged
            for node, since, until in self._apart
        )

    def expired(self) -> Iterator[Violation]:
        """Time counts wherever a message waits, also for another node; not while it is on its way there."""
        if self._clock_jumped:
            return
        for expiry, span, place, event in self._expiring():
            waited = event.at - self.events[span.acknowledged].at
            text = f"message {event.message} came to {event.client} {waited:.1f} s after it was acknowledged"
            if event.left is not None and event.left > max(1.0, expiry - waited + self._on_the_way):
                yield Violation("expired", place, f"{text}, with {event.left} s left")
            is_late = waited > expiry + self._on_the_way and not event.dup
            if is_late and event.at - self.connection[place].at > SLACK:
                yield Violation("expired", place, f"{text}, and expires after {expiry} s")
