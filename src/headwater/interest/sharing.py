"""How brokers tell each other their summaries: everything once, then what has changed.

Theory. An `Announcer` numbers the states of its summary that others can have: epochs. A delta is the set of bits that
have flipped between two epochs; a listener applies it only to the epoch that it was made for, so that what it has is at
every moment exactly a state that the announcer has had. A lost, repeated or overtaken delta is seen by its numbers, and
a state whose digest does not match; the listener then says what it has, and gets what is missing of the
last deltas, or everything. When the announcer starts anew or its summary is resized, the next state is sent whole.

No false negatives: bits that a removal clears are needed by no filter that is there (`ledger`), and deltas are applied
in order, so no removal can undo what was added behind it. Before the first state, and from a gap to what mends it, a
listener knows nothing for sure and answers "maybe". And a removal waits for `linger` seconds before it is told: who
moves from one broker to another is wanted by both for a while rather than by neither, and who comes back costs nothing.
"""

from __future__ import annotations

import secrets
from collections import deque
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

from headwater.interest.filter import Incompatible
from headwater.interest.lines import Lines
from headwater.interest.shared_summary import SharedSummary, read_summary
from headwater.interest.sizing import LINE_BITS, LINE_BYTES
from headwater.interest.summary import Summary
from headwater.interest.written import Reading, Writing
from headwater.routing.topics import ANY_LEVELS

WHOLE: Final = "state"
DELTA: Final = "delta"
KEPT: Final = 64
"""Deltas that are kept for those who missed some."""
LINGER: Final = 5.0


class State(NamedTuple):
    """What a listener has."""

    incarnation: int
    epoch: int


NOTHING: Final = State(0, 0)


class Traffic(NamedTuple):
    """`changes` are filters that were added or removed."""

    changes: int
    deltas: int
    delta_bytes: int
    wholes: int
    whole_bytes: int


class Announcer:
    """A broker's own summary, told to others. Time is an argument, in seconds that never go back."""

    def __init__(self, summary: Summary, linger: float = LINGER) -> None:
        self.summary = summary
        self.linger = linger
        self._incarnation = secrets.randbits(62) + 1
        self._epoch = 1
        self._generation = summary.generation
        self._digest = digest(summary.lines)
        self._kinds = summary.kinds
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self._leaving: dict[str, deque[float]] = {}
        self._unsent: list[bytes] = []
        self._traffic = Traffic(0, 0, 0, 0, 0)
        summary.changed.clear()

    def add(self, filter: str) -> None:
        self._count(changes=1)
        waiting = self._leaving.get(filter)
        if waiting is None:
            self.summary.add(filter)
            return
        waiting.pop()
        if not waiting:
            del self._leaving[filter]

    def remove(self, filter: str, now: float) -> None:
        """To be told when it has lingered. It was added: that is for the caller to know."""
        self._count(changes=1)
        self._leaving.setdefault(filter, deque()).append(now)

    def changes(self, now: float) -> list[bytes]:
        """To be sent to every listener, in this order; nothing, if nothing has changed."""
        self._let_go(now)
        self._note()
        sent, self._unsent = self._unsent, []
        return sent

    def whole(self) -> bytes:
        """For a listener that has nothing. What it has then, others get by `changes`."""
        self._note()
        return self._state()

    def since(self, has: State) -> list[bytes]:
        """What a listener that has this lacks."""
        self._note()
        if has == State(self._incarnation, self._epoch):
            return []
        if has.incarnation == self._incarnation:
            missing = [delta for before, delta in self._kept if before >= has.epoch]
            if missing and self._epoch - len(missing) == has.epoch:
                return missing
        return [self._state()]

    @property
    def traffic(self) -> Traffic:
        return self._traffic

    def _let_go(self, now: float) -> None:
        due = now - self.linger
        for filter, waiting in list(self._leaving.items()):
            while waiting and waiting[0] <= due:
                waiting.popleft()
                self.summary.remove(filter)
            if not waiting:
                del self._leaving[filter]

    def _note(self) -> None:
        """Make the next epoch of what has changed, if anything has."""
        summary = self.summary
        if summary.generation != self._generation:
            self._generation = summary.generation
            self._digest = digest(summary.lines)
            self._kinds = summary.kinds
            summary.changed.clear()
            self._epoch += 1
            self._kept.clear()
            self._unsent.append(self._state())
            return
        flips, self._digest = _flips(summary, self._digest)
        if not flips and summary.kinds == self._kinds:
            return
        self._kinds = summary.kinds
        made = Writing(DELTA)
        for number in (self._incarnation, self._epoch, self._digest):
            made.number(number)
        made.runs(summary.kinds)
        made.number(len(flips))
        before = 0
        for at in flips:
            made.number(at - before)
            before = at
        delta = made.done()
        self._kept.append((self._epoch, delta))
        self._epoch += 1
        self._unsent.append(delta)
        self._count(deltas=1, delta_bytes=len(delta))

    def _state(self) -> bytes:
        made = Writing(WHOLE)
        for number in (self._incarnation, self._epoch, self._digest):
            made.number(number)
        made.block(self.summary.encode())
        whole = made.done()
        self._count(wholes=1, whole_bytes=len(whole))
        return whole

    def _count(self, **more: int) -> None:
        self._traffic = Traffic(*(had + more.get(name, 0) for name, had in self._traffic._asdict().items()))


