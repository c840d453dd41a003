"""Who is verified when. Passwords are computed by processes that give way (verifier.py), a few at a time.

Theory. Computing a password takes a thousand times as long as asking for it, so whoever floods us with wrong ones
always wins the queue. What can be given to others is a fair place in it:

- *Address by address.* Each has a queue of its own, and those that wait are served in turn: who comes first from an
  address waits for one of each other address at most, not for all that they have sent.
- *First those that have not failed.* An address that has shown a wrong password lately waits in the second row, and
  so does none from which this very user has come in lately. The second row gets one of four.
- *Bounded.* When all places are taken, the address with the most of them loses its newest (0x89, come again), which is
  the newcomer's own if it has most.
- *Cheap while it waits.* A place is an entry in a table, and neither a task nor a step of asyncio's loop until its turn
  has come; a newcomer that loses its place at once is answered at once. Otherwise a flood would make all others wait,
  not for what is computed, but for being lined up.

A password that was right is right for a while without computing it again, so that a crowd that lost its connections
costs each password once; what is remembered is a keyed hash with a key of this process, never the password.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import subprocess
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from headwater.node.access import verifier

log = logging.getLogger("headwater.access")

MAX_REMEMBERED: Final = 10_000
FIRST_ROW_AT_A_TIME: Final = 3
"""How many of the first row are served before one of the second is."""
ATTEMPTS: Final = 2
MOST_BY_DEFAULT: Final = 2
Value = TypeVar("Value")
Verdict = TypeVar("Verdict")


def threads_for(setting: int, cores: int) -> int:
    """How many verify at a time; a `setting` of 0 leaves one core to the broker. Where they have all cores, even
    processes of the lowest priority make others wait: they share caches and memory with the broker, and each time that
    it wakes up it has to take a core back."""
    return setting or max(1, min(cores - 1, MOST_BY_DEFAULT))


def _cores() -> int:
    """Those that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


class Overloaded(Exception):
    """As many verifications as allowed are under way, or were before others with fewer came."""


class Waiter(NamedTuple):
    """Who waits: from where, whether in the first row, and how to find out, before much is computed, that it does no
    longer. A client that is not read from until it is decided on can leave without a word."""

    network: str
    trusted: bool = True
    has_left: Callable[[], bool] = lambda: False


class Place:
    """One who waits, or whose work is being done. `judge` makes the answer of what the work has come to: it is given
    something that returns that or raises what the work has raised, or Overloaded."""

    def __init__(
        self,
        work: Callable[[], Any],
        waiter: Waiter,
        judge: Callable[[Callable[[], Any]], Any],
        answer: asyncio.Future[Any],
    ) -> None:
        self.work = work
        self.waiter = waiter
        self.judge = judge
        self.answer = answer

    def settle(self, computed: Callable[[], Any]) -> None:
        if self.answer.done():
            return  # nobody is there any more to look at it
        try:
            self.answer.set_result(self.judge(computed))
        except Exception as error:
            self.answer.set_exception(error)


def _turned_away() -> Any:
    raise Overloaded


class Row:
    """Those who wait, by address, each served in turn. Networks are also kept by how many of theirs wait, so that the
    longest queue is found without looking at all of them."""

    def __init__(self) -> None:
        self.queues: OrderedDict[str, deque[Place]] = OrderedDict()
        self.longest = 0
        self._by_length: dict[int, OrderedDict[str, None]] = {}

    def add(self, network: str, place: Place) -> None:
        queue = self.queues.setdefault(network, deque())
        queue.append(place)
        self._has(network, len(queue) - 1, len(queue))

    def next(self) -> Place:
        """The first of the queue whose turn it is; KeyError: nobody waits."""
        network, queue = self.queues.popitem(last=False)
        place = queue.popleft()
        self._has(network, len(queue) + 1, len(queue))
        if queue:
            self.queues[network] = queue
        return place

    def remove(self, network: str, place: Place) -> bool:
        queue = self.queues.get(network)
        if queue is None or place not in queue:
            return False
        queue.remove(place)
        self._has(network, len(queue) + 1, len(queue))
        if not queue:
            del self.queues[network]
        return True

    def shorten(self) -> Place:
        """Take the newest out of the longest queue."""
        network = next(reversed(self._by_length[self.longest]))
        place = self.queues[network][-1]
        self.remove(network, place)
        return place

    def _has(self, network: str, before: int, now: int) -> None:
        if before:
            del self._by_length[before][network]
            if not self._by_length[before]:
                del self._by_length[before]
        if now:
            self._by_length.setdefault(now, OrderedDict())[network] = None
        if now > self.longest or self.longest not in self._by_length:
            self.longest = now  # queues change by one: no other can be longer


