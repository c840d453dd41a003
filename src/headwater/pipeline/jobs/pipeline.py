"""A pipeline that runs: the streaming query for bronze, and round after round the steps behind it.

Theory. Every step is safe to do again, so the runner has nothing to remember: it asks the stores for their clocks, then
each table how far it is, and does what is next. A step that fails is tried again in the next round; one that fails
again and again ends the pipeline with what it said, while everything that was committed stays.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from headwater.pipeline.jobs import accounts, bronze, landing, latest, live, operations, silver, windows
from headwater.pipeline.jobs.clocks import Answers, Clock, ask, clocks, slowest
from headwater.pipeline.jobs.ranges import remake_range
from headwater.pipeline.jobs.remaking import (
    ACCOUNTED,
    WINDOWED,
    ChangedSettings,
    Plan,
    Remaking,
    forget_plan,
    left,
    settled_plan,
)
from headwater.pipeline.jobs.settings import Settings
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.log import LakeError
from headwater.pipeline.lake.upkeep import LakeUpkeep
from headwater.pipeline.mqtt.supervisor import send_away
from headwater.pipeline.source.addresses import Addresses
from headwater.pipeline.source.progress import offsets
from headwater.pipeline.tables import BRONZE, SILVER
from headwater.store.reader import StoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MOST_FAILURES: Final = 5
"""In a row, of one step."""
BETWEEN_LOOKS: Final = 0.1
"""Seconds between two rounds that are to be the last ones."""
log = logging.getLogger(__name__)


class PipelineError(Exception):
    """The pipeline cannot go on; the text says why."""


@dataclass
class Round:
    """What is known after a round: for those who look. `lag` is messages that bronze has not got yet, by store; None:
    the store does not answer. `behind` is messages that are in bronze and not in silver yet."""

    lag: dict[str, int | None] = field(default_factory=dict)
    lag_seconds: float | None = None
    behind: int = 0
    rows: int = 0
    rate: float = 0.0
    final_until: datetime | None = None
    did: dict[str, int] = field(default_factory=dict)
    """Rows by step, of this round."""
    failed: dict[str, str] = field(default_factory=dict)
    """Steps of this round that will be tried again, with why."""

    @property
    def is_idle(self) -> bool:
        """Nothing was done, and nothing is left that could be done with what has landed."""
        return not self.did and not self.failed and not self.behind


class Pipeline:
    """Use it as a context: the lake is locked and the query runs in between. Without `landing`, there is no query:
    only what is behind bronze is made. By the plan `remake`, tables are made again meanwhile (`jobs.remaking`)."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        settings: Settings,
        *,
        landing: bool = True,
        remake: Plan | None = None,
        what: str = "pipeline run",
    ) -> None:
        self.spark = spark
        self.lake = lake
        self.settings = settings
        self.landing = landing
        self.what = what
        """For those who want to write as well."""
        self.remake = remake
        """What is left to be made again."""
        self.remaking: Remaking | None = None
        self.stopped = threading.Event()
        """Set it, from any thread or a signal's handler, and the round ends after its step."""
        self.hurry = False
        """Set it, and nothing is put off to spare the disk."""
        self.watchers: list[Callable[[Round], None]] = []
        """They are told of each round, by the thread that did it, and raise nothing."""
        self.rules = settings.rules()
        self.addresses = Addresses(settings.source())
        self.queries: list[StreamingQuery] = []
        self._silent: dict[str, str] = {}
        """Addresses at which no store has answered when they were asked last, and why."""
        self._passed: dict[str, int] = {}
        """Positions up to which the query has read each store, whether or not there was anything."""
        self._failures: dict[str, int] = {}
        self._tidied = time.monotonic()
        self._upkeep = LakeUpkeep(lake)
        self._paged = latest.paged_rows()
        self._latest_after = 0.0
        """Seconds by the monotonic clock before which `latest` is not written again."""
        self._last = (0, time.monotonic())
        self._locked = contextlib.ExitStack()

    def __enter__(self) -> Pipeline:
        self._locked.enter_context(self.lake.writing(self.what))
        try:
            self.lake.keep(self.settings.upkeep)
            self._plan()
            if self.landing:
                self._introduce()
            if self.landing:
                self.queries.append(bronze.start(self.spark, self.lake, self.settings))
            if self.landing and self.settings.live_broker:
                self.queries.append(live.start(self.spark, self.lake, self.settings))
            if self.settings.advise:
                operations.send(self.spark, self.lake, self.settings)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_landing()
        self._locked.close()

    def _plan(self) -> None:
        try:
            self.remake = settled_plan(self.lake, self.settings, self.remake)
        except ChangedSettings as error:
            raise PipelineError(str(error)) from None
        if self.remake is not None and self.remake.is_whole:
            self.remaking = Remaking(self.lake, self.settings, self.remake)

    def _introduce(self) -> None:
        """To the stores, under the lake's own name, and where it begins."""
        self.lake.forget_checkpoint("bronze")
        bare = self.settings.reader
        self.settings = landing.named(self.lake, self.settings)
        try:
            landing.take_over(self.lake, bare, self.settings)
            landing.begin(self.lake, self.settings)
        except StoreError as error:
            raise PipelineError(str(error)) from error

    @property
    def target(self) -> Lake:
        """Whose tables the steps fill: those that are made again are built beside those that are there."""
        return self.lake if self.remaking is None else self.remaking.beside

    def stop_landing(self) -> None:
        """A batch that is under way is finished by the next run."""
        try:
            self._pass()
            for query in self.queries:
                query.stop()
        except Exception:
            if not self.stopped.is_set():  # else Java has gone before us, and the queries with it
                raise
        if self.queries and self.settings.live_broker:
            send_away(live.spool(self.lake))
        self.queries.clear()

    # ---- rounds ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Round after round until it is `stopped`. Raises PipelineError."""
        while not self.stopped.is_set():
            began = time.monotonic()
            self.round()
            self.stopped.wait(max(0.0, self.settings.trigger - (time.monotonic() - began)))

    def round(self, asked: Answers | None = None) -> Round:
        """Everything that is to be done now, once; or was, when the stores gave these answers. Raises PipelineError."""
        try:
            return self._round(asked)
        except Exception as error:
            if not self.stopped.is_set():
                raise
            # Who ends a service sends a signal to all its processes: workers of Spark may go before we have ended.
            log.info("stopped in the middle of a step, which the next run does: %s", first_words(str(error)))
            return Round()

    def _round(self, asked: Answers | None) -> Round:
        self.lake.check()
        self._check_queries()
        found = Round()
        asked = self.ask() if asked is None else asked
        self._pass()  # before the tables are looked at: they have at least so much
        most = self.settings.most_rows
        for name, step in self._steps(asked, found):
            if self.stopped.is_set():
                break
            self._do(name, lambda step=step: step(most), found)  # type: ignore[misc]
        if time.monotonic() - self._tidied >= self.settings.tidy_every:
            self._do("tidy", self._tidy, found)
        self._measure(asked, found)
        for tell in self.watchers:
            tell(found)
        return found

    def ask(self) -> Answers:
        """The stores for their clocks."""
        self._silent = {}
        return ask(self.addresses, self._silent)

    def _steps(self, asked: Answers, found: Round) -> Iterator[tuple[str, Callable[[int], Any]]]:
        """In the order of the tables; those by windows of time only when the clocks allow it."""
        spark, lake, deriving = self.spark, self.target, self.settings.deriving
        if self.remake is not None and not self.remake.is_whole:
            yield "remake", lambda _: self._remake_range()
        yield "silver", lambda most: silver.step(spark, lake, self.rules, most)
        if self.hurry or time.monotonic() >= self._latest_after:
            yield "latest", self._latest
        decoded = slowest(self._clocks(asked, lake.snapshot(SILVER).positions(silver.JOB)))
        if self.remaking is not None:
            decoded = self.remaking.clock(WINDOWED, decoded)
        found.final_until = decoded
        if decoded is not None:
            yield "gold", lambda most: windows.gold_step(spark, lake, deriving, decoded, most)
            yield "late", lambda most: windows.late_step(spark, lake, deriving, decoded, most)
        landed = slowest(self._clocks(asked, lake.snapshot(BRONZE).positions(bronze.APP)))
        if self.remaking is not None:
            landed = self.remaking.clock(ACCOUNTED, landed)
        if landed is not None:
            yield "completeness", lambda most: accounts.completeness_step(spark, lake, landed, most)
            yield "traffic", lambda most: accounts.traffic_step(spark, lake, landed, most)
            yield "members", lambda most: operations.members_step(spark, lake, landed, most)
            if self.settings.advise:
                yield "advice", lambda _: operations.advice_step(spark, lake, self.settings)
        if self.remaking is not None:
            yield "remake", lambda _: self._take_place()

    def _take_place(self) -> int | None:
        """If all that is made again is whole, it is the tables from now on."""
        if self.remaking is None or not self.remaking.is_whole():
            return None
        self.remaking.take_place()
        log.info("made again: %s", ", ".join(self.remaking.plan.tables))
        done = len(self.remaking.tables)
        self.remaking = self.remake = None
        return done

    def _remake_range(self) -> int | None:
        """The next table of a plan for a range of time."""
        plan = self.remake
        if plan is None:
            return None
        tables = left(self.lake, plan)
        if tables:
            return remake_range(self.spark, self.lake, self.settings, self.rules, plan, tables[0])
        forget_plan(self.lake)
        self.remake = None
        return None

    def _clocks(self, asked: Answers, there: dict[str, int]) -> list[Clock]:
        """`there` is what a table has of each store. If it has all that bronze has, it has all that was read."""
        table = self.lake.snapshot(BRONZE)
        landed = table.positions(bronze.APP)
        passed = {id: last for id, last in self._passed.items() if there.get(id, 0) >= landed.get(id, 0)}
        has = {id: max(there.get(id, 0), passed.get(id, 0)) for id in {*there, *passed}}
        return clocks(table, has, asked, self.settings.without, self._silent)

    def _pass(self) -> None:
        for query in self.queries:
            if query.name == bronze.APP:
                self._passed |= offsets(query.lastProgress)

    def has_read(self, store: str, position: int) -> bool:
        """Whether nothing up to this position is left to land."""
        landed = self.lake.log(BRONZE).positions(bronze.APP)
        return max(landed.get(store, 0), self._passed.get(store, 0)) >= position

    def _do(self, name: str, step: Callable[[], Any], found: Round) -> None:
        try:
            done = step()
        except Exception as error:
            self._failures[name] = failures = self._failures.get(name, 0) + 1
            if failures >= MOST_FAILURES or isinstance(error, LakeError):
                raise PipelineError(f"{name}: {first_words(str(error))}") from error
            found.failed[name] = first_words(str(error))
            log.warning("%s failed (%d of %d times in a row): %s", name, failures, MOST_FAILURES, found.failed[name])
            return
        self._failures.pop(name, None)
        if done is not None:
            found.did[name] = done.messages if isinstance(done, silver.Step) else done

    def _latest(self, most: int) -> int | None:
        done = latest.step(self.spark, self.target, most, self._paged)
        if done is None:
            return None
        self._latest_after = time.monotonic() + self.settings.upkeep.pause(done.bytes)
        return done.changed

    def _tidy(self) -> int | None:
        """How many files were merged or removed; None: there was nothing to do."""
        self._tidied = time.monotonic()
        lacking = accounts.missing(self.lake)
        if lacking:
            log.warning(
                "bronze lacks %d messages; `headwater pipeline backfill` fetches what can be had. If they were deleted "
                "on purpose, note that with `headwater pipeline erase --record`",
                lacking,
            )
        done = self._upkeep.visit()
        return sum(max(0, each.before - each.after) + each.removed for each in done) or None

    def _check_queries(self) -> None:
        for query in self.queries:
            error = query.exception()
            if error is not None:
                raise PipelineError(f"{query.name}: {first_words(str(error))}")
            if not query.isActive:
                raise PipelineError(f"{query.name} has ended by itself")

    def _measure(self, asked: Answers, found: Round) -> None:
        table = self.lake.snapshot(BRONZE)
        found.rows = table.rows
        landed = table.positions(bronze.APP)
        states = self._clocks(asked, landed)
        found.lag = {each.store: each.lag for each in states}
        decoded = self.target.snapshot(SILVER).positions(silver.JOB)
        found.behind = sum(max(0, last - decoded.get(store, 0)) for store, last in landed.items())
        reached = slowest(states)
        found.lag_seconds = None if reached is None else max(0.0, (datetime.now(UTC) - reached).total_seconds())
        rows, moment = self._last
        now = time.monotonic()
        found.rate = max(0.0, found.rows - rows) / max(1e-9, now - moment) if rows else 0.0
        self._last = (found.rows, now)


