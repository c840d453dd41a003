"""A month of a pipeline's tables, simulated: `scripts/bench pipeline-age [--quick] [--json FILE]`.

Two tables get commits as the pipeline makes them: `bronze` a small file with each, laid out by day, and `latest` what
changed with every fifth. The month is thinned to `--commits` a day. Upkeep keeps the log and replaced files for
`--kept` commits and comes every `--visit`. Whatever grows with age grows here as well, day by day. With `--hours`
nothing is thinned: a commit a second, an hour of them kept, a visit every 60, and figures by the hour.

The simulated clock ends now. Files have its times; Delta, which takes the machine's clock for what a summary keeps of
removed files, is told so much more of retention as the simulation is in the past. With `--hours`, files of bronze are
links to one file until they are merged: writing Parquet costs the same at any age, and is no part of a commit's time.

Measured at the end of each day: files and bytes of the tables, files and bytes that are on disk beside them, entries
and bytes of the logs, the time to open a table anew, and the median time of a commit on that day. `--without-upkeep`
shows what would become of it.

`--latest` measures instead what a commit of `latest` writes if 10 of 10,000 topics have changed.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable

from headwater.pipeline.jobs.latest import paged_rows, write_pages
from headwater.pipeline.lake.files import WrittenFile, write_files
from headwater.pipeline.lake.log import Log
from headwater.pipeline.lake.types import arrow_schema
from headwater.pipeline.lake.upkeep import TableUpkeep
from headwater.pipeline.lake.upkeep_settings import UpkeepSettings
from headwater.pipeline.tables import BRONZE, LATEST, Table
from headwater_lab import machine
from headwater_lab.results import write_json

DAY: Final = 86_400.0
LATEST_EVERY: Final = 5
"""Commits of bronze for one of latest, as `latest_every`."""
ROWS: Final = 100
"""Of a commit of bronze."""
TOPICS: Final = 400
OPENED: Final = 5
"""How often a table is opened for the time that takes."""


@dataclass(frozen=True)
class Plan:
    """`kept`: commits for which the log and replaced files stay. `visit`: commits between two visits, as `tidy_every`
    at a commit a second. `period`: seconds of what is called a day. `links`: see above."""

    days: int = 30
    commits: int = 1_200
    kept: int = 600
    visit: int = 60
    upkeep: bool = True
    period: float = DAY
    links: bool = False


QUICK: Final = Plan(days=5, commits=360, kept=120)
HOURLY: Final = Plan(days=5, commits=3_600, kept=3_600, period=3_600.0, links=True)
"""A commit a second, with the pipeline's own settings."""


@dataclass(frozen=True)
class Day:
    """One table at the end of a day. `beside` are bytes on disk that the table does not name (any more)."""

    table: str
    day: int
    rows: int
    files: int
    bytes: int
    beside: int
    beside_files: int
    log_files: int
    log_bytes: int
    open_ms: float
    commit_ms: float
    visit_ms: float
    """The longest visit of the day."""


class Month:
    def __init__(self, folder: Path, plan: Plan) -> None:
        self.plan = plan
        self.step = plan.period / plan.commits
        self.now = time.time() - plan.days * plan.period
        seconds = plan.kept * self.step
        self.keeping = UpkeepSettings(
            keep_log=seconds, keep_replaced=seconds, keep_latest=seconds / 6, file_size=4 << 20, few_files=16
        )
        self.bronze = Aging(folder, BRONZE, self)
        self.latest = Aging(folder, LATEST, self)
        self.position = 0
        self._template: tuple[WrittenFile, Path] | None = None
        self._folder = folder
        self._paged = paged_rows()

    def run(self, seen: Callable[[Day], None]) -> None:
        for day in range(1, self.plan.days + 1):
            for number in range(1, self.plan.commits + 1):
                self.now += self.step
                self.bronze.commit([self._linked()] if self.plan.links else self._written())
                if number % LATEST_EVERY == 0:
                    self._change_latest()
                if self.plan.upkeep and number % self.plan.visit == 0:
                    self.bronze.visit()
                    self.latest.visit()
            for table in (self.bronze, self.latest):
                seen(table.measured(day))

    def _written(self) -> list[WrittenFile]:
        return write_files([self._messages()], str(self.bronze.log.folder), BRONZE.partition)

    def _linked(self) -> WrittenFile:
        """A file of bronze with the rows of a commit, which lie elsewhere as well."""
        if self._template is None:
            home = self._folder / "template"
            [file] = write_files([self._messages()], str(home), BRONZE.partition)
            self._template = (file, home / file.path)
        file, rows = self._template
        day = datetime.fromtimestamp(self.now, UTC).date().isoformat()
        self.position += ROWS
        path = f"day={day}/part-{self.position:012d}.parquet"
        target = self.bronze.log.folder / path
        target.parent.mkdir(exist_ok=True)
        target.hardlink_to(rows)
        return replace(file, path=path, partition={"day": day})

    def _change_latest(self) -> None:
        log = self.latest.log
        rows = _readings(range(TOPICS), self.position, self.now)
        change = self._paged.change(log.place, log.paths(), rows)
        self.latest.commit(write_pages(log.place, change), change.replaced)

    def _messages(self) -> pa.RecordBatch:
        first, self.position = self.position + 1, self.position + ROWS
        moment = datetime.fromtimestamp(self.now, UTC)
        rows = [
            {
                "store": "4f1c0d2ab9e7",
                "position": position,
                "topic": f"plant/{position % TOPICS}/temperature",
                "payload": f'{{"value": {position % 977 / 10}}}'.encode(),
                "qos": 1,
                "retain": False,
                "publisher": f"device-{position % TOPICS}",
                "time": moment,
                "arrival": moment,
                "value": position % 977 / 10,
                "properties": None,
                "day": moment.date(),
            }
            for position in range(first, first + ROWS)
        ]
        return pa.RecordBatch.from_pylist(rows, arrow_schema(BRONZE))


