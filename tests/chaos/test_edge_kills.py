"""Filters move from node to node of an edge while its nodes are killed and cut off, and it keeps its promises; nodes
that do not are found.

A slice of `scripts/bench edge-chaos`, in a process of its own, because it forks.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater.disk.crash_points import EDGE_POINTS
from headwater_lab.edge_chaos.broken import BROKEN

PATIENCE = 600.0
PROMISES = ("lost", "stored_twice", "device_reconnects", "disorder", "unreadable")


def chaos(folder: Path, faults: int, seed: int, *arguments: str) -> tuple[int, dict[str, float], dict[str, Any]]:
    """Exit code, figures and all else."""
    result = folder / "result.json"
    words = [sys.executable, "-m", "headwater_lab.edge_chaos", "--keep", str(folder), "--json", str(result)]
    words += ["--kills", str(faults), "--per-episode", str(faults), "--seed", str(seed), "--nodes", "3"]
    words += ["--network", "relay", "--no-receiving", *arguments]
    finished = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert finished.returncode in (0, 1), finished.stderr
    assert result.exists(), finished.stderr
    figures = {each["name"]: each["ours"] for each in json.loads(result.read_text())}
    facts = json.loads((folder / "result-facts.json").read_text())
    return finished.returncode, figures, next(facts[name] for name in facts if name != "machine")


def test_nothing_is_lost_and_nothing_stored_twice_while_filters_move(tmp_path: Path) -> None:
    code, figures, facts = chaos(tmp_path, 6, 5, "--fault", "kill -9 in a move", "--fault", "link cut")
    assert facts["failures"] == []
    assert code == 0
    assert facts["kills"] >= 6
    assert sum(facts["hits"][point] for point in EDGE_POINTS) >= 2, "kills at steps of a move"
    assert all(figures[f"split/{name}"] == 0 for name in PROMISES)
    assert figures["split/pause_ms_max"] > 0
    assert facts["moves taken"] > 3
    assert facts["messages stored"] > 0.9 * facts["messages acknowledged"] > 0
    assert facts["deliveries"] > facts["messages acknowledged"]


FOUND = {
    "deaf": ("held in a move", 3, {"unreadable", "not stored"}),
    "hasty": ("old owner cut off in a move", 5, {"out of order"}),
    "early-end": ("old owner cut off in a move", 3, {"unreadable"}),
    "greedy": ("link cut in one direction", 3, {"not stored"}),
    "impolite": ("link cut in one direction", 3, {"device reconnects"}),
}


def test_all_that_are_broken_are_to_be_found() -> None:
    assert FOUND.keys() == BROKEN.keys()


@pytest.mark.parametrize("broken", FOUND)
def test_nodes_that_break_a_promise_are_found(broken: str, tmp_path: Path) -> None:
    fault, faults, kinds = FOUND[broken]
    code, _, facts = chaos(tmp_path, faults, 2, "--broken", broken, "--fault", fault)
    assert code == 1
    assert any(facts["violations"][kind] for kind in kinds), facts["failures"]
    assert (tmp_path / broken / "seed-2" / "history.ndjson").exists()
