"""Every way for a pipeline to die has its turn, and orders reach the processes that are to die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

from headwater.disk.crash_points import PIPELINE_POINTS
from headwater_lab.pipeline_chaos.aims import EVERYTHING, FIRST, PLACES, RANDOM, SLOW, Aims
from headwater_lab.pipeline_chaos.orders import Orders, Struck

PASSING = """
from headwater.disk.crash_points import crash_point
for _ in range(3):
    crash_point("pipeline-before-commit", "gold")
"""


def test_every_point_of_the_pipeline_is_aimed_at() -> None:
    assert {place.partition("/")[0] for place in EVERYTHING} - set(RANDOM) == set(PIPELINE_POINTS)


def test_each_has_its_turn_before_any_has_another() -> None:
    aims, random = Aims(), Random(1)
    whole = [aims.next(random) for _ in range(len(PLACES) + len(RANDOM))]
    assert sorted(whole) == sorted((*PLACES, *RANDOM))
    beside = [order for _ in SLOW for order in aims.beside(random)]
    assert sorted(beside) == sorted(f"{place}:1" for place in SLOW)
    assert any(order.startswith(FIRST) for order in aims.first(random))


def test_what_was_missed_comes_again_and_strikes_at_once() -> None:
    aims, random = Aims(("pipeline-before-read",)), Random(1)
    assert aims.next(random) == "pipeline-before-read"
    aims.missed("pipeline-before-read")
    assert aims.next(random) == "pipeline-before-read"
    assert {aims.order("pipeline-before-read", random) for _ in range(20)} == {"pipeline-before-read:1"}
    assert aims.first(random) == aims.beside(random) == []


def test_what_is_never_reached_keeps_nobody_from_having_a_turn() -> None:
    aims, random = Aims(("pipeline-before-read", "pipeline-in-tidy")), Random(1)
    reached = 0
    for _ in range(30):
        if aims.next(random) == "pipeline-in-tidy":
            aims.missed("pipeline-in-tidy")
        else:
            reached += 1
    assert reached >= 10


def test_orders_are_carried_out_withdrawn_and_told_once(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    orders.give("pipeline-before-commit/gold:2", "pipeline-before-read:1")
    process = subprocess.Popen(
        [sys.executable, "-c", PASSING],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **orders.environment},
    )
    assert process.wait(60) == -signal.SIGKILL
    assert orders.struck() == [Struck("pipeline-before-commit", "gold", process.pid)]
    assert orders.struck() == []
    assert orders.withdraw() == ["pipeline-before-read:1"]
    assert orders.withdraw() == []
