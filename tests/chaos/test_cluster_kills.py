"""Nodes of a cluster are killed, stopped and cut off, and it keeps its promises; one that does not is found.

A slice of `scripts/bench cluster-chaos`, in a process of its own, because it forks.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PATIENCE = 600.0
PROMISES = (
    *("acknowledged_lost", "qos2_twice", "retained_divergent", "wills_twice", "wills_missing", "group_twice", "stuck"),
)


def chaos(folder: Path, disk: str, faults: int, seed: int, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and result."""
    result = folder / "result.json"
    words = [sys.executable, "-m", "headwater_lab.cluster_chaos", "--keep", str(folder), "--json", str(result)]
    words += ["--disk", disk, "--kills", str(faults), "--per-episode", str(faults), "--seed", str(seed)]
    words += ["--network", "relay", *arguments]
    finished = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert finished.returncode in (0, 1), finished.stderr
    assert result.exists(), finished.stderr
    return finished.returncode, json.loads(result.read_text())[disk]


def test_nothing_is_lost_and_nothing_doubled_between_nodes(tmp_path: Path) -> None:
    code, result = chaos(tmp_path, "sync", 4, 5, "--nodes", "3")
    assert result["failures"] == []
    assert code == 0
    assert result["kills"] >= 4
    assert len(result["faults"]) >= 3
    assert all(result["figures"][name] == 0 for name in PROMISES)
    assert result["figures"]["heal/p99_s"] > 0
    assert result["figures"]["takeover/p99_ms"] > 0
    assert result["moves"] > 0
    assert result["wills"] > 0
    assert result["messages acknowledged"] > 0
    assert result["deliveries"] > 3 * result["messages acknowledged"]
    assert result["healed in s"]["all"]["times"] > 0


def test_nodes_that_acknowledge_too_early_are_found(tmp_path: Path) -> None:
    words = ("--fault", "kill -9", "--nodes", "3", "--session-lost", "wait")
    code, result = chaos(tmp_path, "lying-disk", 5, 1, *words)
    assert code == 1
    assert result["violations"]["lost"] > 0
    assert (tmp_path / "lying-disk" / "seed-1" / "history.ndjson").exists()
