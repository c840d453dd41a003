"""The processes of a pipeline and a node are killed at every named point and at random moments, and each stored message
is in the tables once; sinks that do not keep their promises are found.

A slice of `scripts/bench pipeline-chaos`. That what is sent to a node twice is applied once is tested in
tests/pipeline/operations/test_sender.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater_lab.pipeline_chaos.aims import ASLEEP, EXECUTOR_WHILE

PATIENCE = 600


def pipeline_chaos(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and result."""
    result = folder / "result.json"
    words = [sys.executable, "-m", "headwater_lab.pipeline_chaos", "--keep", str(folder), "--json", str(result)]
    finished = subprocess.run([*words, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert finished.returncode in (0, 1), finished.stderr
    assert result.exists(), finished.stderr
    return finished.returncode, next(
        found for name, found in json.loads(result.read_text()).items() if name != "machine"
    )


def test_each_stored_message_is_in_the_tables_once(tmp_path: Path) -> None:
    """On a cluster: an executor with a file that nobody has committed, the process that commits, and one that commits
    when its driver is long dead."""
    aims = [f"{EXECUTOR_WHILE}pipeline-after-file", "pipeline-after-commit/bronze", ASLEEP]
    words = [word for aim in aims for word in ("--aim", aim)]
    code, result = pipeline_chaos(tmp_path, "--cluster", "--kills", "3", "--nodes", "1", *words)
    assert result["failures"] == []
    assert code == 0
    assert result["kills"] >= 3
    assert result["rows of bronze"] >= result["acknowledged"] > 0
    assert result["were held, and went on"] >= 1
    assert result["executors of those that were held"] == 1


@pytest.mark.parametrize(("sink", "kind"), [("forgetful", "doubled"), ("hasty", "lost")])
def test_a_sink_that_does_not_keep_its_promises_is_found(sink: str, kind: str, tmp_path: Path) -> None:
    words = ["--kills", "1", "--nodes", "1", "--aim", "pipeline-after-commit/bronze:1"]
    code, result = pipeline_chaos(tmp_path, "--sink", sink, *words)
    assert code == 1
    assert result["violations"][kind] == 1
    assert any(tmp_path.glob("seed-*/lake"))
