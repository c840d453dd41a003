"""The cloud application: everything that a delivery tier has stored, here too, each message once and in order.

    client = Client("edge.example")
    store = StoreReader("http://edge.example:8080")
    report = await mirror(client, store, FileOutput(Path("readings.ndjson")), Wishes(("site/#",)))

Theory. MQTT is quick but forgets: what came before the subscription, during a cut, or was too much for QoS 0. The store
forgets nothing until retention says so, but has to be asked. So a mirror subscribes, holds what comes, and at intervals
asks the store how far it has come; it gives MQTT a moment to bring what is still under way, compares by position
(comparing), fetches what is missing, writes all of it in order and commits. What it holds is bounded: beyond that, new
messages are let go, since the store has them. An unreachable store or broker only makes it wait.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeVar

from headwater.client import Client, Message, Properties
from headwater.client.errors import explain
from headwater.edge.comparing import Found, Range, compared, in_groups
from headwater.edge.copies import Copy, from_batch, from_message, place_of
from headwater.edge.held import Held
from headwater.edge.outputs import Output
from headwater.edge.state import State
from headwater.message import POSITION_PROPERTY
from headwater.store.reader import Gone, Refused, StoreReader, Unreachable

INTERVAL: Final = 1.0
GRACE: Final = 0.5
"""Seconds, at most, that MQTT gets to bring what the store has already."""
MOST_HELD: Final = 64 << 20
"""Bytes that are held between two comparisons."""
GROUP: Final = 10_000
GROUP_SIZE: Final = 8 << 20
"""Messages, and bytes of them, that are written and committed together."""
NO_RETAINED: Final = 2
FAILURE: Final = 0x80
FORBIDDEN: Final = 403

Result = TypeVar("Result")

log: Final = logging.getLogger("headwater.edge")


class MirrorError(Exception):
    """It cannot go on, or begin; the text says why."""


class Extent(NamedTuple):
    """What a store has for us: `first` ≤ position < `next`."""

    store: str
    first: int
    next: int


class Report(NamedTuple):
    """What there is and what became of it. `made`: messages that the store had for us, as far as we have come: those
    that came by MQTT (`live`), by REST only (`recovered`), and those that retention had removed before (`lost`; of
    these only positions are known, so that with a filter some may have been others' messages). `duplicate`: came
    again, and left out. `unplaced`: came without a position, and left out. `position`: up to here all is written.
    `behind`: positions that the store had beyond it when it was last asked."""

    store: str
    made: int
    live: int
    recovered: int
    duplicate: int
    lost: int
    unplaced: int
    position: int
    behind: int
    connected: bool

    @property
    def completeness(self) -> float:
        return 1.0 if self.made == 0 else (self.made - self.lost) / self.made


@dataclass(frozen=True)
class Wishes:
    """What to mirror and how. `start`: "first" is what is left of the store, "next" what comes from now on; only for
    an output without a state. `reader`: a name under which the store is told how far we have come, so that retention
    waits for us. `seconds`: how long, without end if None; with `until_complete` until all is here and for an
    `interval` nothing more has come."""

    filters: tuple[str, ...] = ("#",)
    qos: int = 0
    interval: float = INTERVAL
    start: Literal["first", "next"] = "first"
    reader: str | None = None
    seconds: float | None = None
    until_complete: bool = False
    most_held: int = MOST_HELD


DEFAULT: Final = Wishes()


async def mirror(
    client: Client,
    store: StoreReader,
    output: Output,
    wishes: Wishes = DEFAULT,
    watch: Callable[[Report], None] | None = None,
) -> Report:
    """Mirror with a client that is not connected yet, until it is as wished; `watch` is told after each comparison.

    Cancelled, it ends without a last comparison; what is written is right, and the next one goes on from there. Raises
    MirrorError, OutputError, OSError of the output, and what client and store raise when it is in vain to go on."""
    return await Mirror(client, store, output, wishes, watch).run()


class Mirror:
    """`run` once; `stop` makes it compare once more and end."""

    def __init__(
        self,
        client: Client,
        store: StoreReader,
        output: Output,
        wishes: Wishes = DEFAULT,
        watch: Callable[[Report], None] | None = None,
    ) -> None:
        self._client = client
        self._store = store
        self._output = output
        self._wishes = wishes
        self._watch = watch
        self._state = State("", wishes.filters, 0)
        self._held = Held(wishes.most_held)
        self._comparing: dict[int, Copy] = {}
        """What is being written, by another thread."""
        self._gone: list[tuple[int, int]] = []
        """What retention took: the last of some positions, and how many."""
        self._highest = 0
        self._duplicate = 0
        self._unplaced = 0
        self._next = 1
        self._wake = asyncio.Event()
        self._is_stopping = False
        self._is_cancelled = False
        self._sees_all = True

    def stop(self) -> None:
        self._is_stopping = True
        self._wake.set()

    def report(self) -> Report:
        state = self._state
        return Report(
            store=state.store,
            made=state.live + state.recovered + state.lost,
            live=state.live,
            recovered=state.recovered,
            duplicate=self._duplicate,
            lost=state.lost,
            unplaced=self._unplaced,
            position=state.position,
            behind=self._next - 1 - state.position,
            connected=self._client.is_connected,
        )

    async def run(self) -> Report:
        extent = await self._in_thread(self._extent)
        try:
            self._state = self._begin(self._output.resume(), extent)
            self._duplicate = self._state.duplicate
            self._next = extent.next
            await self._in_thread(self._tell_store)
            async with self._client as client:
                await self._subscribe(client)
                receiving = asyncio.ensure_future(self._take_all(client))
                try:
                    await self._compare_at_intervals(receiving)
                finally:
                    receiving.cancel()
                    await asyncio.wait([receiving])
        finally:
            self._output.close()
        return self.report()

    def _begin(self, state: State | None, extent: Extent) -> State:
        wishes = self._wishes
        if state is None:
            begin = extent.first if wishes.start == "first" else extent.next
            return State(extent.store, wishes.filters, begin - 1)
        self._state = state
        self._check(extent)
        if state.filters != wishes.filters:
            raise MirrorError(f"the output is of the filters {' '.join(state.filters)}; give these, or another output")
        return state

    def _check(self, extent: Extent) -> None:
        """That what we have is still a part of what the store has."""
        state = self._state
        if state.store != extent.store:
            raise MirrorError(f"the output is of store {state.store}, and this is {extent.store}; name another output")
        if self._sees_all and extent.next <= state.position:
            raise MirrorError(
                f"the store ends at {extent.next - 1}, and the output at {state.position}: the store has gone back, "
                "perhaps to a backup, and gives positions another meaning; name another output"
            )

    # ---- MQTT ----------------------------------------------------------------------------------------------------

    async def _subscribe(self, client: Client) -> None:
        asking = Properties(user_properties=[(POSITION_PROPERTY, "yes")])
        wishes = self._wishes
        granted = await client.subscribe(wishes.filters, qos=wishes.qos, retain_handling=NO_RETAINED, properties=asking)
        for filter, reason in zip(wishes.filters, granted, strict=True):
            if reason >= FAILURE:
                raise MirrorError(f"the broker refused to subscribe us to {filter}: {explain(reason, None)}")

    async def _take_all(self, client: Client) -> None:
        async for message in client.messages:
            self._take(message)

    def _take(self, message: Message) -> None:
        place = place_of(message)
        if place is None:
            self._unplaced += 1
            return
        store, position = place
        if store != self._state.store:
            raise MirrorError(f"the broker is of store {store}, REST of {self._state.store}; both must be of one node")
        self._highest = max(self._highest, position)
        if position <= self._state.position or position in self._held or position in self._comparing:
            self._duplicate += 1
        elif self._held.is_full:
            self._wake.set()  # the store has it
        else:
            self._held.add(from_message(message, position))

    # ---- comparing -----------------------------------------------------------------------------------------------

    async def _compare_at_intervals(self, receiving: asyncio.Future[None]) -> None:
        wishes = self._wishes
        end = None if wishes.seconds is None else time.monotonic() + wishes.seconds
        before = None
        while True:
            is_last = self._is_stopping or (end is not None and time.monotonic() >= end)
            is_compared = await self._compare_with_store()
            if self._watch is not None:
                self._watch(self.report())
            if is_last or (wishes.until_complete and is_compared and self._next == before):
                return
            before = self._next if is_compared else None
            await self._pause(receiving, end)

    async def _pause(self, receiving: asyncio.Future[None], end: float | None) -> None:
        """Until it is time to compare again; raises what ended the taking of messages."""
        seconds = self._wishes.interval
        if end is not None:
            seconds = max(0.0, min(seconds, end - time.monotonic()))
        waking = asyncio.ensure_future(self._wake.wait())
        waited: list[asyncio.Future[Any]] = [receiving, waking]
        await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        waking.cancel()
        if not self._is_stopping:
            self._wake.clear()
        if receiving.done():
            receiving.result()
            raise MirrorError("the client was disconnected by somebody else")

    async def _compare_with_store(self) -> bool:
        """Whether that was possible."""
        try:
            extent = await self._in_thread(self._extent)
            self._check(extent)
            self._next = max(extent.next, self._state.position + 1)
            await self._give_a_moment(self._next)
            self._duplicate += len(self._held.take(self._state.position + 1))  # fetched while they were on their way
            self._comparing = self._held.take(self._next)
            await self._in_thread(partial(self._write_all_before, self._next))
            return True
        except Unreachable as error:
            log.warning("%s; it is asked again", error)
            return False
        finally:
            for copy in self._comparing.values():
                if copy.position > self._state.position:
                    self._held.add(copy)
            self._comparing = {}

    async def _give_a_moment(self, before: int) -> None:
        """What was stored is delivered a little later."""
        until = time.monotonic() + min(GRACE, self._wishes.interval)
        while self._client.is_connected and self._highest < before - 1 and time.monotonic() < until:
            await asyncio.sleep(0.01)

    # ---- in another thread ---------------------------------------------------------------------------------------

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        """Whoever cancels this waits until the thread is at a good place to end: it writes what will be closed."""
        doing = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(doing)
        except asyncio.CancelledError:
            self._is_cancelled = True
            await asyncio.wait([doing])
            raise

    def _extent(self) -> Extent:
        """Who may not read everything is not told of the whole store, but of the topics that it may read."""
        if self._sees_all:
            try:
                status = self._store.status()
                return Extent(status["id"], status["first"], status["next"])
            except Refused as refused:
                if refused.status != FORBIDDEN:
                    raise
                self._sees_all = False
        topics = [topic for filter in self._wishes.filters for topic in self._store.topics(filter)]
        first = min((topic["first"] for topic in topics), default=1)
        last = max((topic["last"] for topic in topics), default=0)
        return Extent(self._store.store_id(), first, last + 1)

    def _write_all_before(self, before: int) -> None:
        start = self._state.position
        self._gone = []
        found = compared(self._comparing, start, before, self._ask)
        for group in in_groups(found, GROUP, GROUP_SIZE):
            self._write(group)
            self._commit()
            if self._is_cancelled:
                return
        if self._state.position < before - 1:
            self._advance(before - 1)
            self._commit()
        if self._state.position > start:
            self._tell_store()

    def _write(self, group: list[Found]) -> None:
        self._output.write([each.copy for each in group])
        recovered = sum(each.recovered for each in group)
        state = self._state
        self._state = state._replace(live=state.live + len(group) - recovered, recovered=state.recovered + recovered)
        self._advance(group[-1].copy.position)

    def _advance(self, position: int) -> None:
        """All up to there is written; what was lost counts from here on, so that a restart does not count it again."""
        lost = sum(count for last, count in self._gone if last <= position)
        self._gone = [each for each in self._gone if each[0] > position]
        self._state = self._state._replace(position=max(position, self._state.position), lost=self._state.lost + lost)

    def _commit(self) -> None:
        self._state = self._state._replace(duplicate=self._duplicate)
        self._output.commit(self._state)

    def _tell_store(self) -> None:
        if self._wishes.reader is not None:
            try:
                self._store.commit(self._wishes.reader, self._state.position)
            except (Unreachable, Gone) as error:
                log.warning("cannot commit: %s", error)

    def _ask(self, asked: Range) -> Iterator[Copy]:
        """What the store has in a range; what retention has taken from it is counted as lost."""
        after = asked.after
        while after + 1 < asked.before:
            try:
                for copy in heapq.merge(*map(partial(self._read, after, asked.before), self._wishes.filters)):
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
        for batch in self._store.read(f"{self._state.store}:{after}", before, topic=filter):
            yield from from_batch(batch)
