"""A month of a pipeline's tables, simulated: `scripts/bench pipeline-age [--quick] [--json FILE]`.

Two tables get commits as the pipeline makes them: `bronze` a small file with each, laid out by day, and `latest` a new
file for the old one with every fifth. The month is thinned to `--commits` a day. Upkeep keeps the log and replaced
files for `--kept` commits and comes every `--visit`; at a commit a second it keeps 3,600 and comes every 60. Whatever
grows with age grows here as well, day by day. The simulated clock ends now. Files have its times; Delta, which takes
the machine's clock for what a summary keeps of removed files, is told so much more of retention as the simulation is
in the past.

Measured at the end of each day: files and bytes of the tables, files and bytes that are on disk beside them, entries
and bytes of the logs, the time to open a table anew, and the median time of a commit on that day. `--without-upkeep`
shows what would become of it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable

from headwater.pipeline.lake.files import WrittenFile, write_files
from headwater.pipeline.lake.keeping import Keeping
from headwater.pipeline.lake.log import Log
from headwater.pipeline.lake.types import arrow_schema
from headwater.pipeline.lake.upkeep import TableUpkeep
from headwater.pipeline.tables import BRONZE, LATEST, Table
from headwater_lab import machine

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
    at a commit a second."""

    days: int = 30
    commits: int = 1_200
    kept: int = 600
    visit: int = 60
    upkeep: bool = True


QUICK: Final = Plan(days=5, commits=360, kept=120)


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
        self.step = DAY / plan.commits
        self.now = time.time() - plan.days * DAY
        seconds = plan.kept * self.step
        self.keeping = Keeping(
            keep_log=seconds, keep_replaced=seconds, keep_latest=seconds / 6, file_size=4 << 20, few_files=16
        )
        self.bronze = Aging(folder, BRONZE, self)
        self.latest = Aging(folder, LATEST, self)
        self.position = 0

    def run(self, seen: Callable[[Day], None]) -> None:
        for day in range(1, self.plan.days + 1):
            for number in range(1, self.plan.commits + 1):
                self.now += self.step
                self.bronze.commit(self._messages())
                if number % LATEST_EVERY == 0:
                    self.latest.commit(self._readings(), instead=True)
                if self.plan.upkeep and number % self.plan.visit == 0:
                    self.bronze.visit()
                    self.latest.visit()
            for table in (self.bronze, self.latest):
                seen(table.measured(day))

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

    def _readings(self) -> pa.RecordBatch:
        moment = datetime.fromtimestamp(self.now, UTC)
        rows = [
            {
                "topic": f"plant/{number}/temperature",
                "device": f"device-{number}",
                "metric": "temperature",
                "time": moment - timedelta(seconds=number),
                "arrival": moment,
                "clock": "ok",
                "value": (self.position + number) % 977 / 10,
                "text": None,
                "store": "4f1c0d2ab9e7",
                "position": self.position - number,
                "part": 0,
            }
            for number in range(TOPICS)
        ]
        return pa.RecordBatch.from_pylist(rows, arrow_schema(LATEST))


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

    def commit(self, rows: pa.RecordBatch, instead: bool = False) -> None:
        files = [self._made_now(each) for each in write_files([rows], str(self.log.folder), self.log.partition)]
        old = self.log.paths() if instead else []
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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench pipeline-age", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="five days of 360 commits")
    parser.add_argument("--days", type=int, help="how many  [default: 30]")
    parser.add_argument("--commits", type=int, help="of bronze, on each day  [default: 1200]")
    parser.add_argument("--kept", type=int, help="commits for which logs and replaced files stay  [default: 600]")
    parser.add_argument("--visit", type=int, help="commits between two visits of upkeep  [default: 60]")
    parser.add_argument("--without-upkeep", action="store_true", help="what becomes of tables that nobody looks after")
    parser.add_argument("--folder", type=Path, help="for the tables; else one that is removed in the end")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    given = parser.parse_args(arguments)
    base = QUICK if given.quick else Plan()
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
        given.json.write_text(json.dumps(result, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
