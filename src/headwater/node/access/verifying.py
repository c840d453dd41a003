"""Passwords and tokens are verified by a few threads, so that the broker goes on meanwhile.

What waits is bounded: a crowd that comes at once is told to come again (0x89) instead of being kept for minutes. A
password that was right is right for a while without computing it again, so that a crowd that lost its connections
costs each password once; what is remembered is a keyed hash with a key of this process, never the password.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

MAX_REMEMBERED: Final = 10_000
Answer = TypeVar("Answer")


class Overloaded(Exception):
    """As many verifications as allowed are under way."""


class Verifying:
    def __init__(self, threads: int, limit: int) -> None:
        self.threads = threads
        self.limit = limit
        self.under_way = 0
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[], Answer]) -> Answer:
        """What `work` returns, done by a thread; Overloaded at once if too much is under way."""
        if self.under_way >= self.limit:
            raise Overloaded
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="verify")
        self.under_way += 1
        try:
            return await asyncio.wrap_future(self._pool.submit(work))
        finally:
            self.under_way -= 1

    def use(self, threads: int, limit: int) -> None:
        """Other bounds from now on; what is under way goes on."""
        if threads != self.threads and self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None
        self.threads = threads
        self.limit = limit

    def stop(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


class RecentSuccesses:
    """Passwords that were right not long ago."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._secret = os.urandom(32)
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def _mark(self, user: str, encoded: str, password: bytes) -> bytes:
        mark = hashlib.blake2b(key=self._secret)
        for part in (user.encode(), encoded.encode(), password):
            mark.update(len(part).to_bytes(8, "big") + part)
        return mark.digest()

    def knows(self, user: str, encoded: str, password: bytes, now: float) -> bool:
        return self.seconds > 0 and self._until.get(self._mark(user, encoded, password), now) > now

    def add(self, user: str, encoded: str, password: bytes, now: float) -> None:
        if self.seconds > 0:
            if len(self._until) >= MAX_REMEMBERED:
                self._until.popitem(last=False)
            mark = self._mark(user, encoded, password)
            self._until[mark] = now + self.seconds
            self._until.move_to_end(mark)

    def __len__(self) -> int:
        return len(self._until)
