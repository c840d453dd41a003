"""The cloud application: everything that a delivery tier has stored, here too, each message once and in order.

    client = Client("edge.example")
    store = StoreReader("http://edge.example:8080")
    report = await mirror(client, store, FileOutput(Path("readings.ndjson")), Wishes(("site/#",)))

Theory. MQTT is quick but forgets: what came before the subscription, during a cut, or was too much for QoS 0. The store
forgets nothing until retention says so, but has to be asked. So a mirror subscribes, holds what comes, and at intervals
asks the store how far it has come; it gives MQTT a moment to bring what is still under way, compares by position
(comparing), fetches what is missing, writes all of it in order and commits. What it holds is bounded: beyond that, new
messages are let go, since the store has them. An unreachable store or broker only makes it wait.

An edge may have several stores, and topics move between them. The node that we know says which there are (EdgeReader);
each has a strand of its own (strand.py): what is held of it, and how far it is written. A store that has ended is not
asked any more once all of it is here. What a topic's new store has waits until all that its old one had is written, so
that no topic goes backwards.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeVar

from headwater.client import Client, Message, Properties
from headwater.client.errors import explain
from headwater.edge.copies import place_of
from headwater.edge.outputs import Output
from headwater.edge.state import State
from headwater.edge.strand import MirrorError, Strand
from headwater.message import POSITION_PROPERTY
from headwater.store.directory import Place
from headwater.store.edge_reader import EdgeReader, bounds_of
from headwater.store.reader import Extent, StoreReader, Unreachable

INTERVAL: Final = 1.0
GRACE: Final = 0.5
"""Seconds, at most, that MQTT gets to bring what the store has already."""
MOST_HELD: Final = 64 << 20
"""Bytes that are held between two comparisons."""
NO_RETAINED: Final = 2
FAILURE: Final = 0x80

Result = TypeVar("Result")

log: Final = logging.getLogger("headwater.edge")


class Report(NamedTuple):
    """What there is and what became of it. `made`: messages that the store had for us, as far as we have come: those
    that came by MQTT (`live`), by REST only (`recovered`), and those that retention had removed before (`lost`; of
    these only positions are known, so that with a filter some may have been others' messages). `duplicate`: came
    again, and left out. `unplaced`: came without a position, and left out. `position`: up to here all is written.
    `behind`: positions that the store had beyond it when it was last asked. If the edge has several stores, the counts
    are of all together, `store` and `position` of the one that the mirror began with, and `positions` of each."""

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
    positions: dict[str, int]

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
__all__ = ["DEFAULT", "Mirror", "MirrorError", "Report", "Wishes", "mirror"]


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
        self._edge = EdgeReader(store)
        self._output = output
        self._wishes = wishes
        self._watch = watch
        self._strands: dict[str, Strand] = {}
        """By the ids of stores; the first is of the store that the mirror began with. It is replaced as a whole."""
        self._unplaced = 0
        self._wake = asyncio.Event()
        self._is_stopping = False
        self._is_cancelled = False

    def stop(self) -> None:
        self._is_stopping = True
        self._wake.set()

    def report(self) -> Report:
        strands = list(self._strands.values())
        states = [each.state for each in strands]
        live, recovered, lost = (
            sum(found) for found in zip(*((s.live, s.recovered, s.lost) for s in states), strict=True)
        )
        return Report(
            store=states[0].store,
            made=live + recovered + lost,
            live=live,
            recovered=recovered,
            duplicate=sum(each.duplicate for each in strands),
            lost=lost,
            unplaced=self._unplaced,
            position=states[0].position,
            behind=sum(each.next - 1 - each.state.position for each in strands),
            connected=self._client.is_connected,
            positions={each.store: each.position for each in states},
        )

    async def run(self) -> Report:
        extent = await self._in_thread(partial(self._edge.home.extent, self._wishes.filters))
        try:
            await self._in_thread(partial(self._begin, self._output.resume(), extent))
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

    # ---- stores --------------------------------------------------------------------------------------------------

    def _begin(self, state: State | None, extent: Extent) -> None:
        wishes = self._wishes
        directory = self._edge.look()
        is_new = state is None
        if state is None:
            state = self._first_state(extent)
        self._strands = {state.store: self._strand(state, self._edge.home, extent.next)}
        if state.filters != wishes.filters:
            raise MirrorError(f"the output is of the filters {' '.join(state.filters)}; give these, or another output")
        if extent.store == state.store or self._edge.is_alone:
            self._strands[state.store].check(extent)
        elif state.store in directory.places:
            self._strands[state.store].reader = self._edge.reader(directory.places[state.store])
        else:
            raise MirrorError(f"the output is of store {state.store}, which is none of this edge; name another output")
        for each in state.others:
            self._add(each)
        for place in self._places() if is_new else ():
            if place.id not in self._strands:
                self._add(self._first_state(self._edge.reader(place).extent(wishes.filters)))
        for strand in self._strands.values():
            self._tell(strand)

    def _first_state(self, extent: Extent) -> State:
        begin = extent.first if self._wishes.start == "first" else extent.next
        return State(extent.store, self._wishes.filters, begin - 1)

    def _strand(self, state: State, reader: StoreReader, next: int, label: str = "") -> Strand:
        return Strand(reader, state._replace(others=()), next, self._wishes.most_held, label)

    def _add(self, state: State) -> None:
        """A store that is not the first. One that is at no address now is waited for."""
        place = self._edge.directory.places.get(state.store)
        if place is None:
            raise MirrorError(f"the output has messages of store {state.store}, which is none of this edge")
        strand = self._strand(state, self._edge.reader(place), state.position + 1, label=state.store)
        self._strands = {**self._strands, state.store: strand}

    def _places(self) -> list[Place]:
        """The stores that have anything for us."""
        found = {place.id: place for each in self._wishes.filters for place in self._edge.directory.holders(each)}
        return list(found.values())

    def _look(self) -> None:
        """A store that is new begins with its first message: it was not there when `start` was meant. Raises
        Unreachable."""
        self._edge.look()
        if self._edge.is_alone:
            return
        for place in self._places():
            if place.id not in self._strands:
                log.info("the store %s at %s belongs to the edge now", place.id, place.url or place.node)
                self._add(State(place.id, self._wishes.filters, 0))
                self._tell(self._strands[place.id])
            elif place.url:
                self._strands[place.id].reader = self._edge.reader(place)

    def _tell(self, strand: Strand) -> None:
        strand.tell_store(self._wishes.reader)

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
        strand = self._strands.get(store)
        if strand is None:
            if self._edge.is_alone:
                [own] = self._strands
                raise MirrorError(f"the broker is of store {store}, REST of {own}; both must be of one node")
            return  # a store of which we have not heard yet, and which has it
        is_full = sum(each.held.size for each in self._strands.values()) >= self._wishes.most_held
        if not strand.take(message, position, not is_full):
            self._wake.set()

    # ---- comparing -----------------------------------------------------------------------------------------------

    async def _compare_at_intervals(self, receiving: asyncio.Future[None]) -> None:
        wishes = self._wishes
        end = None if wishes.seconds is None else time.monotonic() + wishes.seconds
        before = None
        while True:
            is_last = self._is_stopping or (end is not None and time.monotonic() >= end)
            is_compared = await self._compare()
            if self._watch is not None:
                self._watch(self.report())
            ends = {id: each.next for id, each in self._strands.items()}
            if is_last or (wishes.until_complete and is_compared and ends == before):
                return
            before = ends if is_compared else None
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

    async def _compare(self) -> bool:
        """Whether that was possible, with every store that has not ended."""
        is_whole = await self._in_thread(self._ask_all)
        strands = [each for each in self._strands.values() if each.is_asked]
        await self._give_a_moment(strands)
        for strand in strands:
            strand.begin_comparing(strand.next)
        try:
            return await self._in_thread(partial(self._write_all, strands)) and is_whole
        finally:
            for strand in strands:
                strand.end_comparing()

    async def _give_a_moment(self, strands: list[Strand]) -> None:
        """What was stored is delivered a little later."""
        until = time.monotonic() + min(GRACE, self._wishes.interval)
        while self._client.is_connected and time.monotonic() < until:
            if all(each.highest >= each.next - 1 for each in strands):
                return
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

    def _ask_all(self) -> bool:
        """How far each store goes, and then the directory: it knows of every move that these ends are behind."""
        is_whole = True
        while True:
            for strand in self._strands.values():
                is_whole &= self._is_asked(strand)
            known = len(self._strands)
            try:
                self._look()
            except Unreachable as error:
                log.warning("%s; it is asked again", error)
                return False
            if len(self._strands) == known:
                return is_whole

    def _is_asked(self, strand: Strand) -> bool:
        """False: there is something to read, perhaps, and the store does not answer."""
        place = self._edge.directory.places.get(strand.state.store)
        if place is not None and place.ended is not None and strand.state.position >= place.ended:
            strand.is_asked = False  # it has ended, and all of it is here
            return True
        try:
            strand.ask()
        except Unreachable as error:
            log.warning("%s; it is asked again", error)
            strand.is_asked = False
            return False
        strand.is_asked = True
        return True

    def _write_all(self, strands: list[Strand]) -> bool:
        """What a topic's old store has comes before what its new one has; as a part of the one may have to come before
        a part of the other and the other way round, it takes some rounds."""
        now = self._edge.directory.withheld(time.time())
        ends = {each.state.store: min(each.next, now.get(each.state.store, each.next)) for each in strands}
        try:
            while not self._is_cancelled:
                done = {id: each.state.position for id, each in self._strands.items()}
                left = [each for each in strands if done[each.state.store] + 1 < ends[each.state.store]]
                bounds = bounds_of(self._edge.directory, done, [each.state.store for each in left])
                for strand in left:
                    before = min(ends[strand.state.store], bounds.get(strand.state.store, strand.next))
                    self._write_before(strand, before)
                if all(done[each.state.store] == each.state.position for each in left):
                    return not left
            return True
        except Unreachable as error:
            log.warning("%s; it is asked again", error)
            return False

    def _write_before(self, strand: Strand, before: int) -> None:
        start = strand.state.position
        if start + 1 < before and not self._is_cancelled:
            strand.write_all_before(before, self._output, self._commit, lambda: self._is_cancelled)
        if strand.state.position > start:
            self._tell(strand)

    def _commit(self) -> None:
        states = [each.state._replace(duplicate=each.duplicate) for each in self._strands.values()]
        self._output.commit(states[0]._replace(others=tuple(states[1:])))
