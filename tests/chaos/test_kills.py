"""The broker is killed at every named point and at random moments, and keeps its promises; ones that do not are found.

A slice of `scripts/bench chaos`, in a process of its own, because it forks.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater.disk.crash_points import BROKER_POINTS

PATIENCE = 600.0
COMMAND = f"{sys.executable} -m headwater broker --port {{port}} --data-dir {{data}} --durability sync"


def kill(folder: Path, kills: int, *arguments: str, broker: str = "") -> tuple[int, dict[str, Any]]:
    """Exit code and result."""
    chosen = ["--broker", broker] if broker else []
    code, result = chaos(folder, "--kills", str(kills), "--cuts", "0", *chosen, *arguments)
    return code, result[broker or "command"]


def chaos(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    result = folder / "result.json"
    words = [sys.executable, "-m", "headwater_lab.chaos", "--keep", str(folder), "--json", str(result), *arguments]
    finished = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert finished.returncode in (0, 1), finished.stderr
    assert result.exists(), finished.stderr
    return finished.returncode, json.loads(result.read_text())


def assert_nothing_was_wrong(code: int, result: dict[str, Any]) -> None:
    assert result["failures"] == []
    assert code == 0
    assert result["messages acknowledged"] > 0
    assert result["deliveries"] > result["messages acknowledged"]


def test_nothing_is_lost_and_nothing_doubled_at_any_point(tmp_path: Path) -> None:
    code, result = kill(tmp_path, 30, "--per-episode", "15", broker="sync")
    assert_nothing_was_wrong(code, result)
    assert result["kills"] == 30
    assert all(result["kills by point"][point] > 0 for point in BROKER_POINTS)
    assert result["friendly ends"] > 0


def test_nothing_is_lost_by_power_cuts(tmp_path: Path) -> None:
    """What was not synced is gone, at the same points."""
    code, result = kill(tmp_path, 20, "--seed", "7", broker="power-cuts")
    assert_nothing_was_wrong(code, result)
    assert all(result["kills by point"][point] > 0 for point in BROKER_POINTS)


def test_nothing_is_lost_as_started_from_the_command_line(tmp_path: Path) -> None:
    code, result = kill(tmp_path, 5, "--command", COMMAND, "--seed", "3")
    assert_nothing_was_wrong(code, result)


@pytest.mark.parametrize("broker", ["async", "lying-disk"])
def test_a_broker_that_acknowledges_too_early_is_found(broker: str, tmp_path: Path) -> None:
    code, result = kill(tmp_path, 10, broker=broker)
    assert code == 1
    assert result["violations"]["lost"] > 0
    assert (tmp_path / broker / "seed-1" / "history.ndjson").exists()
    assert (tmp_path / broker / "seed-1" / "data").exists()


def test_a_log_that_ends_anywhere_leaves_a_broker_of_an_earlier_time(tmp_path: Path) -> None:
    code, result = chaos(tmp_path, "--kills", "-1", "--cuts", "40")
    assert result["log cut"]["failures"] == []
    assert result["log cut"]["cuts"] == 40
    assert code == 0


def test_commits_that_can_be_cut_in_the_middle_are_found(tmp_path: Path) -> None:
    code, result = chaos(tmp_path, "--kills", "-1", "--cuts", "15", "--broker", "torn-batches")
    assert result["log cut"]["failures"] != []
    assert code == 1
