"""Is the history of one register linearizable: is there one order of its operations that explains all reads, and in
which no operation comes before one that was completed before it was invoked?

Theory. Wing and Gong's search, with Lowe's memory of states that were tried (those done, and the value). Each write
has a value of its own, which makes it short:

- a read of the present value that may come next is taken at once: it changes nothing;
- the value may change only when all its reads are done: it never comes back. So there is a choice only of the next
  write;
- a write without an answer may happen at any later time, or never: it counts only if somebody read it.

The problem is NP-complete in general, so the search is bounded, and says when it has not decided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from headwater_lab.check_broker.history import NEVER

BOUND: Final = 100_000
"""States."""


class RegisterOperation(NamedTuple):
    invoked: int
    completed: int
    value: int
    is_write: bool


class Decision(StrEnum):
    LINEARIZABLE = "linearizable"
    NOT_LINEARIZABLE = "not linearizable"
    NOT_DECIDED = "not decided"


def linearizable(operations: Sequence[RegisterOperation], bound: int = BOUND) -> Decision:
    """Of one register with value 0 at first. Values of writes differ."""
    return _Search(operations, bound).run()


class _Search:
    def __init__(self, operations: Sequence[RegisterOperation], bound: int) -> None:
        read = {each.value for each in operations if not each.is_write}
        self._operations = sorted(
            each for each in operations if not each.is_write or each.completed != NEVER or each.value in read
        )
        self._all = (1 << len(self._operations)) - 1
        self._reads = Counter(each.value for each in self._operations if not each.is_write)
        self._bound = bound

    def run(self) -> Decision:
        seen: set[tuple[int, int]] = set()
        start = self._absorb(0, 0)
        stack = [start]
        while stack:
            done, value = stack.pop()
            if done == self._all:
                return Decision.LINEARIZABLE
            if (done, value) in seen:
                continue
            if len(seen) >= self._bound:
                return Decision.NOT_DECIDED
            seen.add((done, value))
            if self._reads_left(done, value):
                continue
            writes = [place for place in self._next(done) if self._operations[place].is_write]
            # What must be over first is tried first, so pushed last.
            for place in sorted(writes, key=lambda place: -self._operations[place].completed):
                stack.append(self._absorb(done | 1 << place, self._operations[place].value))
        return Decision.NOT_LINEARIZABLE

    def _next(self, done: int) -> Iterator[int]:
        """Operations that may be the next: invoked before any that is not done was completed."""
        earliest = NEVER
        rest = ~done & self._all
        place = (rest & -rest).bit_length() - 1
        while place < len(self._operations) and place >= 0:
            operation = self._operations[place]
            if not done >> place & 1:
                if operation.invoked > earliest:
                    return
                earliest = min(earliest, operation.completed)
                yield place
            place += 1

    def _absorb(self, done: int, value: int) -> tuple[int, int]:
        """Take all reads of the present value that may come next."""
        while True:
            taken = 0
            for place in self._next(done):
                operation = self._operations[place]
                if not operation.is_write and operation.value == value:
                    taken |= 1 << place
            if not taken:
                return done, value
            done |= taken

    def _reads_left(self, done: int, value: int) -> bool:
        if not self._reads[value]:
            return False
        return any(
            not done >> place & 1 and not operation.is_write and operation.value == value
            for place, operation in enumerate(self._operations)
        )
