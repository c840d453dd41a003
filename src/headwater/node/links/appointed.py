"""The deputy of wills of this node's clients (wills.py has the theory): what it is to be told and asked, and knows."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from headwater.message import NEVER, Message
from headwater.node.links import will_notes as said
from headwater.node.persistence.records import record_of
from headwater.node.protocol.core import Core
from headwater.session.session import Session

SOME: Final = 1024
"""Wills that are told, or whose release is asked for, in one turn."""


class OwnWill:
    """One of a client of this node."""

    def __init__(self, stamp: int, client_id: str, deputy: str, session: Session | None) -> None:
        self.stamp = stamp
        self.client_id = client_id
        self.deputy = deputy
        """ "": there is none."""
        self.session = session
        """None: it is due, or void."""
        self.due: Message | None = None


class Deputy:
    """`note` sends to it."""

    def __init__(self, core: Core, node: str, note: Callable[[bytes], bool]) -> None:
        self.node = node
        self.epoch = 0
        """Of its link; 0: it is not linked."""
        self.is_ready = False
        """It is linked, and what it had settled before is known."""
        self.clean = -NEVER
        """When it was last known that all it had settled was known here."""
        self.lease = core.hot.now
        """Until when it may publish what it was told."""
        self.heard = core.hot.now
        """When its link ended, or this node started."""
        self.is_dismissed = False
        """It has no copies that could be published; until it is linked again."""
        self._core = core
        self._note = note
        self._untold: deque[OwnWill | None] = deque()
        """None: DONE."""
        self._unasked: list[int] = []
        """Stamps of wills that are due, and whose release is to be asked for."""

    def link_up(self, epoch: int, due: list[int]) -> None:
        self.epoch = epoch
        self.is_dismissed = False
        self._note(said.of_numbers(said.ASK, [epoch]))
        self._unasked = due
        self.send_some()

    def link_down(self) -> None:
        self.epoch, self.is_ready, self.heard = 0, False, self._core.hot.now
        self._untold.clear()
        self._unasked.clear()

    def ready(self, wills: list[OwnWill]) -> None:
        """What it has settled is known; these are all that it is to have."""
        self.is_ready = True
        self.clean = self._core.hot.now
        self._untold.extend(wills)
        self._untold.append(None)
        self.send_some()

    def renew(self, asked: float, seconds: float) -> None:
        """The lease: it counts from when the deputy asked, by its own clock."""
        now = self._core.hot.now
        if self.is_ready:
            self.clean = now
        self.lease = now + seconds
        self._note(said.of_time(said.PONG, asked + seconds))

    def tell(self, own: OwnWill) -> None:
        if self.is_ready:
            self._untold.append(own)
            if len(self._untold) == 1:
                self.send_some()

    def ask(self, own: OwnWill) -> None:
        """To let go of it."""
        if self.epoch:
            self._unasked.append(own.stamp)
            if len(self._unasked) == 1:  # at the end of the turn, all that are due
                self._core.timers.at(self._core.hot.now, self.send_some)

    def send_some(self) -> None:
        """As much as the link and this turn take."""
        while self._unasked and self._note(said.of_numbers(said.RELEASE, self._unasked[:SOME])):
            del self._unasked[:SOME]
        for _ in range(SOME):
            if not self._untold:
                return
            own = self._untold[0]
            body = said.of_numbers(said.DONE, [self.epoch]) if own is None else self._told(own)
            if body and not self._note(body):
                return  # until the next heartbeat
            self._untold.popleft()
        self._core.timers.at(self._core.hot.now, self.send_some)

    def _told(self, own: OwnWill) -> bytes:
        """ "": it has become void, or due, or is another one's."""
        session = own.session
        if session is None or session.will is None or own.deputy != self.node:
            return b""
        delay = min(session.will_delay, session.expiry_interval)
        left = -1.0 if session.will_at == NEVER else max(0.0, session.will_at - self._core.hot.now)
        expiry = -1.0 if session.will_expiry is None else float(session.will_expiry)
        record = record_of(session.will, time.time() - time.monotonic())
        return said.tell(said.Told(self.epoch, own.stamp, delay, left, expiry, own.client_id, record))
