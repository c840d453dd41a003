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
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from headwater.pipeline.jobs import accounts, bronze, forgetting, landing, live, operations, requests, silver
from headwater.pipeline.jobs.clocks import Answers, Clock, ask, clocks, slowest
from headwater.pipeline.jobs.expectations import RuleFailed
from headwater.pipeline.jobs.line import Line, former
from headwater.pipeline.jobs.open_windows import OpenWindows
from headwater.pipeline.jobs.ranges import remake_range
from headwater.pipeline.jobs.remaking import (
    ACCOUNTED,
    ChangedSettings,
    Plan,
    Remaking,
    can_be_cancelled,
    forget_plan,
    settled_plan,
)
from headwater.pipeline.jobs.settings import Settings
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.log import LakeError
from headwater.pipeline.lake.upkeep import LakeUpkeep
from headwater.pipeline.mqtt.supervisor import send_away
from headwater.pipeline.source.addresses import Addresses
from headwater.pipeline.source.progress import offsets
from headwater.pipeline.tables import BRONZE, SILVER, Table
from headwater.store.reader import StoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MOST_FAILURES: Final = 5
"""In a row, of one step."""
FIRST_SLICE: Final = 20_000
SLICE: Final = 2.0
"""Seconds that a slice of a remake is to take."""
SLICE_OF_RANGE: Final = 200_000
"""Rows that a slice of a range takes."""
DECIDED_BY: Final = ("decoding", "deriving", "windows", "expectations")
"""Settings that are read again when tables are to be made again."""
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
    only what is behind bronze is made. By the plan `remake`, tables are made again meanwhile (`jobs.remaking`), and so
    they are if a command asks for it (`jobs.requests`); then the settings are read again, by `reread`."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        settings: Settings,
        *,
        landing: bool = True,
        remake: Plan | None = None,
        what: str = "pipeline run",
        reread: Callable[[], Settings] | None = None,
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
        self.line = Line(spark, lake, settings, self.rules)
        """Fills the tables that readers see."""
        self.building: Line | None = None
        """Fills those that are made again."""
        self._reread = reread
        self.addresses = Addresses(settings.source())
        self.queries: list[StreamingQuery] = []
        self._silent: dict[str, str] = {}
        """Addresses at which no store has answered when they were asked last, and why."""
        self._passed: dict[str, int] = {}
        """Positions up to which the query has read each store, whether or not there was anything."""
        self._failures: dict[str, int] = {}
        self._lacking = 0
        """Messages that bronze lacked when stores were asked what was erased."""
        self._tidied = time.monotonic()
        self._upkeep = LakeUpkeep(lake)
        self._open = OpenWindows(lake, settings.provisional)
        self._slice = FIRST_SLICE
        """Messages that a step of a remake takes."""
        self._range: Iterator[int] | None = None
        self._last = (0, time.monotonic())
        self._locked = contextlib.ExitStack()

    def __enter__(self) -> Pipeline:
        self._locked.enter_context(self.lake.writing(self.what))
        try:
            self.lake.keep(self.settings.upkeep)
            self._plan(self.remake)
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

    def _plan(self, wanted: Plan | None) -> None:
        """What is to be made again, by the settings as they are now, and by which ones the other tables go on."""
        try:
            before = former(self.lake, self.settings)
            self.remake = settled_plan(self.lake, self.settings, wanted)
        except ChangedSettings as error:
            raise PipelineError(str(error)) from None
        for checks in self.settings.checks().values():
            for table in (*checks.tables, *checks.further):
                self.lake.log(table)
        self.line = Line(self.spark, self.lake, self.settings, self.rules)
        if self.remake is None or not self.remake.is_whole:
            return
        self.remaking = Remaking(self.lake, self.settings, self.remake)
        again = {table.name for table in self.remaking.tables}
        self.building = Line(self.spark, self.remaking.beside, self.settings, self.rules, again.__contains__)
        if before is None or not can_be_cancelled(self.lake, self.remake):
            self.line.has = lambda name: name not in again
        elif before is not self.settings:
            self.line = Line(self.spark, self.lake, before, before.rules())

    def _take_up(self) -> None:
        """What a command asks for, if nothing else is being made again."""
        asked = requests.take(self.lake)
        if asked is None or (self.remake is not None and asked[1] is not None):
            return
        number, plan = asked
        try:
            if plan is None:
                self._give_up()
            else:
                self._again(plan)
            error = ""
        except (PipelineError, LakeError, ValueError) as found:
            error = str(found)
        requests.answer(self.lake, requests.Answer(number, error))

    def _again(self, plan: Plan) -> None:
        before = self.settings, self.rules
        if self._reread is not None:
            fresh = self._reread()
            self.settings = replace(self.settings, **{name: getattr(fresh, name) for name in DECIDED_BY})
            self.rules = self.settings.rules()
        try:
            self._plan(plan)
        except BaseException:
            self.settings, self.rules = before
            raise
        log.info("makes again, as it was asked to: %s", ", ".join(plan.tables))

    def _give_up(self) -> None:
        if self.remake is not None and not can_be_cancelled(self.lake, self.remake):
            raise PipelineError("some tables are made again already, and the others have to be")
        forget_plan(self.lake)
        self.settings, self.rules = self.line.settings, self.line.rules
        self.remake = self.remaking = self.building = self._range = None

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
        """Those of the tables that readers see; then a slice of what is made again."""
        self._take_up()
        self._learn()
        yield from self.line.steps(lambda of: self._clock(asked, self.lake, of), self.hurry)
        found.final_until = self.line.final_until
        if self.settings.advise and slowest(self._landed(asked)) is not None:
            yield "advice", lambda _: operations.advice_step(self.spark, self.lake, self.settings)
        if self._open.is_due or self.hurry:
            yield "open", lambda _: self._open.step(self.line.settings.definitions())
        if self.remake is not None and not self.remake.is_whole:
            yield "remake", lambda _: self._remake_range()
        if self.building is not None:
            for name, step in self.building.steps(self._building_clock(asked), hurry=True):
                yield f"remake {name}", self._sliced(step)
            yield "remake", lambda _: self._take_place()

    def _sliced(self, step: Callable[[int], Any]) -> Callable[[int], Any]:
        """So much of a step that what is new waits for seconds only."""

        def some(most: int) -> Any:
            began = time.monotonic()
            done = step(most if self.hurry else min(most, self._slice))
            took = time.monotonic() - began
            if isinstance(done, silver.Step) and done.messages >= self._slice // 2:
                self._slice = max(FIRST_SLICE, int(done.messages * SLICE / max(took, 0.01)))
            return done

        return some

    def _landed(self, asked: Answers) -> list[Clock]:
        return self._clocks(asked, self.lake.snapshot(BRONZE).positions(bronze.APP))

    def _clock(self, asked: Answers, lake: Lake, of: Collection[Table]) -> datetime | None:
        """By which tables of windows, or of minutes, are final."""
        if of is ACCOUNTED:
            return slowest(self._landed(asked))
        return slowest(self._clocks(asked, lake.snapshot(SILVER).positions(silver.JOB)))

    def _building_clock(self, asked: Answers) -> Callable[[Collection[Table]], datetime | None]:
        remaking = self.remaking
        assert remaking is not None
        return lambda of: remaking.clock(of, self._clock(asked, remaking.beside, of))

    def _learn(self) -> None:
        """What bronze lacks may have been erased in the stores: they are asked when it lacks more than before."""
        lacking = accounts.missing(self.lake)
        if lacking > self._lacking:
            forgetting.learn(self.lake, self.settings)
        self._lacking = accounts.missing(self.lake) if lacking else 0

    def _take_place(self) -> int | None:
        """If all that is made again is whole, it is the tables from now on."""
        if self.remaking is None or not self.remaking.is_whole():
            return None
        self.remaking.take_place()
        log.info("made again: %s", ", ".join(self.remaking.plan.tables))
        done = len(self.remaking.tables)
        self.remaking = self.remake = self.building = None
        self.line = Line(self.spark, self.lake, self.settings, self.rules)
        self._open = OpenWindows(self.lake, self.settings.provisional)
        return done

    def _remake_range(self) -> int | None:
        """The next slice of a plan for a range of time."""
        if self.remake is None:
            return None
        if self._range is None:
            most = self.settings.most_rows if self.hurry else SLICE_OF_RANGE
            self._range = remake_range(self.spark, self.lake, self.settings, self.rules, self.remake, most)
        try:
            done = next(self._range, None)
        except BaseException:
            self._range = None  # it begins the table anew
            raise
        if done is None:
            forget_plan(self.lake)
            self.remake = self._range = None
        return done

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
            if failures >= MOST_FAILURES or isinstance(error, LakeError | RuleFailed):
                raise PipelineError(f"{name}: {first_words(str(error))}") from error
            found.failed[name] = first_words(str(error))
            log.warning("%s failed (%d of %d times in a row): %s", name, failures, MOST_FAILURES, found.failed[name])
            return
        self._failures.pop(name, None)
        if done is not None:
            found.did[name] = done.messages if isinstance(done, silver.Step) else done

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
        decoded = self.lake.snapshot(SILVER).positions(silver.JOB)
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