def _readings(topics: Iterable[int], position: int, now: float) -> pa.Table:
    """Of `latest`."""
    moment = datetime.fromtimestamp(now, UTC)
    rows = [
        {
            "topic": f"plant/{number}/temperature",
            "device": f"device-{number}",
            "metric": "temperature",
            "time": moment - timedelta(microseconds=number * 7_919 % 1_000_003),
            "arrival": moment,
            "clock": "ok",
            "value": (position + number) * 7_919 % 10_007 / 100,
            "text": None,
            "store": "4f1c0d2ab9e7",
            "position": position + number,
            "part": 0,
        }
        for number in topics
    ]
    return pa.Table.from_pylist(rows, arrow_schema(LATEST))


class Aging:
    """A table of the month."""

    def __init__(self, folder: Path, table: Table, month: Month) -> None:
        self._month = month
        self._name = table.name
        self.log = Log(folder / table.name, table.partition, clock=lambda: month.now)
        if not month.plan.upkeep:  # as Delta has it
            self.log.properties = {"delta.checkpointInterval": "100"}
        self.log.declare(table)
        self._upkeep = TableUpkeep(self.log, table.name, month.keeping)
        self._aged = -1
        """The last commit whose file has a simulated time."""
        self._took: list[float] = []
        self._visits: list[float] = [0.0]

    def commit(self, written: Sequence[WrittenFile], old: Sequence[str] = ()) -> None:
        files = [self._made_now(each) for each in written]
        began = time.perf_counter()
        position = int(self._month.position)
        self.log.commit(files, {}, job="job", positions={"4f1c0d2ab9e7": position}, replaced=old)
        self._took.append(time.perf_counter() - began)
        self._age()

    def _made_now(self, file: WrittenFile) -> WrittenFile:
        os.utime(self.log.folder / file.path, (self._month.now, self._month.now))
        return replace(file, made=int(self._month.now * 1000))

    def visit(self) -> None:
        behind = time.time() - self._month.now
        keeping = self._month.keeping
        past = replace(keeping, **{name: getattr(keeping, name) + behind for name in ("keep_log", "keep_replaced")})
        self.log.properties = replace(past, keep_latest=keeping.keep_latest + behind).properties(self._name)
        self.log.configure()
        began = time.perf_counter()
        self._upkeep.visit(keeping.file_size)
        self._visits.append(time.perf_counter() - began)
        self._age()

    def _age(self) -> None:
        """Files of the log are as old as the month says; but the last commit, by whose file the log knows its table."""
        version = self.log.look().version - 1
        for number in range(self._aged + 1, version + 1):
            for kind in ("json", "checkpoint.parquet"):
                path = self.log.folder / "_delta_log" / f"{number:020d}.{kind}"
                if path.exists():
                    os.utime(path, (self._month.now, self._month.now))
        self._aged = version

    def measured(self, day: int) -> Day:
        view = self.log.look()
        sizes = view.files.column("size_bytes").to_pylist()
        rows = sum(view.files.column("num_records").to_pylist())
        log = [each.stat().st_size for each in (self.log.folder / "_delta_log").iterdir()]
        data = [each for each in self.log.folder.rglob("*.parquet") if "_delta_log" not in each.parts]
        named = {self.log.folder / path for path in view.paths()}
        beside = [each.stat().st_size for each in data if each not in named]
        opened = statistics.median(_seconds_to_open(self.log.folder) for _ in range(OPENED))
        took, self._took = statistics.median(self._took), []
        visit, self._visits = max(self._visits), [0.0]
        return Day(
            table=self._name,
            day=day,
            rows=rows,
            files=len(sizes),
            bytes=sum(sizes),
            beside=sum(beside),
            beside_files=len(beside),
            log_files=len(log),
            log_bytes=sum(log),
            open_ms=round(opened * 1000, 2),
            commit_ms=round(took * 1000, 2),
            visit_ms=round(visit * 1000, 1),
        )


