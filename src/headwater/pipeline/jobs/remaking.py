"""Derived tables made again from bronze: after other rules for payloads, other windows, or a fault that was mended.

Theory. A derived table is a function of bronze and of the settings that decide its rows, and its commits say which
those were (`lake.made`). A start with other ones would go on with rows that mean something else, so it is refused; or
the table is made again.

What is made again is built beside the old one, by the same steps that made that: they are given a lake in which those
tables lie elsewhere (`Beside`). Landing goes on, and whoever reads reads the old ones. When the new ones go as far
as the old ones did, each takes its place in one commit. Until all have, the plan is in the lake: who is killed goes on
with it. What fails leaves the old tables as they are.

Of a range of time, the rows are computed anew and replaced in one commit of the table, in place (`jobs.ranges`).

Bronze is what came, `live`, `advice`, `inferred` are what happened: those cannot be made again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from headwater.objects import Missing
from headwater.pipeline.derive.moments import exact, final_until, moment
from headwater.pipeline.jobs import latest, silver
from headwater.pipeline.jobs.inference import adopt
from headwater.pipeline.jobs.settings import Settings
from headwater.pipeline.jobs.windows import MINUTE, UNTIL, Spans, first_arrival, gold_span
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.log import Positions
from headwater.pipeline.lake.made import (
    REMADE,
    SETTINGS,
    Made,
    differences,
    made_with,
    number_of,
    remember,
    take_place,
)
from headwater.pipeline.lake.snapshot import Snapshot
from headwater.pipeline.tables import (
    BRONZE,
    BY_NAME,
    COMPLETENESS,
    GOLD,
    LATE,
    LATEST,
    MEMBERS,
    QUARANTINE,
    SILVER,
    TRAFFIC,
    Table,
)

DECODED: Final = (SILVER, QUARANTINE, GOLD, LATE, LATEST)
BEHIND: Final[dict[str, tuple[Table, ...]]] = {
    SILVER.name: DECODED,
    QUARANTINE.name: DECODED,
    **{table.name: (table,) for table in (GOLD, LATE, LATEST, COMPLETENESS, TRAFFIC, MEMBERS)},
}
"""Tables that can be made again, and what has to be with each: what is made of it, or in one pass with it."""
JOBS: Final = {
    SILVER.name: silver.JOB,
    QUARANTINE.name: silver.JOB,
    LATEST.name: latest.JOB,
    COMPLETENESS.name: COMPLETENESS.name,
}
"""Whose positions the commits of a table say, if they say any."""
PLAN: Final = "remaking.json"
BUILDING: Final = "building"
FLAGS: Final = ("gap", "flatline", "jump_factor", "jump_readings", "jump_absolute")


class NotDerived(ValueError):
    """There is no such table, or it cannot be made again; the text says which can."""


class ChangedSettings(Exception):
    """Tables were made with other settings; the text says what to do."""


def involved(names: Iterable[str]) -> list[Table]:
    """The tables that are made again if these are to be. Raises NotDerived."""
    chosen: dict[str, Table] = {}
    for name in names:
        if name not in BEHIND:
            why = "is what came, and cannot be made again" if name in BY_NAME else "is no table"
            raise NotDerived(f"{name} {why}; those that can be are {', '.join(BEHIND)}")
        chosen |= {table.name: table for table in BEHIND[name]}
    return [table for table in (*DECODED, COMPLETENESS, TRAFFIC, MEMBERS) if table.name in chosen]


# ---- with which settings -----------------------------------------------------------------------------------------


def deciding(settings: Settings) -> dict[str, Made]:
    """Of each table the settings that decide what its rows are."""
    decoding = settings.rules().said
    deriving = asdict(settings.deriving)
    windows = {**decoding, **{name: deriving[name] for name in ("window", "lateness")}}
    made: dict[str, Made] = {table.name: decoding for table in (SILVER, QUARANTINE, LATEST)}
    return {**made, GOLD.name: {**windows, **{name: deriving[name] for name in FLAGS}}, LATE.name: windows}


Differences = dict[str, tuple[Any, Any]]
"""By setting, what it was and what it is now."""


def changed(tables: Mapping[str, Snapshot], settings: Settings) -> dict[str, Differences]:
    """Of these tables, those that were made with other settings."""
    made = deciding(settings)
    found = {name: made_with(table.log, table.view) or {} for name, table in tables.items() if name in made}
    compared = {name: differences(before, made[name]) for name, before in found.items()}
    return {name: differs for name, differs in compared.items() if differs}


def note_settings(lake: Lake, settings: Settings) -> None:
    """A table of which nobody has noted it is noted to be made with these: it is new, or from before this was noted."""
    for name, made in deciding(settings).items():
        log = lake.log(BY_NAME[name])
        if log.look().note(SETTINGS) is None:
            if name == SILVER.name:
                adopt(lake, settings.rules())
            log.commit([], {SETTINGS: remember(log, made)})


def refusal(found: dict[str, Differences]) -> ChangedSettings:
    name, differs = next(iter(found.items()))
    again = " ".join(table.name for table in involved(found) if table.name in found)
    return ChangedSettings(
        f"{name} was made with {in_words(differs)}. What is in it and what would come would mean different things. "
        f'Make it again: `headwater pipeline remake {again}`; or set changed_settings to "remake", then a start does '
        "so; or give the setting its old value"
    )


def in_words(differs: Differences) -> str:
    return " and ".join(_difference(*each) for each in differs.items())


def _difference(setting: str, values: tuple[Any, Any]) -> str:
    before, now = values
    return f"other rules of {setting}" if isinstance(now, list) else f"{setting} = {before}, which is {now} now"


# ---- plans -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """These tables are to be made again, whole or from `start` to before `end`. Its number is noted in each that is."""

    number: int
    tables: tuple[str, ...]
    start: datetime | None = None
    end: datetime | None = None

    @property
    def is_whole(self) -> bool:
        return self.start is None and self.end is None

    def beside(self, other: Plan | None) -> Plan:
        """Both in one."""
        if other is None:
            return self
        names = [table.name for table in involved((*self.tables, *other.tables))]
        if (self.start, self.end) == (other.start, other.end):
            return replace(other, tables=tuple(names))
        whole = self.is_whole or other.is_whole
        start = None if whole or not self.start or not other.start else min(self.start, other.start)
        end = None if whole or not self.end or not other.end else max(self.end, other.end)
        return Plan(self.number, tuple(names), start, end)


def make_plan(names: Iterable[str], start: datetime | None = None, end: datetime | None = None) -> Plan:
    """Raises NotDerived."""
    return Plan(time.time_ns() // 1000, tuple(table.name for table in involved(names)), start, end)


def stored_plan(lake: Lake) -> Plan | None:
    """That which somebody began and did not end."""
    try:
        found = json.loads(lake.place.get(PLAN).data)
    except Missing:
        return None
    times = [None if found[name] is None else datetime.fromisoformat(found[name]) for name in ("start", "end")]
    return Plan(found["number"], tuple(found["tables"]), *times)


def store_plan(lake: Lake, plan: Plan) -> None:
    lake.place.put(PLAN, json.dumps(asdict(plan), default=datetime.isoformat).encode())


def forget_plan(lake: Lake) -> None:
    lake.place.delete([PLAN])
    forget_building(lake)


def forget_building(lake: Lake) -> None:
    """Remove what was built so far: it is out of date."""
    lake.place.clear(BUILDING)


def settled_plan(lake: Lake, settings: Settings, wanted: Plan | None) -> Plan | None:
    """What is to be made again: what is wanted, what was begun, and what other settings ask for. Raises
    ChangedSettings."""
    plan = stored_plan(lake)
    if wanted is not None:
        plan = wanted.beside(plan)
    note_settings(lake, settings)
    other = changed(lake.existing(), settings)
    covered = set() if plan is None or not plan.is_whole else set(plan.tables)
    if other.keys() - covered:
        if settings.changed_settings != "remake":
            raise refusal(other)
        plan = make_plan(other).beside(plan)
    if plan is not None and any(_number(lake, name) == plan.number for name in other):
        plan = replace(plan, number=time.time_ns() // 1000)  # changed once more after they were made again
    if plan is not None:
        store_plan(lake, plan)
    return plan


def left(lake: Lake, plan: Plan) -> list[Table]:
    """The tables of a plan that were not made again yet."""
    return [table for table in involved(plan.tables) if _number(lake, table.name) != plan.number]


def can_be_cancelled(lake: Lake, plan: Plan) -> bool:
    """No table was made again yet of which the others would have to be made."""
    return len(left(lake, plan)) == len(plan.tables)


def _number(lake: Lake, name: str) -> int | None:
    return lake.log(BY_NAME[name]).look().note(REMADE)


# ---- building ----------------------------------------------------------------------------------------------------


class Beside(Lake):
    """The same lake, but for some tables, which are those that are being built, by the plan of this number."""

    def __init__(self, lake: Lake, tables: Collection[Table], number: int) -> None:
        super().__init__(lake.place, lake.keeping)
        self.epoch = lake.epoch
        self._building = f"{BUILDING}/{number}"
        self._names = {table.name for table in tables}

    def prefix(self, table: Table) -> str:
        return f"{self._building}/{table.name}" if table.name in self._names else super().prefix(table)


class Remaking:
    """Of whole tables, by a plan. `beside` is the lake that steps are to work in meanwhile."""

    def __init__(self, lake: Lake, settings: Settings, plan: Plan) -> None:
        self.lake = lake
        self.settings = settings
        self.plan = plan
        self.tables = left(lake, plan)
        self._made = deciding(settings)
        self.beside = Beside(lake, self.tables, plan.number)
        for table in self.tables:
            self._prepare(table)

    def _prepare(self, table: Table) -> None:
        """What was built of it with these settings is gone on with; other things are thrown away."""
        prefix = self.beside.prefix(table)
        note = number_of({"plan": self.plan.number, "made": self._made.get(table.name)})
        is_there = bool(self.beside.place.level(f"{prefix}/_delta_log").items)
        if is_there and self.beside.log(table).look().note(SETTINGS) == note:
            if self.lake.epoch is not None:
                self.beside.log(table).fence()
            return
        self.beside.place.clear(prefix)
        self.beside.reading(table).forget()
        self.beside.log(table).commit([], {SETTINGS: note})

    def clock(self, of: Collection[Table], found: datetime | None) -> datetime | None:
        """The clock for tables that are built: at least that by which the old ones were made, if what they are
        made of goes as far as it did then."""
        floors = [self._floor(table) for table in self.tables if table in of]
        known = [each for each in (found, *floors) if each is not None]
        if not known or (SILVER in self.tables and of != ACCOUNTED and not self._has_positions(SILVER)):
            return found
        return max(known)

    def is_whole(self) -> bool:
        """Each goes as far as the one whose place it is to take."""
        return all(self._has_positions(table) and self._has_spans(table) for table in self.tables)

    def take_place(self) -> None:
        """The new tables are the tables."""
        for table in self.tables:
            built, log = self.beside.snapshot(table), self.lake.log(table)
            notes = {REMADE: self.plan.number}
            if table.name in self._made:
                notes[SETTINGS] = remember(log, self._made[table.name])
            floor = self._floor(table)
            until = built.note(UNTIL)
            if until is None and floor is not None:  # nothing is final by these windows, and something was
                until = exact(final_until(floor, *self._length(table)))
            if until is not None:
                notes[UNTIL] = until
            job = JOBS.get(table.name, table.name)
            take_place(log, built, notes, job, built.positions(job))
        forget_plan(self.lake)

    def _floor(self, table: Table) -> datetime | None:
        """Before this, everything had arrived when the old table was made: its end, and the lateness it allowed."""
        log = self.lake.log(table)
        seen = log.look()
        until = seen.note(UNTIL)
        if until is None:
            return None
        lateness = (made_with(log, seen) or {}).get("lateness", 0.0) if table == GOLD else 0.0
        return moment(until) + timedelta(seconds=lateness)

    def _length(self, table: Table) -> tuple[int, float]:
        """Of a span of a table, and the lateness that it allows."""
        deriving = self.settings.deriving
        return (deriving.window, deriving.lateness) if table == GOLD else (MINUTE, 0.0)

    def _has_positions(self, table: Table) -> bool:
        job = JOBS.get(table.name, table.name)
        there: Positions = self.beside.snapshot(table).positions(job)
        wanted = {} if table == COMPLETENESS else self.lake.snapshot(table).positions(job)
        return all(there.get(store, 0) >= last for store, last in wanted.items())

    def _has_spans(self, table: Table) -> bool:
        floor = self._floor(table)
        if floor is None:
            return True
        if table == GOLD:
            return gold_span(self.beside, self.settings.deriving, floor) is None
        input = self.beside.snapshot(SILVER if table == LATE else BRONZE)
        return Spans(table, MINUTE).next(self.beside, floor, first_arrival(input)) is None


ACCOUNTED: Final = (COMPLETENESS, TRAFFIC, MEMBERS)
"""Tables that are made of bronze by minutes."""
WINDOWED: Final = (GOLD, LATE)
