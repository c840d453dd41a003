"""A node measured from outside: what it takes is compared with what was sent, so a difference must be seen."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from headwater_lab import store_outside
from headwater_lab.store_messages import Readings, readings
from headwater_lab.store_node import Node, cores, on_core, running_node


@pytest.mark.parametrize("qos", [0, 1])
def test_a_message_that_is_not_what_was_sent_is_found(tmp_path: Path, qos: int) -> None:
    asked: list[int] = []

    def rounds() -> Iterable[Readings]:
        """The second time, when they are sent, one message is another one."""
        asked.append(1)
        for each in readings(600, 1, 300):
            if len(asked) == 2:
                each.payload[7] = each.payload[7].replace(b'"C"', b'"F"')
            yield each

    found = store_outside.intake(tmp_path, cores(), rounds, qos, 2)
    assert len(asked) == 2
    assert found.cost.rows == 600 and found.commits >= 1 and found.resident > 0
    assert found.differences == [
        "messages of 1 publishers are not those that were sent, such as those of gateway-07",
    ]


def test_a_node_runs_on_its_core(tmp_path: Path) -> None:
    own, other = cores()
    before = os.sched_getaffinity(0)
    with running_node(tmp_path, own) as node:
        assert os.sched_getaffinity(0) == before
        assert all(os.sched_getaffinity(thread) == {own} for thread in _threads(node))
        with on_core(other):
            assert os.sched_getaffinity(0) == {other}
        assert os.sched_getaffinity(0) == before
        assert node.cpu_seconds() > 0


def _threads(node: Node) -> list[int]:
    pids = node.pids()
    return [int(thread.name) for pid in pids for thread in Path(f"/proc/{pid}/task").iterdir()]