def _seconds_to_open(folder: Path) -> float:
    began = time.perf_counter()
    DeltaTable(str(folder))
    return time.perf_counter() - began


HEAD: Final = (
    f"{'table':8}{'day':>4}{'rows':>11}{'files':>7}{'bytes':>12}{'beside':>12}{'log files':>10}{'log bytes':>12}"
    f"{'open ms':>9}{'commit ms':>10}{'visit ms':>9}"
)


def line(day: Day) -> str:
    return (
        f"{day.table:8}{day.day:>4}{day.rows:>11,}{day.files:>7,}{day.bytes:>12,}{day.beside:>12,}{day.log_files:>10,}"
        f"{day.log_bytes:>12,}{day.open_ms:>9.1f}{day.commit_ms:>10.1f}{day.visit_ms:>9.0f}"
    )


def simulate(folder: Path, plan: Plan, tell: Callable[[Day], None] = lambda _: None) -> list[Day]:
    found: list[Day] = []

    def seen(day: Day) -> None:
        found.append(day)
        tell(day)

    Month(folder, plan).run(seen)
    return found


def bytes_of_latest(folder: Path, topics: int = 10_000, changed: int = 10, commits: int = 50) -> dict[str, int]:
    """Mean bytes of files that a commit of `latest` writes if so many topics have changed, by which ones these are; and
    if a twelfth of all has, as at a report a minute and a commit every 5 s."""
    chance = random.Random(1)
    always = chance.sample(range(topics), changed)
    choices: dict[str, Callable[[int], Iterable[int]]] = {
        "the same ones": lambda _: always,
        "any": lambda _: chance.sample(range(topics), changed),
        "1/12 of all in turn": lambda number: range(number % 12, topics, 12),
    }
    found: dict[str, int] = {}
    now = time.time()
    for name, chosen in choices.items():
        log, paged = Log.of(folder / name, LATEST), paged_rows()
        sizes = []
        for number in range(commits + 1):
            rows = _readings(chosen(number) if number else range(topics), number * topics, now + number)
            change = paged.change(log.place, log.paths(), rows)
            files = write_pages(log.place, change)
            log.commit(files, {}, replaced=change.replaced)
            sizes.append(sum(file.size for file in files))
        whole = write_files(_readings(range(topics), 0, now).to_batches(), str(folder / "whole"), None)
        found["the whole table"] = sum(file.size for file in whole)
        found[name] = round(statistics.mean(sizes[commits // 2 :]))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench pipeline-age", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="five days of 360 commits")
    parser.add_argument("--days", type=int, help="how many  [default: 30]")
    parser.add_argument("--commits", type=int, help="of bronze, on each day  [default: 1200]")
    parser.add_argument("--kept", type=int, help="commits for which logs and replaced files stay  [default: 600]")
    parser.add_argument("--visit", type=int, help="commits between two visits of upkeep  [default: 60]")
    parser.add_argument("--hours", type=int, help="in place of days: so many hours of a commit a second")
    parser.add_argument(
        "--latest", action="store_true", help="only: bytes of a commit of latest if 10 of 10,000 change"
    )
    parser.add_argument("--without-upkeep", action="store_true", help="what becomes of tables that nobody looks after")
    parser.add_argument("--folder", type=Path, help="for the tables; else one that is removed in the end")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    given = parser.parse_args(arguments)
    if given.latest:
        with tempfile.TemporaryDirectory() as scratch:
            for name, size in bytes_of_latest(given.folder or Path(scratch)).items():
                print(f"{name:20}{size:>10,} bytes a commit", flush=True)
        return 0
    base = QUICK if given.quick else Plan()
    if given.hours:
        base = replace(HOURLY, days=given.hours)
    said = {
        name: getattr(given, name) for name in ("days", "commits", "kept", "visit") if getattr(given, name) is not None
    }
    plan = replace(base, **said, upkeep=not given.without_upkeep)
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        days = simulate(given.folder or Path(scratch), plan, lambda day: print(line(day), flush=True))
    if given.json:
        result = {
            "machine": machine.describe("scripts/bench pipeline-age"),
            "plan": asdict(plan),
            "days": [asdict(each) for each in days],
        }
        write_json(given.json, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
