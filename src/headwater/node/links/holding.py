"""Who has which session: what this node knows, and how it tells others.

Others are told of a claim when it is on disk, so that it is true also after a crash. A node that has just been linked
is told of everything that is known, as fast as it reads; then it is informed, if this one is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from headwater.node.links.end import PeerEnd
from headwater.node.links.moves import MUCH
from headwater.node.plane.background import BackgroundTask
from headwater.node.plane.timers import Timer
from headwater.node.protocol.server import Server
from headwater.peering.retained.clock import Stamp
from headwater.peering.sessions import messages as said
from headwater.peering.sessions.holders import Holders
from headwater.peering.sessions.messages import Held, Holds, Move, Released
from headwater.session.session import Session

SESSIONS: Final = "sessions"
"""The service, as nodes name it."""
MOST_WAITING: Final = 1 << 20
"""Bytes that wait for a node's socket while it is told of all sessions."""
AGAIN: Final = 0.02
EACH: Final = 64
"""Bytes that a session counts with in a note, beside its client id."""


class Holding:
    """`tell` sends a note."""

    def __init__(self, server: Server, ends: dict[str, PeerEnd], tell: Callable[[str, said.Message], None]) -> None:
        self.server = server
        self.ends = ends
        self.tell = tell
        self.holders = Holders()
        self.told_all: set[str] = set()
        """Nodes that have told all that they have."""
        self._is_informed = False
        self._news: dict[str, Held | Move] = {}
        """What others are to be told: sessions and who has them, or that they have ended."""
        self._news_at: Timer | None = None

    @property
    def is_informed(self) -> bool:
        """Whether this node has heard who has which sessions: from all nodes, or from one that had. One that has just
        started has not."""
        if self._is_informed:
            return True
        silent = [end for end in self.ends.values() if end.peer not in self.told_all]
        self._is_informed = bool(self.ends) and not silent
        return not any(end.has_service(SESSIONS) for end in silent)

    def is_first(self) -> None:
        """Nobody is there who could know more: others are informed by this node."""
        self._is_informed = True

    def tell_soon(self, news: Held | Move) -> None:
        self._news[news.client_id] = news
        if self._news_at is None:
            self._news_at = self.server.timers.at(self.server.hot.now, self._tell_when_durable)

    def _tell_when_durable(self) -> None:
        """What others have heard is so also after a crash."""
        if self.server.journal is None:
            self._tell()
        else:
            self.server.journal.tell_when_durable(self._tell)

    def _tell(self) -> None:
        self._news_at = None
        portions = list(in_portions(self._news.values()))
        self._news.clear()
        for node in list(self.ends):
            for portion in portions:
                held = tuple(each for each in portion if isinstance(each, Held))
                ended = tuple(each for each in portion if isinstance(each, Move))
                if held:
                    self.tell(node, Holds(held))
                if ended:
                    self.tell(node, Released(ended))

    def tell_everything(self, node: str) -> None:
        """To one that has just been linked."""
        held = [held_by(each) for each in self.server.sessions.values() if each.claim_time]
        held += self.holders
        self.server.background.add(_Telling(self, node, held))

    def told(self, node: str, holds: Holds) -> None:
        for held in holds.sessions:
            self.holders.tell(held)
        if holds.is_all:
            self.told_all.add(node)
            self._is_informed = holds.is_informed or self.is_informed

    def forget(self, node: str) -> None:
        self.holders.forget(node)
        self.told_all.discard(node)


class _Telling(BackgroundTask):
    def __init__(self, holding: Holding, node: str, held: list[Held]) -> None:
        self.holding = holding
        self.portions = list(in_portions(held))
        self.is_informed = holding.is_informed
        self.end = holding.ends[node]
        self.channel = self.end.channel

    def piece(self) -> bool:
        end, channel, server = self.end, self.channel, self.holding.server
        if channel is None or end.channel is not channel:
            return False  # when there is a link again, all is told again
        if channel.backlog_size > MOST_WAITING:
            server.timers.at(server.hot.now + AGAIN, lambda: server.background.add(self))
            return False
        some = self.portions.pop() if self.portions else []
        is_last = not self.portions
        held = tuple(each for each in some if isinstance(each, Held))
        self.holding.tell(end.peer, Holds(held, is_last, is_last and self.is_informed))
        return not is_last


def claim_of(session: Session | None) -> Stamp:
    return Stamp(0, "") if session is None else Stamp(session.claim_time, session.claim_node)


def served_by(session: Session) -> Stamp:
    """The claim by which its client was served last; its time is 0 if it never was."""
    return Stamp(session.served_time, session.served_node)


def held_by(session: Session) -> Held:
    """By its latest claim."""
    return Held(session.client_id, claim_of(session), session.expiry_interval > 0)


def in_portions(news: Iterable[Held | Move]) -> Iterator[list[Held | Move]]:
    """Each small enough for a note."""
    some: list[Held | Move] = []
    size = 0
    for each in news:
        some.append(each)
        size += EACH + 4 * len(each.client_id)
        if size > MUCH:
            yield some
            some, size = [], 0
    if some:
        yield some
