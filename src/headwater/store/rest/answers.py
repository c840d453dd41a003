"""Long answers, and the memory that they take until their callers have read them.

Theory. An answer is made in steps, each as large as is good for disk and processor; what is made and not yet taken by
the caller's socket waits in memory. Callers that stop reading would fill it. So the number of long answers is bounded,
for one address and in all; bytes that wait are counted, and while there are more than `memory` of them, no answer makes
its next step. Who holds them could keep everybody waiting then: an answer of which nothing was taken for `IMPATIENT`
seconds is cut off as soon as somebody waits for its memory. (Without anybody waiting it has the time of a socket that
does not read, see web/connection.py.)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from headwater.store.rest.gate import Refused
from headwater.web.addresses import network_of
from headwater.web.connection import ABORT

log = logging.getLogger("headwater.rest")

IMPATIENT: Final = 2.0
EXPECTED: Final = 4 << 20
"""Bytes that a step is taken to have until it is made: the most that it usually has."""
LOOK: Final = 0.02
"""Seconds between two looks for memory."""


class Answer:
    """One that goes on. `size`: bytes that wait for its caller."""

    def __init__(self, answers: Answers, address: str, abort: Callable[[], None] | None) -> None:
        self.size = 0
        self.moved_at = time.monotonic()
        self.source = 0
        """Bytes of messages from which its next steps are made; set by the thread that makes them."""
        self.is_sent = False
        """Whether what it holds waits for its caller, and not for us."""
        self.address = address
        self._answers = answers
        self._abort = abort

    def hold(self, size: int) -> None:
        """So many bytes have been made for it, and are to be taken. What they are made from is held, too: a block has
        up to 32 MiB."""
        self._count(size + self.source)
        self.is_sent = True
        self.moved_at = time.monotonic()

    def _count(self, size: int) -> None:
        self._answers.used += size - self.size
        self.size = size

    def note(self, source: int) -> None:
        """By the thread that makes its steps."""
        self.source = source

    def moved(self) -> None:
        """Its caller has taken something."""
        self.moved_at = time.monotonic()

    def has_room_ahead(self) -> bool:
        """Whether its next step may be made before this one is taken."""
        return self._answers.used * 2 < self._answers.most

    async def room(self) -> None:
        """Returns when its next step may be made; its caller has taken all others."""
        self._count(self.source)
        self.is_sent = False
        answers = self._answers
        while answers.used - self.size >= answers.most:
            answers.press()
            await asyncio.sleep(LOOK)
        self._count(self.source + min(EXPECTED, answers.most))

    def cut(self) -> None:
        log.info("an answer to %s was cut off: nothing of it was read, and others need the memory", self.address)
        self.moved_at = time.monotonic()  # once is enough
        if self._abort is not None:
            self._abort()


class Answers:
    """Those of one server; belongs to its loop."""

    def __init__(self, most: int, per_address: int, memory: int) -> None:
        self.most = memory
        self.used = 0
        self._most_streams = most
        self._per_address = per_address
        self._streams: Counter[str] = Counter()
        self._open: set[Answer] = set()

    def __len__(self) -> int:
        return len(self._open)

    @contextlib.contextmanager
    def stream(self, scope: Any) -> Iterator[Answer]:
        """One that may go on for any time. Raises Refused if there are as many as may be."""
        address = address_of(scope)
        if self._streams.total() >= self._most_streams:
            raise Refused(429, "too_many", f"there are {self._most_streams} streams and tails already")
        if self._streams[address] >= self._per_address:
            raise Refused(429, "too_many", f"there are {self._per_address} streams and tails for your address already")
        self._streams[address] += 1
        try:
            with self.whole(scope) as answer:
                yield answer
        finally:
            self._streams[address] -= 1
            if not self._streams[address]:
                del self._streams[address]

    @contextlib.contextmanager
    def whole(self, scope: Any) -> Iterator[Answer]:
        """One that has an end, and may be large."""
        answer = Answer(self, address_of(scope), scope.get(ABORT))
        self._open.add(answer)
        try:
            yield answer
        finally:
            answer.source = 0
            answer.hold(0)
            self._open.discard(answer)

    def press(self) -> None:
        """Somebody waits for memory: who has not moved for longest, and long enough, is cut off."""
        before = time.monotonic() - IMPATIENT
        stalled = [each for each in self._open if each.size and each.is_sent and each.moved_at < before]
        if stalled:
            min(stalled, key=lambda each: each.moved_at).cut()


def address_of(scope: Any) -> str:
    client = scope.get("client")
    return network_of(str(client[0])) if client else ""
