"""The delivery store is killed at every named point and at random moments, by itself and in a node, and every position
keeps its bytes; stores that do not keep their promises are found.

A slice of `scripts/bench store-chaos` and of `scripts/bench chaos --broker stored`, in processes of their own, because
they fork.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater.disk.crash_points import BROKER_POINTS, STORE_POINTS
from tests.chaos.test_kills import PATIENCE, assert_nothing_was_wrong, kill

NODE = f"{sys.executable} -m headwater node --port {{port}} --data-dir {{data}} --rest-port {{rest_port}}"


def store_chaos(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and result."""
    result = folder / "result.json"
    words = [sys.executable, "-m", "headwater_lab.store_chaos", "--keep", str(folder), "--json", str(result)]
    finished = subprocess.run([*words, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert finished.returncode in (0, 1), finished.stderr
    assert result.exists(), finished.stderr
    return finished.returncode, json.loads(result.read_text())


@pytest.mark.parametrize("store", ["kills", "power-cuts"])
def test_every_position_keeps_its_bytes(store: str, tmp_path: Path) -> None:
    code, results = store_chaos(tmp_path, "--store", store, "--kills", "20", "--per-episode", "10", "--cuts", "0")
    result = results[store]
    assert result["failures"] == []
    assert code == 0
    assert result["kills"] == 20
    assert all(result["kills by point"][point] > 0 for point in STORE_POINTS)
    assert min(result[what] for what in ("commits acknowledged", "reads", "trims", "readers' commits")) > 0


@pytest.mark.parametrize("store", ["early", "lying-disk"])
def test_a_store_that_says_too_early_that_all_is_on_disk_is_found(store: str, tmp_path: Path) -> None:
    code, results = store_chaos(tmp_path, "--store", store, "--kills", "9", "--per-episode", "3", "--cuts", "0")
    assert code == 1
    assert results[store]["violations"]["lost"] > 0
    assert any((tmp_path / store).glob("seed-*/copy/messages.json"))


def test_a_log_that_ends_anywhere_leaves_a_store_of_an_earlier_time(tmp_path: Path) -> None:
    code, results = store_chaos(tmp_path, "--kills", "0", "--cuts", "80")
    assert results["log cut"]["failures"] == []
    assert results["log cut"]["cuts"] == 80
    assert code == 0


def test_blocks_that_can_be_cut_in_the_middle_are_found(tmp_path: Path) -> None:
    code, results = store_chaos(tmp_path, "--store", "torn-blocks", "--kills", "0", "--cuts", "40")
    assert results["log cut"]["failures"] != []
    assert code == 1


def test_what_a_node_acknowledges_is_stored_once(tmp_path: Path) -> None:
    code, result = kill(tmp_path, 20, broker="stored")
    assert_all_was_stored(code, result)
    assert result["rows read by REST"] > 0
    assert sum(count > 0 for count in result["kills by point"].values()) > len(BROKER_POINTS)


def test_what_a_node_acknowledges_outlives_power_cuts(tmp_path: Path) -> None:
    code, result = kill(tmp_path, 12, "--seed", "2", broker="stored-power-cuts")
    assert_all_was_stored(code, result)


def assert_all_was_stored(code: int, result: dict[str, Any]) -> None:
    assert_nothing_was_wrong(code, result)
    assert result["messages stored"] >= result["messages acknowledged"]


def test_a_node_as_started_from_the_command_line(tmp_path: Path) -> None:
    code, result = kill(tmp_path, 3, "--command", NODE, "--stored")
    assert_all_was_stored(code, result)


@pytest.mark.parametrize("broker", ["stored-async", "stored-early"])
def test_a_node_that_acknowledges_too_early_is_found(broker: str, tmp_path: Path) -> None:
    code, result = kill(tmp_path, 5, broker=broker)
    assert code == 1
    assert result["violations"]["not stored"] > 0
    assert result["violations"]["changed"] > 0
