"""The steps behind bronze, by one set of settings, into the tables of one lake.

Theory. A pipeline has one line, which fills the tables that readers see. While tables are made again, it has a second
one: the same steps by the settings as they are now, into tables that are built beside (`jobs.remaking`). The first
goes on meanwhile by the settings that its tables were made with (`former`), so readers see what is new all the time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from headwater.pipeline.decoding import Rules
from headwater.pipeline.derive.settings import Settings as Deriving
from headwater.pipeline.expectations.checking import NO_CHECKS, Checks
from headwater.pipeline.expectations.rule import DECIDING
from headwater.pipeline.jobs import accounts, latest, operations, silver, windows
from headwater.pipeline.jobs.remaking import ACCOUNTED, EXPECTED, WINDOWED, changed
from headwater.pipeline.jobs.settings import Settings
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.made import Made, made_with
from headwater.pipeline.tables import (
    COMPLETENESS,
    GOLD,
    LATEST,
    MEMBERS,
    OUTCOMES,
    SILVER,
    TRAFFIC,
    Table,
    gold_of,
    late_of,
    windows_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Steps = Iterator[tuple[str, Callable[[int], Any]]]
"""Their names, and what does one, given how many rows it may take."""
OF_DERIVING: Final = frozenset(each.name for each in fields(Deriving))
log = logging.getLogger(__name__)


@dataclass
class Line:
    """`has` says of a table's name whether this line fills it. `final_until` is the clock of windows, as it was found
    last."""

    spark: SparkSession
    lake: Lake
    settings: Settings
    rules: Rules
    has: Callable[[str], bool] = lambda name: True
    final_until: datetime | None = None
    checks: dict[str, Checks] = field(init=False)

    def __post_init__(self) -> None:
        self.checks = self.settings.checks()
        self._paged = latest.paged_rows()
        self._latest_after = 0.0
        """Seconds by the monotonic clock before which `latest` is not written again."""

    def steps(self, clock: Callable[[Collection[Table]], datetime | None], hurry: bool) -> Steps:
        """In the order of the tables; those by windows of time only when the clocks allow it. In a `hurry`, nothing is
        put off to spare the disk."""
        spark, lake = self.spark, self.lake
        if self.has(SILVER.name):
            yield "silver", lambda most: silver.step(spark, lake, self.rules, most, self.checks[SILVER.name])
        if self.has(LATEST.name) and (hurry or time.monotonic() >= self._latest_after):
            yield "latest", self._latest
        decoded = self.final_until = clock(WINDOWED)
        if decoded is not None:
            for name, definition in self.settings.definitions().items():
                yield from self._windows(gold_of(name), late_of(name), definition, decoded)
            if self.checks[SILVER.name] and self.has(OUTCOMES.name):
                yield "outcomes", lambda most: windows.outcomes_step(spark, lake, decoded, most)
        landed = clock(ACCOUNTED)
        if landed is not None:
            by_minute = (
                (COMPLETENESS, "completeness", accounts.completeness_step),
                (TRAFFIC, "traffic", accounts.traffic_step),
                (MEMBERS, "members", operations.members_step),
            )
            for table, called, step in by_minute:
                if self.has(table.name):
                    yield called, lambda most, step=step: step(spark, lake, landed, most)  # type: ignore[misc]

    def _windows(self, gold: Table, late: Table, definition: Deriving, clock: datetime) -> Steps:
        checks = self.checks[GOLD.name] if gold == GOLD else NO_CHECKS
        if self.has(gold.name):
            yield (
                gold.name,
                lambda most: windows.gold_step(self.spark, self.lake, definition, clock, most, checks, gold),
            )
        if self.has(late.name):
            yield late.name, lambda most: windows.late_step(self.spark, self.lake, definition, clock, most, late)

    def _latest(self, most: int) -> int | None:
        done = latest.step(self.spark, self.lake, most, self._paged)
        if done is None:
            return None
        self._latest_after = time.monotonic() + self.settings.upkeep.pause(done.bytes)
        return done.changed


# ---- settings as they were ---------------------------------------------------------------------------------------


def former(lake: Lake, settings: Settings) -> Settings | None:
    """Those with which the tables were made, where they are others now; None: nobody can say, or they can not be used
    any more, such as a decoder that is gone."""
    there = lake.existing()
    if not changed(there, settings):
        return settings
    made = {name: made_with(each.log, each.view) for name, each in there.items()}
    silver_was, gold_was = made.get(SILVER.name), made.get(GOLD.name)
    if not silver_was or not gold_was:
        return None
    try:
        clocks: dict[str, Any] = {"clock_ahead": silver_was["ahead"], "clock_behind": silver_was["behind"]}
        found = replace(
            settings,
            decoding=tuple(silver_was["decoding"]),
            deriving=_deriving(gold_was, settings.deriving, clocks),
            windows=tuple(_definitions(made)),
            expectations=tuple(gold_was.get(EXPECTED, ())),
        )
        found.checks()
        found.definitions()
    except (KeyError, TypeError, ValueError) as error:
        log.warning("tables stand still until they are made again: their former settings cannot be used (%s)", error)
        return None
    return _with_others(found, settings)


def _deriving(made: Made, now: Deriving, clocks: dict[str, Any]) -> Deriving:
    return replace(now, **{name: value for name, value in made.items() if name in OF_DERIVING}, **clocks)


def _definitions(made: dict[str, Made | None]) -> Iterator[dict[str, Any]]:
    for name, was in made.items():
        definition = next((each for each in [_named(name)] if each), None)
        if definition and was:
            yield {"name": definition, **{key: value for key, value in was.items() if key in OF_DERIVING}}


def _named(name: str) -> str | None:
    """The definition whose windows a table has, if it has a name."""
    from headwater.pipeline.tables import table_of

    table = table_of(name)
    found = None if table is None else windows_of(table)
    return found if found and name == gold_of(found).name else None


def _with_others(found: Settings, now: Settings) -> Settings:
    """And expectations that decide no rows, as they are now, if these tables can be asked."""
    others = [each for each in now.expectations if each.get("action") not in DECIDING]
    names = {each["name"] for each in found.expectations}
    both = replace(found, expectations=(*found.expectations, *(each for each in others if each["name"] not in names)))
    try:
        both.checks()
    except ValueError:
        return found
    return both
