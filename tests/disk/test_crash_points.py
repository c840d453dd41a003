"""A process dies where it is told to, and not before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from headwater.disk.crash_points import BROKER_POINTS, POINTS, STORE_POINTS, VARIABLE

PASSING = """
from headwater.disk.crash_points import POINTS, crash_point
for turn in range(3):
    for point in POINTS:
        crash_point(point)
        print(turn, point, flush=True)
"""


def passed(crash_at: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), VARIABLE: crash_at}
    words = [sys.executable, "-c", PASSING]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("crash_at", "expected"),
    [
        ("before-write", 0),
        ("after-sync:2", len(POINTS) + POINTS.index("after-sync")),
        ("store-in-seal:3", 2 * len(POINTS) + POINTS.index("store-in-seal")),
    ],
)
def test_a_process_is_killed_there(crash_at: str, expected: int) -> None:
    done = passed(crash_at)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(done.stdout.splitlines()) == expected


@pytest.mark.parametrize("crash_at", ["", "after-trim", "store-after-trim:4"])
def test_nobody_is_killed_elsewhere(crash_at: str) -> None:
    done = passed(crash_at)
    assert done.returncode == (1 if crash_at == "after-trim" else 0), done.stderr
    assert ("there is no point 'after-trim'; there are before-write, " in done.stderr) == (crash_at == "after-trim")


def test_every_point_has_one_name() -> None:
    assert len(set(POINTS)) == len(BROKER_POINTS) + len(STORE_POINTS)
