"""`bloom`: a node tells a summary of its filters (`interest.summary`) by epochs (`interest.sharing`).

Some three bytes a filter, however long its text is; a change costs the bits that it flips. A removal lingers before it
is told. Where the summary is resized, the next step is everything anew.
"""

from __future__ import annotations

from typing import Final

from headwater.interest.filter import Incompatible
from headwater.interest.sharing import LINGER, WHOLE, Announcer, Listener, digest
from headwater.interest.sizing import LINE_BYTES
from headwater.interest.summary import Summary
from headwater.interest.written import Reading, Writing
from headwater.peering.frames.frame import MAX_CHANGE, MAX_STATE, MalformedFrame
from headwater.peering.methods.method import Announcement, Hearing, Told, Unsure
from headwater.routing.feed import FILTER_ADDED, GROUP_ADDED, RouteChange

BLOOM: Final = "bloom"


class BloomAnnouncement(Announcement):
    """`seed` is for tests: a node takes one that nobody knows."""

    method = BLOOM

    def __init__(self, seed: int | None = None, linger: float = LINGER) -> None:
        self._announcer = Announcer(Summary(seed=seed), linger)

    def note(self, change: RouteChange, now: float) -> None:
        if change.kind in (FILTER_ADDED, GROUP_ADDED):
            self._announcer.add(change.filter)
        else:
            self._announcer.remove(change.filter, now)

    def due(self, now: float) -> list[Told]:
        told = [Told(Reading(each).kind == WHOLE, each) for each in self._announcer.changes(now)]
        self.is_too_large = self._announcer.summary.lines.count * LINE_BYTES + MAX_CHANGE > MAX_STATE
        last_whole = max((at for at, each in enumerate(told) if each.is_whole), default=0)
        if any(len(each.data) > MAX_CHANGE and not each.is_whole for each in told):
            return [Told(True, self._announcer.whole())]
        return told[last_whole:]

    def whole(self) -> bytes:
        return self._announcer.whole()


class BloomHearing(Hearing):
    method = BLOOM

    def __init__(self) -> None:
        self._listener = Listener()
        self._parts = bytearray()

    def take(self, told: Told) -> list[str] | None:
        data = told.data
        if told.has_more or self._parts:  # to read it does not take long
            self._parts += data
            if told.has_more:
                return None
            data = bytes(self._parts)
            self._parts = bytearray()
        try:
            if (Reading(data).kind == WHOLE) != told.is_whole:
                raise MalformedFrame("a summary that is not what its frame says")
            is_sure = self._listener.take(data)
        except Incompatible as error:
            raise MalformedFrame(str(error)) from None
        if not is_sure:
            raise Unsure
        return None

    def whole(self) -> bytes:
        """As its node has sent it, made again of what is here."""
        summary = self._listener.summary
        if summary is None:
            raise Unsure
        made = Writing(WHOLE)
        for number in (*self._listener.has, digest(summary.lines)):
            made.number(number)
        made.block(summary.encode())
        return made.done()

    def wants(self, topic: str) -> bool:
        return self._listener.may_match(topic)
