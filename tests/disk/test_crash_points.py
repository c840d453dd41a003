"""A process dies where it is told to, and not before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.disk.crash_points import POINTS, VARIABLE

PASSING = """
from headwater.disk.crash_points import POINTS, crash_point
for turn in range(3):
    for point in POINTS:
        crash_point(point, "gold")
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
        ("pipeline-in-tidy/gold:2", len(POINTS) + POINTS.index("pipeline-in-tidy")),
    ],
)
def test_a_process_is_killed_there(crash_at: str, expected: int) -> None:
    done = passed(crash_at)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(done.stdout.splitlines()) == expected


@pytest.mark.parametrize("crash_at", ["", "after-trim", "store-after-trim:4", "pipeline-in-tidy/silver"])
def test_nobody_is_killed_elsewhere(crash_at: str) -> None:
    done = passed(crash_at)
    assert done.returncode == (1 if crash_at == "after-trim" else 0), done.stderr
    assert ("there is no point 'after-trim'; there are before-write, " in done.stderr) == (crash_at == "after-trim")


def test_every_point_has_one_name() -> None:
    assert len(set(POINTS)) == len(POINTS)


# ---- orders for many processes -------------------------------------------------------------------------------------


def test_an_order_is_carried_out_once_whoever_gets_there(tmp_path: Path) -> None:
    """Passes are counted over all processes: the third of three, then four of the next, are seven."""
    orders = tmp_path / "orders"
    orders.write_text("after-sync:7\n")
    counts = [passed(f"@{orders}") for _ in range(4)]
    assert [done.returncode for done in counts] == [0, 0, -signal.SIGKILL, 0], counts[0].stderr
    assert len(counts[2].stdout.splitlines()) == POINTS.index("after-sync")
    assert orders.read_text() == ""
    [line] = (tmp_path / "orders.done").read_text().splitlines()
    assert line.split()[:2] == ["after-sync", "gold"]


def test_there_may_be_several_orders_and_none(tmp_path: Path) -> None:
    orders = tmp_path / "orders"
    assert passed(f"@{orders}").returncode == 0
    orders.write_text("before-write/silver\nbefore-acknowledge:2\nafter-write:9\n")
    assert passed(f"@{orders}").returncode == -signal.SIGKILL
    assert orders.read_text() == "before-write/silver:1\nafter-write:7\n"


def test_an_order_may_hold_a_process_which_goes_on_later(tmp_path: Path) -> None:
    orders = tmp_path / "orders"
    orders.write_text("after-sync:2~\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), VARIABLE: f"@{orders}"}
    words = [sys.executable, "-c", PASSING]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        before = [process.stdout.readline() for _ in range(len(POINTS) + POINTS.index("after-sync"))]
        assert before[-1].split() == ["1", "after-write"]
        (tmp_path / "orders.go").touch()
        rest = process.stdout.readlines()
    assert process.returncode == 0
    assert (tmp_path / "orders.done").read_text().split() == ["after-sync", "gold", str(process.pid)]
    assert len(before) + len(rest) == 3 * len(POINTS)