class Verifying:
    """Used on the broker's loop alone. `threads` of 0: as many as suit the machine."""

    def __init__(self, threads: int, limit: int) -> None:
        self.threads = threads_for(threads, _cores())
        self.limit = limit
        self._running = 0
        self._waiting = 0
        self._rows = (Row(), Row())
        self._of_first = 0
        self._pool: ThreadPoolExecutor | None = None
        self._helpers = Helpers()

    @property
    def under_way(self) -> int:
        """Those that wait included."""
        return self._running + self._waiting

    def password(
        self, encoded: str, password: bytes, waiter: Waiter, judge: Callable[[Callable[[], bool]], Verdict]
    ) -> asyncio.Future[Verdict] | Verdict:
        """The verdict on whether it is the one with this hash, as of `run`."""
        verify = self._helpers.verify if verifier.is_slow(encoded) else verifier.verify
        return self.run(lambda: verify(encoded, password), waiter, judge)

    def run(
        self, work: Callable[[], Value], waiter: Waiter, judge: Callable[[Callable[[], Value]], Verdict]
    ) -> asyncio.Future[Verdict] | Verdict:
        """What `judge` makes of `work`, which is done by a thread when it is this address's turn, or of Overloaded:
        then it will not be done. To be cancelled if nobody waits for it any more."""
        answer: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        place = Place(work, waiter, judge, answer)
        if self._running < self.threads and not self._waiting:
            self._running += 1
            self._do(place)
        elif not self._line_up(place):
            return judge(_turned_away)
        return answer

    def _line_up(self, place: Place) -> bool:
        """False: all places are taken, and this one is the newest of those who have most."""
        row = self._rows[0 if place.waiter.trusted else 1]
        row.add(place.waiter.network, place)
        self._waiting += 1
        if self.under_way > self.limit:
            given_up = self._make_room()
            if given_up is place:
                return False
            given_up.settle(_turned_away)
        place.answer.add_done_callback(partial(self._left, row, place))
        return True

    def _make_room(self) -> Place:
        """Take the newest out of the longest queue; of the second row, if that has one as long."""
        first, second = self._rows
        self._waiting -= 1
        return (second if second.longest >= first.longest else first).shorten()

    def _left(self, row: Row, place: Place, answer: asyncio.Future[Any]) -> None:
        """Perhaps nobody waits for it any more. Work that has begun does not become any shorter by that."""
        if answer.cancelled() and row.remove(place.waiter.network, place):
            self._waiting -= 1

    def _do(self, place: Place) -> None:
        """It is its turn; `_finished` comes later, also if nothing is done."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="verify")
        try:
            done = asyncio.wrap_future(self._pool.submit(place.work))
        except RuntimeError:  # it has been stopped
            self._give_up(place)
        else:
            done.add_done_callback(partial(self._done, place))

    def _done(self, place: Place, done: asyncio.Future[Any]) -> None:
        if done.cancelled():
            place.answer.cancel()
        else:
            place.settle(done.result)
            done.exception()  # nobody may be there any more to look at it
        self._finished()

    def _give_up(self, place: Place) -> None:
        """Not now, but soon: when a crowd has hung up, others have their turn between any two of them."""
        place.settle(_turned_away)
        asyncio.get_running_loop().call_soon(self._finished)

    def _finished(self) -> None:
        """One less is running: whose turn is it?"""
        self._running -= 1
        while self._waiting and self._running < self.threads:
            self._waiting -= 1
            place = self._next()
            if place.answer.done():
                continue  # cancelled just now
            self._running += 1
            if place.waiter.has_left():
                self._give_up(place)
            else:
                self._do(place)

    def _next(self) -> Place:
        first, second = self._rows
        if first.queues and (not second.queues or self._of_first < FIRST_ROW_AT_A_TIME):
            self._of_first += 1
            return first.next()
        self._of_first = 0
        return second.next()

    def use(self, threads: int, limit: int) -> None:
        """Other bounds from now on; what is under way goes on."""
        threads = threads_for(threads, _cores())
        if threads != self.threads and self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None
        self.threads = self._helpers.most = threads
        self.limit = limit

    def stop(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
        self._helpers.stop()


class Helpers:
    """Processes that compute passwords, started when they are needed; used by threads, which wait for them."""

    def __init__(self) -> None:
        self.most = 1
        self._idle: deque[subprocess.Popen[bytes]] = deque()
        self._warned = False

    def verify(self, encoded: str, password: bytes) -> bool:
        question = verifier.question(encoded, password)
        for _ in range(ATTEMPTS):
            try:
                helper = self._helper()
            except OSError as error:
                if not self._warned:
                    self._warned = True
                    log.warning("passwords are computed in the broker itself: no process for it (%s)", error)
                return verifier.verify(encoded, password)
            assert helper.stdin is not None and helper.stdout is not None
            answer = b""
            with contextlib.suppress(OSError, ValueError):
                helper.stdin.write(question)
                helper.stdin.flush()
                answer = helper.stdout.read(1)
            if answer:
                self._idle.append(helper)
                if len(self._idle) > self.most:
                    _end(self._idle.popleft())
                return answer == verifier.RIGHT
            _end(helper)
        raise RuntimeError("the process that computes passwords has ended")

    def _helper(self) -> subprocess.Popen[bytes]:
        try:
            return self._idle.pop()
        except IndexError:
            words = [sys.executable or "python3", "-P", str(Path(verifier.__file__))]
            pipe = subprocess.PIPE
            return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)

    def stop(self) -> None:
        """End those that have nothing to do now, and the others when they are done."""
        self.most = 0
        while self._idle:
            _end(self._idle.pop())


def _end(helper: subprocess.Popen[bytes]) -> None:
    """It has no state: nothing is lost."""
    helper.kill()
    for pipe in (helper.stdin, helper.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    helper.wait()


class Standing:
    """Which addresses have shown something wrong lately, and from where users have come in: both only decide who is
    verified first. The oldest are forgotten."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._failed: OrderedDict[Hashable, float] = OrderedDict()
        self._succeeded: OrderedDict[Hashable, None] = OrderedDict()

    def failed(self, network: str, now: float) -> None:
        _remember(self._failed, network, now + self.seconds)

    def succeeded(self, network: str, user: str) -> None:
        _remember(self._succeeded, (network, user), None)

    def is_trusted(self, network: str, user: str, now: float) -> bool:
        return (network, user) in self._succeeded or self._failed.get(network, now) <= now


def _remember(table: OrderedDict[Hashable, Value], key: Hashable, value: Value) -> None:
    if len(table) >= MAX_REMEMBERED and key not in table:
        table.popitem(last=False)
    table[key] = value
    table.move_to_end(key)


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
