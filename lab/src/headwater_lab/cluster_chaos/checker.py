"""What must not be, where nodes may be no members for a while: then nobody owes them anything, nor they others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headwater_lab.chaos.checker import KINDS, Checker, Violation
from headwater_lab.chaos.claims import END
from headwater_lab.chaos.history import Event, History, Note
from headwater_lab.chaos.sessions import SLACK
from headwater_lab.chaos.spans import Span
from headwater_lab.cluster_chaos.world import home

CLUSTER_KINDS: Final = (*KINDS, "healing", "node")


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


class ClusterChecker(Checker):
    """`on_the_way`: seconds for which what a node has sent may be held back, by a link that is cut or a node that is
    stopped."""

    def __init__(self, history: History, on_the_way: float) -> None:
        super().__init__(history)
        self._on_the_way = SLACK + on_the_way
        self._apart: list[tuple[str, int, int]] = []
        parted: dict[str, int] = {}
        for place, event in enumerate(history.events):
            if isinstance(event, Parted):
                parted[event.node] = place
            elif isinstance(event, Rejoined):
                self._apart.append((event.node, parted.pop(event.node), place))
        self._apart += [(node, place, END) for node, place in parted.items()]

    def _is_short(self, note: Note) -> bool:
        """Whether it may have expired: an episode may take minutes, and what waits for a lazy client is old then."""
        return note.expiry is not None and note.expiry < self.events[-1].at - self.events[0].at + SLACK

    def _owed(self, note: Note, span: Span) -> Iterator[set[str]]:
        for clients in super()._owed(note, span):
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
        for expiry, span, place, event in self._expiring():
            waited = event.at - self.events[span.acknowledged].at
            text = f"message {event.message} came to {event.client} {waited:.1f} s after it was acknowledged"
            if event.left is not None and event.left > max(1.0, expiry - waited + self._on_the_way):
                yield Violation("expired", place, f"{text}, with {event.left} s left")
            is_late = waited > expiry + self._on_the_way and not event.dup
            if is_late and event.at - self.connection[place].at > SLACK:
                yield Violation("expired", place, f"{text}, and expires after {expiry} s")
