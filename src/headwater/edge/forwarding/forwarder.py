"""A forward at work: reads a store, sends to another broker, and remembers what the target has.

Theory. What goes next is decided by the lanes (lanes.py). Here it is done, in rounds: take what was answered, read what
is new, choose what goes, bring to disk what has to be there first, and send. What has to be on disk first depends on
the QoS.

QoS 1: nothing. Progress is saved from time to time; after a crash what was sent since the last time goes again, so the
target gets each message at least once.

QoS 2: each message goes under a packet id that is on disk with its position before it is sent, and PUBREL leaves only
when it is on disk that PUBREC came. So whenever this process is killed, the next one knows of each id whether the
target may hold it (then it goes again under that id, and the target, if it has kept the session, knows it) or has the
message for good (then only PUBREL goes again). A target that keeps its side of the session over its own crashes gets
each message exactly once. A round's ids go to disk together, so it costs one sync a round, however many messages that
are.

    chosen ──► ids on disk ──► PUBLISH ··► PUBREC ──► on disk: it is the target's ──► PUBREL ··► PUBCOMP: the id is free

The reader of the store is committed behind all that is saved, so retention does not remove what is owed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from headwater.client import Client, MqttError, Publish, Rejected
from headwater.disk.crash_points import crash_point
from headwater.disk.errors import StorageError
from headwater.edge.forwarding.beginning import begin
from headwater.edge.forwarding.lanes import Item, Lanes
from headwater.edge.forwarding.pace import Pace
from headwater.edge.forwarding.progress import ProgressFile
from headwater.edge.forwarding.reading import Reading, clock
from headwater.edge.forwarding.refusals import FOR_GOOD, LONGEST_WAIT, DeadLetters, GivenUp, wait
from headwater.edge.forwarding.source import Source
from headwater.edge.forwarding.wishes import Classes, Counts, Wishes
from headwater.store.entry import Entry
from headwater.store.store import PositionGone

MOST_AT_ONCE: Final = 128
"""Messages that are sent in a round: others have their turn between."""
SAVE_EVERY: Final = 0.25
"""Seconds, with QoS 1, after which what was acknowledged is on disk."""
COMMIT_EVERY: Final = 1.0
LAST_WORDS: Final = 2.0
"""Seconds for what is under way when the forward is stopped, and to part from the target."""
COMPLAIN_EVERY: Final = 60.0
"""Seconds between two log lines about refusals."""
SHORTEST_NAP: Final = 0.001
LONGEST_NAP: Final = 1.0
MOST_RETAINED: Final = 65_536
"""Topics of which it is remembered which retained message went last."""
ANY_NUMBER: Final = 65_535

log: Final = logging.getLogger("headwater.forward")


class Target(NamedTuple):
    """Where messages go. `key` is another one for any other target. `make_client` is given what to call on a change of
    the connection. `convert` makes the packet for a message, or says in a word why it is not sent; its third argument
    says that a later message of the topic is retained already."""

    key: str
    make_client: Callable[[Callable[[MqttError | None], None]], Client]
    convert: Callable[[Entry, Client, bool], Publish | str]


class Forwarder:
    """`run` it once."""

    def __init__(
        self,
        name: str,
        target: Target,
        wishes: Wishes,
        source: Source,
        file: ProgressFile,
        counts: Counts,
        letters: DeadLetters,
    ) -> None:
        self.name = name
        self.counts = counts
        self.error = "not connected yet"
        self.lanes: Lanes | None = None
        """None: it has not begun."""
        self.has_begun = asyncio.Event()
        """It is known, and on disk, from where on it forwards; or that failed."""
        self._reading: Reading | None = None
        self._target = target
        self._wishes = wishes
        self._source = source
        self._file = file
        self._letters = letters
        self._loop = asyncio.get_running_loop()
        self._client = target.make_client(self._changed)
        self._wake = asyncio.Event()
        self._was_up = False
        self._has_been_up = False
        self._was_behind = False
        self._answers: list[tuple[Item, asyncio.Future[int]]] = []
        self._flying: set[Item] = set()
        self._given_up: list[tuple[Item, GivenUp]] = []
        self._free: deque[int] = deque()
        """Packet ids for QoS 2."""
        self._to_release: list[int] = []
        self._retained: dict[str, int] = {}
        """Where the last retained message of a topic was that went as live."""
        self._saved_at = 0.0
        self._saved_position = -1
        self._committed = -1
        self._complained_at = float("-inf")

    # ---- what can be seen ----------------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        return self._client.is_connected

    @property
    def behind(self) -> int:
        """Positions that may be owed."""
        return 0 if self.lanes is None else self.lanes.behind(self._source.next)

    @property
    def seconds_behind(self) -> float:
        since = None if self._reading is None else self._reading.since
        return 0.0 if since is None or not self.behind else max(0, clock() - since) / 1e6

    # ---- life ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled. Raises StorageError."""
        try:
            await self._run()
        finally:
            self.has_begun.set()

    async def _run(self) -> None:
        wishes = self._wishes
        pace = Pace(wishes.rate, wishes.rate_bytes, wishes.delay, wishes.bounds.most_bytes_under_way // 2)
        progress = await asyncio.to_thread(begin, self.name, self._file, self._source, wishes, self._target.key)
        lanes = self.lanes = Lanes(progress, Classes(wishes), wishes.bounds, pace)
        reading = self._reading = Reading(self.name, lanes, self._source, wishes, self.counts, self._wake.set)
        await self._go_on(lanes)
        self.has_begun.set()
        self._source.watch(self._told)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._client.connect())
                tasks.create_task(self._work(lanes, reading))
                tasks.create_task(self._look_after(lanes, reading))
        finally:
            self._source.unwatch(self._told)
            await self._leave(lanes, reading)

    async def _go_on(self, lanes: Lanes) -> None:
        """With what may be under way, before anything else is sent."""
        progress = lanes.progress
        used = progress.sent.keys() | progress.releasing
        self._free.extend(each for each in range(1, self._wishes.bounds.most_under_way + 1) if each not in used)
        await self._save(lanes)
        for packet_id in sorted(progress.releasing):
            self._release(packet_id, lanes)
        sent = sorted(progress.sent.items(), key=lambda each: each[1])
        entries = await asyncio.to_thread(self._source.at_each, [span.position for _, span in sent])
        for packet_id, span in sent:
            entry = entries.get(span.position)
            packet = "" if entry is None else self._target.convert(entry, self._client, False)
            if entry is None or isinstance(packet, str) or self._wishes.qos != 2:
                del progress.sent[packet_id]
                progress.releasing.add(packet_id)
                self._release(packet_id, lanes)
                continue
            item = lanes.load(span, entry, self._loop.time())
            item.packet_id = packet_id
            self.counts.sent_again += 1
            self._submit(item, packet, is_again=True)

    async def _leave(self, lanes: Lanes, reading: Reading) -> None:
        await reading.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                while self._flying and self._client.is_connected:
                    self._wake.clear()
                    await self._wake.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                await self._client.disconnect()
        self._take_answers(lanes)
        try:
            await self._save(lanes)
            await self._commit()
        except StorageError as error:
            log.error("forward %r: %s; what went last goes again after the next start", self.name, error)
        if self._was_up:
            self._was_up = False
            log.info("forward %r is down: it was stopped", self.name)

    def _changed(self, error: MqttError | None) -> None:
        """A connection was made, or lost, or could not be made."""
        self.error = "" if error is None else str(error)
        is_up = error is None
        if is_up:
            if self._has_been_up:
                self.counts.sent_again += len(self._flying)
            self._has_been_up = True
            if self._reading is not None:
                self._reading.is_fresh = True
        if is_up != self._was_up:
            self._was_up = is_up
            if is_up:
                log.info("forward %r is up, %d positions behind", self.name, self.behind)
            else:
                log.warning("forward %r is down: %s", self.name, error)
        self._wake.set()

    def _told(self) -> None:
        """The store has more, or less; asked by any thread."""
        if not self._wake.is_set():
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake.set)

    # ---- rounds --------------------------------------------------------------------------------------------------

    async def _work(self, lanes: Lanes, reading: Reading) -> None:
        while True:
            self._wake.clear()
            self._take_answers(lanes)
            await self._bury(lanes)
            chosen: list[tuple[Item, Publish]] = []
            if self._client.is_connected:
                await reading.read_live()
                chosen = self._choose(lanes, reading)
                reading.read_backlog()
            await self._send(lanes, chosen)
            if len(chosen) >= MOST_AT_ONCE:
                await asyncio.sleep(0)
            else:
                await self._nap(lanes)

    async def _nap(self, lanes: Lanes) -> None:
        now = self._loop.time()
        until = [now + LONGEST_NAP]
        due = lanes.next_at(now)
        if due is not None and self._client.is_connected:
            until.append(due)
        if lanes.progress.is_changed:
            until.append(self._saved_at + SAVE_EVERY)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(SHORTEST_NAP, min(until) - now)):
                await self._wake.wait()

    def _choose(self, lanes: Lanes, reading: Reading) -> list[tuple[Item, Publish]]:
        chosen: list[tuple[Item, Publish]] = []
        client, now, wall = self._client, self._loop.time(), clock()
        window = client.server.receive_maximum or ANY_NUMBER
        while len(chosen) < MOST_AT_ONCE and (self._wishes.qos == 1 or self._free):
            item = lanes.next(now, wall, window)
            if item is None:
                break
            entry = item.entry
            is_replaced = item.is_backlog and entry.retain and self._retained.get(entry.topic, 0) > entry.position
            packet = self._target.convert(entry, client, is_replaced)
            if isinstance(packet, str):
                self.counts.skipped[packet] = self.counts.skipped.get(packet, 0) + 1
                lanes.settled(item, now, is_answer=False)
                continue
            if entry.retain and not item.is_backlog:
                self._remember_retained(entry, reading)
            if self._wishes.qos == 2:
                item.packet_id = self._free.popleft()
                lanes.progress.sent[item.packet_id] = item.span
            chosen.append((item, packet))
        return chosen

    def _remember_retained(self, entry: Entry, reading: Reading) -> None:
        if len(self._retained) >= MOST_RETAINED:
            self._retained.clear()
            reading.read_again()
        self._retained[entry.topic] = entry.position

    async def _send(self, lanes: Lanes, chosen: list[tuple[Item, Publish]]) -> None:
        releases, self._to_release = self._to_release, []
        is_due = lanes.progress.is_changed and self._loop.time() >= self._saved_at + SAVE_EVERY
        if is_due or releases or any(item.packet_id for item, _ in chosen):
            await self._save(lanes)
        for packet_id in releases:
            self._release(packet_id, lanes)
        if releases:
            crash_point("forward-after-release")
        if chosen:
            crash_point("forward-before-send")
        for item, packet in chosen:
            self._submit(item, packet)
        if chosen:
            crash_point("forward-after-send")

    def _submit(self, item: Item, packet: Publish, is_again: bool = False) -> None:
        self._flying.add(item)
        answer = self._client.submit(packet, packet_id=item.packet_id, is_again=is_again)
        answer.add_done_callback(partial(self._answered, item))

    def _answered(self, item: Item, answer: asyncio.Future[int]) -> None:
        self._flying.discard(item)
        self._answers.append((item, answer))
        self._wake.set()

    # ---- answers -------------------------------------------------------------------------------------------------

    def _take_answers(self, lanes: Lanes) -> None:
        answers, self._answers = self._answers, []
        now = self._loop.time()
        for item, answer in answers:
            if answer.cancelled():
                continue
            error = answer.exception()
            if isinstance(error, Rejected):
                self._refused(lanes, item, error, now)
            elif error is None:
                self.counts.forwarded += 1
                self.counts.bytes_forwarded += len(item.entry.payload)
                lanes.settled(item, now)
                if item.packet_id:
                    del lanes.progress.sent[item.packet_id]
                    lanes.progress.releasing.add(item.packet_id)
                    self._to_release.append(item.packet_id)
        if answers:
            crash_point("forward-after-answer")

    def _release(self, packet_id: int, lanes: Lanes) -> None:
        with contextlib.suppress(MqttError):  # it was left; the next process does it
            self._client.release(packet_id).add_done_callback(partial(self._released, packet_id, lanes))

    def _released(self, packet_id: int, lanes: Lanes, answer: asyncio.Future[int]) -> None:
        if not answer.cancelled() and answer.exception() is None:
            lanes.progress.releasing.discard(packet_id)
            if packet_id <= self._wishes.bounds.most_under_way:
                self._free.append(packet_id)
            self._wake.set()

    def _refused(self, lanes: Lanes, item: Item, error: Rejected, now: float) -> None:
        self.counts.refused += 1
        reason = error.reason or 0
        if item.packet_id:
            del lanes.progress.sent[item.packet_id]
            self._free.append(item.packet_id)
            item.packet_id = 0
        if item.attempts == 0:
            item.first_refused = now
        item.attempts += 1
        is_final = reason in FOR_GOOD or now - item.first_refused >= self._wishes.retry_for
        if now >= self._complained_at + COMPLAIN_EVERY:
            self._complained_at = now
            what = "given up" if is_final else "sent again later"
            where = f"{self._source.id}:{item.span.position}, to {item.entry.topic[:200]!r}"
            log.warning("forward %r: message %s, is %s: %s", self.name, where, what, error)
        if is_final:
            self._given_up.append((item, GivenUp(item.entry, reason, str(error))))
        else:
            lanes.park(item, now + wait(item.attempts))

    async def _bury(self, lanes: Lanes) -> None:
        """What is given up is written down before it is settled."""
        some, self._given_up = self._given_up, []
        if not some:
            return
        try:
            await asyncio.to_thread(self._letters.write, self._source.id, [letter for _, letter in some])
        except StorageError as error:
            log.error("forward %r: %s; what was given up is kept, and tried again", self.name, error)
            for item, _ in some:
                lanes.park(item, self._loop.time() + LONGEST_WAIT)
            return
        for item, _ in some:
            self.counts.given_up += 1
            lanes.settled(item, self._loop.time(), is_answer=False)

    # ---- the disk ------------------------------------------------------------------------------------------------

    async def _save(self, lanes: Lanes) -> None:
        progress = lanes.progress
        progress.is_changed = False
        position = progress.position
        await asyncio.to_thread(self._file.save, progress.written())
        self._saved_at = self._loop.time()
        self._saved_position = position

    async def _look_after(self, lanes: Lanes, reading: Reading) -> None:
        """Now and then."""
        while True:
            reading.look_for_lost()
            await self._commit()
            await reading.look_how_late()
            behind = self.behind
            if self._was_behind and not behind:
                log.info("forward %r: all that the store has is forwarded", self.name)
            self._was_behind = behind > 0 and (self._was_behind or behind > lanes.bounds.most_queued)
            await asyncio.sleep(COMMIT_EVERY)

    async def _commit(self) -> None:
        """The store may remove what is settled, as that is on disk here."""
        position = self._saved_position
        if position > self._committed:
            with contextlib.suppress(PositionGone):  # what was lost is counted first
                await asyncio.to_thread(self._source.commit, position)
                self._committed = position
