"""Brokers of three makes and their proxies are killed and cut, and nothing that was acknowledged is lost; what a make
loses is found.

A slice of `scripts/bench proxy-chaos`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from headwater_lab.makes.nodes import MAKES
from tests.makes.conftest import there

PATIENCE = 400.0
MOST_TRIES = 5
NAMES = ("acknowledged_lost", "loops", "qos2_twice", "stuck")


def chaos(folder: Path, makes: list[str], faults: int, seed: int, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and result."""
    for make in MAKES:
        if make.name in makes:
            there(make)
    folder.mkdir(exist_ok=True)
    result = folder / "result.json"
    words = [sys.executable, "-m", "headwater_lab.proxy_chaos", "--keep", str(folder), "--json", str(result)]
    words += ["--kills", str(faults), "--per-episode", str(faults), "--seed", str(seed), "--makes", *makes, *arguments]
    finished = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert finished.returncode in (0, 1), finished.stderr
    return finished.returncode, json.loads(result.read_text())["fabric"]


def test_nothing_is_lost_between_makes(tmp_path: Path) -> None:
    code, result = chaos(tmp_path, ["mosquitto", "rabbitmq", "headwater"], 3, 5, "--settle", "10")
    assert result["failures"] == []
    assert code == 0
    assert result["figures"] == dict.fromkeys(NAMES, 0)
    assert sum(result["faults"].values()) >= 1
    assert result["messages acknowledged"] > 300


def test_a_broker_that_loses_is_found(tmp_path: Path) -> None:
    """Mosquitto writes every half hour: `kill -9` loses what it acknowledged, if it had not passed it on yet."""
    for seed in range(2, MOST_TRIES + 2):  # the first of these has a kill of Mosquitto
        code, result = chaos(tmp_path / str(seed), ["mosquitto", "headwater"], 3, seed, "--settle", "5", "--kill-any")
        assert code == (result["figures"]["acknowledged_lost"] > 0)
        if code:
            return
    raise AssertionError(f"Mosquitto lost nothing in {MOST_TRIES} campaigns, or nobody saw it")
