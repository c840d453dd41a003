"""Stores that are to be landed by a Spark elsewhere, and what has come of them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from headwater.store.memory import MemoryStore
from headwater_lab.reproduce.balance.grid import run_point
from tests.pipeline.landing import GRID
from tests.store.messages import NOON, SECOND
from tests.store.rest.served import EVERYTHING, serving

ROOT = Path(__file__).parent.parent.parent
STORES = ("north", "south")
MESSAGES = 200
"""Of each store."""
SOURCE = {"maxRowsPerTrigger": "200", "rowsPerPartition": "50"}
"""Two batches, each of two partitions of each store."""
BATCHES = 2
PATIENCE = 300.0

Row = tuple[str, int, str, bytes]


@contextlib.contextmanager
def served_stores() -> Iterator[str]:
    """Their addresses, as the source wants them."""
    with contextlib.ExitStack() as stack:
        urls = []
        for store in STORES:
            served = stack.enter_context(serving(MemoryStore(store)))
            for _, position, topic, payload in rows_of(store):
                served.writer.take(topic, payload, arrival=NOON + position * SECOND)
            served.writer.sync()
            urls.append(served.url)
        yield ",".join(urls)


def rows_of(store: str) -> list[Row]:
    return [(store, each, "ab"[each % 2], f"{store} {each}".encode()) for each in range(1, MESSAGES + 1)]


def run_client(master: str, url: str, folder: Path, python: Path, settings: Mapping[str, str]) -> dict[str, Any]:
    """What tests.pipeline.landing says, run against that master whose tasks have that Python."""
    given = {"master": master, "url": url, "token": EVERYTHING, "folder": str(folder), "source": SOURCE}
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
    }
    words = [sys.executable, "-m", "tests.pipeline.landing", json.dumps({**given, "settings": dict(settings)})]
    done = subprocess.run(
        words, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def check_landed(said: Mapping[str, Any], folder: Path) -> None:
    """Tasks did not have our package, then they had; a sweep came out as here; every message is in bronze once, in as
    many batches as were to be, and is read from there."""
    assert said["before"] == ["nowhere"]
    assert said["after"] != [] and all("headwater.zip" in each for each in said["after"])
    assert said["messages"] == len(STORES) * MESSAGES // 2
    assert said["swept"] == [run_point(each).mean_ms for each in GRID]
    table = DeltaTable(folder / "bronze").to_pyarrow_table(columns=["store", "position", "topic", "payload"])
    landed = sorted(tuple(row.values()) for row in table.to_pylist())
    assert landed == sorted(row for store in STORES for row in rows_of(store))
    assert said["read"] == [[store, each] for store, each, topic, _ in landed if topic == "a"]
    assert len([each for each in (folder / "checkpoint" / "commits").iterdir() if each.name.isdecimal()]) == BATCHES
