"""How far a running pipeline is behind, and what its tables become: `scripts/bench pipeline-lag [--minutes 15]`.

A node, `headwater pipeline run` with its own settings, and a fleet of 10,000 devices that sends `--rate` messages a
second with QoS 1, each a process of its own. Every five seconds:

- lag: messages that the store has and a table has not, over the rate: bronze, silver and latest. That is the
  age of the oldest message that is missing, as messages come evenly;
- files and bytes of these tables' folders: data, what was replaced and is kept for a while, and logs.

The first half minute, in which Spark starts, is left out. What comes then is told in four parts of equal length: a
pipeline that gets slower with age shows it from part to part. In the end bronze has to have as many rows as messages
were sent, within a minute; else the status is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from headwater.fleet.node import RunningNode
from headwater.pipeline.jobs.status import look
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.tables import BRONZE, LATEST, SILVER
from headwater.store.reader import StoreReader
from headwater_lab import machine
from headwater_lab.results import write_json

RATE: Final = 1_000.0
MINUTES: Final = 15.0
EVERY: Final = 5.0
"""Seconds between two looks."""
STARTING: Final = 30.0
PARTS: Final = 4
LAST: Final = 60.0
"""Seconds that the last messages may take."""
TABLES: Final = (BRONZE, SILVER, LATEST)
HEAD: Final = f"{'minutes':<12}{'table':<12}{'lag median':>12}{'lag most':>12}{'files':>10}{'bytes':>16}"


class PipelineError(Exception):
    """The pipeline or the fleet has ended by itself."""


@dataclass(frozen=True)
class Sample:
    """Of one table, `at` seconds after the start of the fleet."""

    at: float
    table: str
    lag: float
    files: int
    bytes: int


@dataclass(frozen=True)
class Part:
    """What a table was like for a while: files and bytes at its end."""

    start: float
    end: float
    table: str
    lag_median: float
    lag_most: float
    files: int
    bytes: int


def parts_of(samples: Sequence[Sample], start: float, end: float) -> list[Part]:
    """Of the samples in this time, by table and part; a part without samples is left out."""
    length = (end - start) / PARTS
    found = []
    for number in range(PARTS):
        first, last = start + number * length, start + (number + 1) * length
        for table in TABLES:
            these = [each for each in samples if each.table == table.name and first <= each.at < last]
            if these:
                lags = [each.lag for each in these]
                newest = these[-1]
                median, most = statistics.median(lags), max(lags)
                found.append(Part(first, last, table.name, median, most, newest.files, newest.bytes))
    return found


def extent(folder: Path) -> tuple[int, int]:
    """Files and bytes below a folder to which others write."""
    sizes = []
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append(os.stat(os.path.join(place, name)).st_size)
            except FileNotFoundError:
                continue  # replaced meanwhile
    return len(sizes), sum(sizes)


def samples_of(lake: Lake, made: int, rate: float, at: float) -> list[Sample]:
    """`made`: messages that the store has."""
    tables = look(lake, None).tables
    found = []
    for table in TABLES:
        there = sum(tables[table.name].positions.values()) if table.name in tables else 0
        found.append(Sample(at, table.name, max(0, made - there) / rate, *extent(lake.path(table))))
    return found


@contextmanager
def _process(words: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as sink, subprocess.Popen(words, stdout=sink, stderr=subprocess.STDOUT) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(LAST)
            except subprocess.TimeoutExpired:
                process.kill()


def measure(folder: Path, rate: float, seconds: float) -> tuple[list[Sample], int]:
    """All samples, and how many rows bronze has too few, or too many, in the end."""
    folder.mkdir(parents=True, exist_ok=True)
    samples: list[Sample] = []
    with RunningNode(folder, log_level="error") as node:
        lake_folder = folder / "lake"
        pipeline = [sys.executable, "-m", "headwater", "pipeline", "run", "--lake", str(lake_folder)]
        fleet = [sys.executable, "-m", "headwater_lab.pipeline_load", "--port", str(node.port)]
        with (
            _process([*pipeline, "--url", node.url, "--master", "local[2]"], folder / "pipeline.log") as running,
            _process([*fleet, "--rate", str(rate), "--seconds", str(seconds)], folder / "fleet.log") as sending,
        ):
            began = time.monotonic()
            lake = Lake(lake_folder)
            reader = StoreReader(node.url)
            while sending.poll() is None:
                time.sleep(EVERY)  # how often is looked, and not something that is waited for
                if running.poll() is not None:
                    raise PipelineError(f"the pipeline has ended: {(folder / 'pipeline.log').read_text()[-500:]}")
                if lake.exists():
                    made = reader.status()["next"] - 1
                    samples += samples_of(lake, made, rate, time.monotonic() - began)
            said = (folder / "fleet.log").read_text()
            if sending.returncode:
                raise PipelineError(f"the fleet was not acknowledged: {said}")
            return samples, _missing(lake, json.loads(said)["sent"])


def _missing(lake: Lake, sent: int) -> int:
    deadline = time.monotonic() + LAST
    while True:
        rows = look(lake, None).rows
        if rows == sent or time.monotonic() > deadline:
            return abs(sent - rows)
        time.sleep(0.1)


def line(part: Part) -> str:
    when = f"{part.start / 60:.1f}-{part.end / 60:.1f}"
    lags = f"{part.lag_median:>10.1f} s{part.lag_most:>10.1f} s"
    return f"{when:<12}{part.table:<12}{lags}{part.files:>10,}{part.bytes:>16,}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench pipeline-lag", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=MINUTES, help="how long messages come  [default: 15]")
    parser.add_argument("--rate", type=float, default=RATE, help="messages a second  [default: 1000]")
    parser.add_argument("--folder", type=Path, help="for everything; else one that is removed in the end")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    given = parser.parse_args(arguments)
    seconds = 60 * given.minutes
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as scratch:
        try:
            samples, missing = measure(given.folder or Path(scratch), given.rate, seconds)
        except PipelineError as error:
            print(f"scripts/bench pipeline-lag: {error}", file=sys.stderr)
            return 1
    parts = parts_of(samples, min(STARTING, seconds / 2), seconds)
    print(HEAD)
    for part in parts:
        print(line(part))
    print(f"bronze has {missing:,} rows too few or too many for what was sent")
    if given.json:
        write_json(given.json, _result(given.rate, given.minutes, parts, samples, missing))
    return 1 if missing else 0


def _result(
    rate: float, minutes: float, parts: Sequence[Part], samples: Sequence[Sample], missing: int
) -> Mapping[str, object]:
    return {
        "machine": machine.describe("scripts/bench pipeline-lag"),
        "rate": rate,
        "minutes": minutes,
        "missing": missing,
        "parts": [asdict(part) for part in parts],
        "samples": [asdict(sample) for sample in samples],
    }


if __name__ == "__main__":
    sys.exit(main())