class Listener:
    """Another broker's summary, as far as it has been heard of."""

    def __init__(self) -> None:
        self.has = NOTHING
        self.is_sure = False
        """Otherwise `since(has)` of the announcer is to be asked for."""
        self._summary: SharedSummary | None = None
        self._digest = 0

    def may_match(self, topic: str) -> bool:
        return not self.is_sure or self._summary is None or self._summary.may_match(topic)

    @property
    def summary(self) -> SharedSummary | None:
        return self._summary

    def take(self, message: bytes) -> bool:
        """What was received; whether all is well, which is `is_sure`. Raises Incompatible, and is then not sure."""
        try:
            self.is_sure = self._take(Reading(message))
        except Incompatible:
            self.is_sure = False
            raise
        return self.is_sure

    def _take(self, data: Reading) -> bool:
        incarnation, epoch, digest_of_it = data.number(), data.number(), data.number()
        if data.kind == WHOLE:
            if incarnation == self.has.incarnation and epoch < self.has.epoch:
                return self.is_sure  # it was overtaken
            summary = read_summary(Reading(data.block()))
            data.end()
            self._summary, self._digest = summary, digest(summary.lines)
            return self._is_now(State(incarnation, epoch), digest_of_it)
        if data.kind != DELTA:
            raise Incompatible(f"{data.kind!r} is not what a summary is shared by")
        if self._summary is None or incarnation != self.has.incarnation:
            return False
        if epoch < self.has.epoch:
            return self.is_sure  # it has this already
        if epoch > self.has.epoch:
            return False
        kinds = data.runs(ANY_LEVELS)
        if not kinds:
            raise Incompatible("malformed change of a summary")
        self._flip(data)
        data.end()
        self._summary.kinds = kinds
        self._summary.forget_answers()
        return self._is_now(State(incarnation, epoch + 1), digest_of_it)

    def _is_now(self, state: State, digest_of_it: int) -> bool:
        """Whether that is so; if not, everything is needed."""
        is_so = self._digest == digest_of_it
        self.has = state if is_so else NOTHING
        return is_so

    def _flip(self, data: Reading) -> None:
        assert self._summary is not None
        lines = self._summary.lines
        by_line: dict[int, int] = {}
        at = 0
        for _ in range(data.number()):
            at += data.number()
            number, bit = divmod(at, LINE_BITS)
            by_line[number] = by_line.get(number, 0) | 1 << bit
        if by_line and max(by_line) >= lines.count:
            raise Incompatible("a change of a summary is behind its end")
        for number, flipped in by_line.items():
            before = lines.line(number)
            after = (int.from_bytes(before, "little") ^ flipped).to_bytes(LINE_BYTES, "little")
            self._digest ^= _line_digest(number, before) ^ _line_digest(number, after)
            lines.put(number, after)


def digest(lines: Lines) -> int:
    """Of all lines; what a change does to it depends on the changed lines alone."""
    found = 0
    for number in range(lines.count):
        found ^= _line_digest(number, lines.line(number))
    return found


def _line_digest(number: int, line: bytes) -> int:
    found: int = xxh3_64_intdigest(line, number)
    return found >> 1


def _flips(summary: Summary, before: int) -> tuple[list[int], int]:
    """Bits that are not as they were, and the digest then."""
    found = []
    changed = before
    for number, was in sorted(summary.changed.items()):
        line = summary.lines.line(number)
        if line == was:
            continue
        changed ^= _line_digest(number, was) ^ _line_digest(number, line)
        flipped = int.from_bytes(was, "little") ^ int.from_bytes(line, "little")
        while flipped:
            lowest = flipped & -flipped
            found.append(number * LINE_BITS + lowest.bit_length() - 1)
            flipped ^= lowest
    summary.changed.clear()
    return found, changed
