"""A mirror's part for one store: how far it has come, what it holds, and how it gets and writes the rest.

Written to by a mirror's thread, and by its loop what came by MQTT.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from headwater.client import Message
from headwater.edge.comparing import Found, Range, compared, in_groups
from headwater.edge.copies import Copy, from_batch, from_message
from headwater.edge.held import Held
from headwater.edge.outputs import Output
from headwater.edge.state import State
from headwater.store.reader import Extent, Gone, StoreReader, Unreachable

GROUP: Final = 10_000
GROUP_SIZE: Final = 8 << 20
"""Messages, and bytes of them, that are written and committed together."""

log: Final = logging.getLogger("headwater.edge")


class MirrorError(Exception):
    """It cannot go on, or begin; the text says why."""


class Strand:
    """`label` stands with each copy: empty for the store that the mirror began with."""

    def __init__(self, reader: StoreReader, state: State, next: int, most_held: int, label: str = "") -> None:
        self.reader = reader
        self.state = state
        self.next = next
        """As the store said last."""
        self.held = Held(most_held)
        self.highest = 0
        """What has come by MQTT."""
        self.duplicate = state.duplicate
        self.is_asked = True
        """Whether the store answered last time."""
        self._label = label
        self._sees_all = True
        self._comparing: dict[int, Copy] = {}
        """What is being written, by another thread."""
        self._gone: list[tuple[int, int]] = []
        """What retention took: the last of some positions, and how many."""

    # ---- what comes by MQTT --------------------------------------------------------------------------------------

    def take(self, message: Message, position: int, has_room: bool) -> bool:
        """False: it is let go, since the store has it."""
        self.highest = max(self.highest, position)
        if position <= self.state.position or position in self.held or position in self._comparing:
            self.duplicate += 1
        elif not has_room:
            return False
        else:
            self.held.add(from_message(message, position, self._label))
        return True

    def begin_comparing(self, before: int) -> None:
        self.duplicate += len(self.held.take(self.state.position + 1))  # fetched while they were on their way
        self._comparing = self.held.take(before)

    def end_comparing(self) -> None:
        """What was not written is held again."""
        for copy in self._comparing.values():
            if copy.position > self.state.position:
                self.held.add(copy)
        self._comparing = {}

    # ---- in the mirror's thread ----------------------------------------------------------------------------------

    def ask(self) -> None:
        """How far the store goes. Raises Unreachable, Refused; MirrorError: it has gone back."""
        extent = self.reader.extent(self.state.filters, may_be_whole=self._sees_all)
        self._sees_all = extent.is_whole
        self.check(extent)

    def check(self, extent: Extent) -> None:
        """That what we have is still a part of what the store has."""
        if self.state.store != extent.store:
            raise MirrorError(
                f"the output is of store {self.state.store}, and this is {extent.store}; name another output"
            )
        if extent.is_whole and extent.next <= self.state.position:
            raise MirrorError(
                f"the store ends at {extent.next - 1}, and the output at {self.state.position}: the store has gone "
                "back, perhaps to a backup, and gives positions another meaning; name another output"
            )
        self.next = max(extent.next, self.state.position + 1)

    def write_all_before(
        self, before: int, output: Output, commit: Callable[[], None], is_cancelled: Callable[[], bool]
    ) -> None:
        self._gone = []
        start = self.state.position
        came = {position: copy for position, copy in self._comparing.items() if start < position < before}
        for group in in_groups(compared(came, start, before, self._ask), GROUP, GROUP_SIZE):
            self._write(group, output)
            commit()
            if is_cancelled():
                return
        if self.state.position < before - 1:
            self._advance(before - 1)
            commit()

    def tell_store(self, reader: str | None) -> None:
        if reader is not None:
            try:
                self.reader.commit(reader, self.state.position)
            except (Unreachable, Gone) as error:
                log.warning("cannot commit: %s", error)

    def _write(self, group: list[Found], output: Output) -> None:
        output.write([each.copy for each in group])
        recovered = sum(each.recovered for each in group)
        state = self.state
        self.state = state._replace(live=state.live + len(group) - recovered, recovered=state.recovered + recovered)
        self._advance(group[-1].copy.position)

    def _advance(self, position: int) -> None:
        """All up to there is written; what was lost counts from here on, so that a restart does not count it again."""
        lost = sum(count for last, count in self._gone if last <= position)
        self._gone = [each for each in self._gone if each[0] > position]
        self.state = self.state._replace(position=max(position, self.state.position), lost=self.state.lost + lost)

    def _ask(self, asked: Range) -> Iterator[Copy]:
        """What the store has in a range; what retention has taken from it is counted as lost."""
        after = asked.after
        while after + 1 < asked.before:
            try:
                for copy in heapq.merge(*map(partial(self._read, after, asked.before), self.state.filters)):
                    after = copy.position
                    yield copy
                return
            except Gone as gone:
                first = min(gone.first, asked.before)
                if first <= after + 1:
                    raise MirrorError(
                        f"the store says that {after + 1} is gone, and that {gone.first} is left"
                    ) from gone
                held = sum(after < each < first for each in self._comparing)
                self._gone.append((first - 1, first - 1 - after - held))
                after = first - 1

    def _read(self, after: int, before: int, filter: str) -> Iterator[Copy]:
        for batch in self.reader.read(f"{self.state.store}:{after}", before, topic=filter):
            yield from from_batch(batch, self._label)
