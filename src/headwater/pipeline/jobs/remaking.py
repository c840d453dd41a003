"""Derived tables made again from bronze: after other rules for payloads, other windows, or a fault that was mended.

Theory. A derived table is a function of bronze and of the settings that decide its rows, and its commits say which
those were (`lake.made`). A start with other ones would go on with rows that mean something else, so it is refused; or
the table is made again.

What is made again is built beside the old one, by the same steps that made that: they are given a lake in which those
tables lie elsewhere (`Beside`). Landing goes on, and so do the old ones (`jobs.line`), which are what is read. When
the new ones go as far as the old ones do, each takes its place in one commit. Until all have, the plan is in the lake:
who is killed goes on with it. What fails leaves the old tables as they are.

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
from headwater.pipeline.derive.settings import Settings as Deriving
from headwater.pipeline.expectations.rule import deciding as deciding_rules
from headwater.pipeline.jobs import latest, silver
from headwater.pipeline.jobs.inference import adopt
from headwater.pipeline.jobs.settings import Settings
from headwater.pipeline.jobs.windows import MINUTE, Spans, first_arrival, gold_span
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.log import Positions
from headwater.pipeline.lake.made import (
    REMADE,
    SETTINGS,
    UNTIL,
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
    COMPLETENESS,
    DROPPED,
    GOLD,
    GOLD_QUARANTINE,
    GOLD_RULES,
    LATE,
    LATEST,
    MEMBERS,
    OUTCOMES,
    QUARANTINE,
    SILVER,
    SILVER_RULES,
    TRAFFIC,
    Table,
    gold_of,
    late_of,
    named,
    table_of,
    windows_of,
)

BESIDE_SILVER: Final = (DROPPED, SILVER_RULES)
BESIDE_GOLD: Final = (GOLD_QUARANTINE, GOLD_RULES)
OPTIONAL: Final = (*BESIDE_SILVER, *BESIDE_GOLD, OUTCOMES)
"""Tables that there are only if there are expectations."""
DECODED: Final = (*BESIDE_SILVER, SILVER, QUARANTINE, *BESIDE_GOLD, GOLD, LATE, LATEST, OUTCOMES)
BEHIND: Final[dict[str, tuple[Table, ...]]] = {
    **{table.name: DECODED for table in (SILVER, QUARANTINE, *BESIDE_SILVER)},
    **{table.name: (*BESIDE_GOLD, GOLD) for table in (GOLD, *BESIDE_GOLD)},
    **{table.name: (table,) for table in (LATE, LATEST, OUTCOMES, COMPLETENESS, TRAFFIC, MEMBERS)},
}
"""Tables that can be made again, and what has to be with each: what is made of it, or in one pass with it."""
JOBS: Final = {
    SILVER.name: silver.JOB,
    QUARANTINE.name: silver.JOB,
    DROPPED.name: silver.JOB,
    SILVER_RULES.name: silver.JOB,
    LATEST.name: latest.JOB,
    COMPLETENESS.name: COMPLETENESS.name,
}
"""Whose positions the commits of a table say, if they say any."""
PLAN: Final = "remaking.json"
BUILDING: Final = "building"
EXPECTED: Final = "expectations"
FLAGS: Final = ("gap", "flatline", "jump_factor", "jump_readings", "jump_absolute")


class NotDerived(ValueError):
    """There is no such table, or it cannot be made again; the text says which can."""


class ChangedSettings(Exception):
    """Tables were made with other settings; the text says what to do."""


def involved(names: Iterable[str]) -> list[Table]:
    """The tables that are made again if these are to be. Raises NotDerived."""
    chosen: dict[str, Table] = {}
    for name in names:
        table = table_of(name)
        if table is None or (name not in BEHIND and windows_of(table) is None):
            why = "is no table" if table is None else "is what came, and cannot be made again"
            raise NotDerived(f"{name} {why}; those that can be are {', '.join(BEHIND)}")
        chosen |= {each.name: each for each in BEHIND.get(name, (table,))}
    known = [table for table in (*DECODED, COMPLETENESS, TRAFFIC, MEMBERS) if table.name in chosen]
    return [*known, *(table for name, table in sorted(chosen.items()) if name not in BEHIND)]


# ---- with which settings -----------------------------------------------------------------------------------------


def deciding(settings: Settings) -> dict[str, Made]:
    """Of each table the settings that decide what its rows are."""
    given = settings.expectations
    decoding = {**settings.rules().said, EXPECTED: deciding_rules(given, SILVER.name)}
    made: dict[str, Made] = {table.name: decoding for table in (SILVER, QUARANTINE, LATEST)}
    rules = [*decoding[EXPECTED], *deciding_rules(given, GOLD.name)]
    for name, definition in settings.definitions().items():
        deriving = asdict(definition)
        windows = {**decoding, **{each: deriving[each] for each in ("window", "lateness")}}
        flags = {each: deriving[each] for each in FLAGS}
        made[gold_of(name).name] = {**windows, **flags, EXPECTED: decoding[EXPECTED] if name else rules}
        made[late_of(name).name] = windows
    return made


Differences = dict[str, tuple[Any, Any]]
"""By setting, what it was and what it is now."""


def changed(tables: Mapping[str, Snapshot], settings: Settings) -> dict[str, Differences]:
    """Of these tables, those that were made with other settings."""
    made = deciding(settings)
    found = {name: made_with(table.log, table.view) or {} for name, table in tables.items() if name in made}
    compared = {
        name: differences({EXPECTED: [], **before} if before else before, made[name]) for name, before in found.items()
    }
    return {name: differs for name, differs in compared.items() if differs}


def note_settings(lake: Lake, settings: Settings) -> None:
    """A table of which nobody has noted it is noted to be made with these: it is new, or from before this was noted."""
    for name, made in deciding(settings).items():
        log = lake.log(named(name))
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
    covered = set() if plan is None or not plan.is_whole else {table.name for table in planned(lake, plan)}
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
    return [table for table in planned(lake, plan) if _number(lake, table.name) != plan.number]


def planned(lake: Lake, plan: Plan) -> list[Table]:
    """The tables of a plan that there are; with silver, those of all windows."""
    there = {table.name: table for table in lake.tables()}
    known = [table for table in involved(plan.tables) if table not in OPTIONAL or table.name in there]
    further = [table for table in there.values() if windows_of(table) is not None and SILVER in known]
    return [*known, *(table for table in further if table not in known)]


def can_be_cancelled(lake: Lake, plan: Plan) -> bool:
    """No table was made again yet of which the others would have to be made."""
    return len(left(lake, plan)) == len(planned(lake, plan))


def _number(lake: Lake, name: str) -> int | None:
    return lake.log(named(name)).look().note(REMADE)


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
        self._made = deciding(settings)
        self.tables = [table for table in left(lake, plan) if windows_of(table) is None or table.name in self._made]
        """What definitions that are gone have left is left as it is."""
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
        floors = [self._floor(table) for table in self.tables if (table in ACCOUNTED) == (of is ACCOUNTED)]
        known = [each for each in (found, *floors) if each is not None]
        if not known or (SILVER in self.tables and of != ACCOUNTED and not self._has_positions(SILVER)):
            return found
        return max(known)

    def is_whole(self) -> bool:
        """Each goes as far as the one whose place it is to take."""
        filled = [table for table in OPTIONAL if table in self.settings.checks()[SILVER.name].further]
        tables = [table for table in self.tables if table not in OPTIONAL or table in filled]
        return all(self._has_positions(table) and self._has_spans(table) for table in tables)

    def take_place(self) -> None:
        """The new tables are the tables."""
        for table in self.tables:
            built, log = self.beside.snapshot(table), self.lake.log(table)
            notes = {REMADE: self.plan.number}
            if table.name in self._made:
                notes[SETTINGS] = remember(log, self._made[table.name])
            floor = self._floor(table)
            until = built.note(UNTIL)
            if until is None and table in BESIDE_GOLD:
                until = self.beside.snapshot(GOLD).note(UNTIL)
            if until is None and floor is not None:  # nothing is final by these windows, and something was
                until = exact(final_until(floor, *self._length(table)))
            if until is not None:
                notes[UNTIL] = until
            job = JOBS.get(table.name, table.name)
            take_place(log, built, notes, job, built.positions(job))
        forget_plan(self.lake)

    def _floor(self, table: Table) -> datetime | None:
        """Before this, everything had arrived when the old table was made: its end, and the lateness it allowed."""
        table = GOLD if table in BESIDE_GOLD else table
        log = self.lake.log(table)
        seen = log.look()
        until = seen.note(UNTIL)
        if until is None:
            return None
        lateness = (made_with(log, seen) or {}).get("lateness", 0.0) if _has_windows(table) else 0.0
        return moment(until) + timedelta(seconds=lateness)

    def _length(self, table: Table) -> tuple[int, float]:
        """Of a span of a table, and the lateness that it allows."""
        deriving = self._definition(GOLD if table in BESIDE_GOLD else table)
        return (MINUTE, 0.0) if deriving is None else (deriving.window, deriving.lateness)

    def _definition(self, table: Table) -> Deriving | None:
        """Of the windows of a table."""
        return self.settings.definitions()[windows_of(table) or ""] if _has_windows(table) else None

    def _has_positions(self, table: Table) -> bool:
        job = JOBS.get(table.name, table.name)
        there: Positions = self.beside.snapshot(table).positions(job)
        wanted = {} if table == COMPLETENESS else self.lake.snapshot(table).positions(job)
        return all(there.get(store, 0) >= last for store, last in wanted.items())

    def _has_spans(self, table: Table) -> bool:
        floor = self._floor(table)
        if floor is None:
            return True
        definition = self._definition(table)
        if definition is not None:
            return gold_span(self.beside, definition, floor, table) is None
        input = self.beside.snapshot(SILVER if windows_of(table) is not None else BRONZE)
        return Spans(table, MINUTE).next(self.beside, floor, first_arrival(input)) is None


def _has_windows(table: Table) -> bool:
    """And not what came too late for them."""
    return windows_of(table) is not None and table.name.startswith(GOLD.name)


ACCOUNTED: Final = (COMPLETENESS, TRAFFIC, MEMBERS)
"""Tables that are made of bronze by minutes."""
WINDOWED: Final = (GOLD, LATE, OUTCOMES)