def first_words(error: str) -> str:
    """Of what Spark says, what people can use: the last line of Python's own error, if there is one."""
    lines = [line.strip() for line in error.splitlines()]
    ours = [line for line in lines if line.startswith("headwater.") and ": " in line]
    if ours:
        return ours[-1].partition(": ")[2]
    return next((line for line in lines if line), "it failed")


def drain(pipeline: Pipeline) -> Round:
    """Rounds until bronze has everything that the stores had at first, and everything behind it is done that can be,
    with all that is to be made again; or until the pipeline is stopped. What comes meanwhile is left to the next run,
    and so are windows that become final.
    Raises PipelineError."""
    pipeline.hurry = True
    answers = pipeline.ask()
    while pipeline.queries and not pipeline.stopped.is_set():
        pipeline.round()
        if all(pipeline.has_read(store, next - 1) for store, (_, next) in answers.items()):
            pipeline.stop_landing()
            answers = pipeline.ask()
        else:
            pipeline.stopped.wait(BETWEEN_LOOKS)
    while True:
        found = pipeline.round(answers)
        if pipeline.stopped.is_set() or (found.is_idle and pipeline.remake is None):
            return found


def remake_all(pipeline: Pipeline) -> None:
    """Rounds until all is made again that is to be, or until the pipeline is stopped. Raises PipelineError."""
    pipeline.hurry = True
    while pipeline.remake is not None and not pipeline.stopped.is_set():
        if pipeline.round().is_idle:
            pipeline.stopped.wait(BETWEEN_LOOKS)
