"""A node in a process of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.fleet.node import RunningNode
from headwater.fleet.process import BrokerError
from headwater.store.reader import StoreReader


def test_it_serves_both_and_has_cpu_time(tmp_path: Path) -> None:
    with RunningNode(tmp_path) as node:
        reader = StoreReader(node.url)
        assert reader.publish("a", b"1") == 1
        first = node.cpu_seconds()
        for _ in range(20):
            reader.status()
        assert 0.05 < first < node.cpu_seconds() < 60.0
        process = node.pids()[0]
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert (tmp_path / "data" / "messages").is_dir()


def test_a_node_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="unknown setting"):
        RunningNode(tmp_path, options=["--set", "nonsense=1"])
