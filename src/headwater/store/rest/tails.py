"""Live tails: whoever watches reads from the store at its own pace, so that nothing is kept for it.

A tail is a position. When the store has more, its tails are woken and look for what they have not sent. At most one
look in PAUSE: a store that commits a thousand times a second would otherwise be asked as often by each.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from headwater.store.rest.gate import Refused
from headwater.store.store import Store

PAUSE: Final = 0.02
"""Seconds between two looks of a tail."""
QUIET: Final = 15.0
"""Seconds without a message after which a comment says that the tail is alive."""


class Tails:
    """Belongs to one event loop; the store may call from any thread."""

    def __init__(self, store: Store, most: int) -> None:
        self._store = store
        self._most = most
        self._events: set[asyncio.Event] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_told = False

    def __len__(self) -> int:
        return len(self._events)

    @contextlib.contextmanager
    def told(self, event: asyncio.Event) -> Iterator[None]:
        """The event is set whenever there may be more. Raises Refused if there are as many tails as may be."""
        if len(self._events) >= self._most:
            raise Refused(429, "too_many", f"there are {self._most} live tails already, as many as may be")
        if not self._events:
            self._loop = asyncio.get_running_loop()
            self._store.watch(self._tell)
        self._events.add(event)
        try:
            yield
        finally:
            self._events.discard(event)
            if not self._events:
                self._store.unwatch(self._tell)

    def wake(self) -> None:
        """All look whether there is more, or an end."""
        self._is_told = False
        for event in self._events:
            event.set()

    def _tell(self) -> None:
        """By the thread that writes."""
        loop = self._loop
        if loop is not None and not self._is_told:
            self._is_told = True
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self.wake)
