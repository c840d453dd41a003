"""The memory of the HTTP process: kept while there is work, given back after it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from headwater.node.http import memory
from headwater.node.http.memory import BETWEEN, GivingBack

FAULTS = """
import resource
from headwater.node.http.memory import ARENAS
from headwater.node.operations.process import keep_what_is_freed
%s
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    bytes(bytearray(3_000_000))
before = faults()
for _ in range(100):
    bytes(bytearray(3_000_000))
print(faults() - before)
"""

GIVEN_BACK = """
import os
from headwater.node.http.memory import ARENAS, give_back
from headwater.node.operations.process import keep_what_is_freed
keep_what_is_freed(ARENAS)
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
rows = [os.urandom(100_000) for _ in range(1000)]
kept = rows[::20]  # between what is freed
del rows
before = resident()
give_back()
print(before - resident())
"""


def said(program: str) -> int:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_memory_is_kept_for_the_next_answer() -> None:
    assert said(FAULTS % "keep_what_is_freed(ARENAS)") < 10_000 < said(FAULTS % "")


def test_what_is_free_between_what_is_in_use_is_given_back() -> None:
    assert said(GIVEN_BACK) > 50_000_000


class Clock:
    """A loop of which only timers are used."""

    def __init__(self) -> None:
        self.due: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, seconds: float, work: Callable[[], None]) -> None:
        self.due.append((seconds, work))

    def ring(self) -> None:
        [(seconds, work)] = self.due
        assert seconds == BETWEEN
        self.due.clear()
        work()


def test_memory_is_given_back_after_work(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []
    worked = 7.0
    monkeypatch.setattr(memory, "give_back", lambda: given.append(worked))
    monkeypatch.setattr(memory.time, "process_time", lambda: worked)
    clock: Any = Clock()
    GivingBack(clock).start()
    clock.ring()
    assert given == [], "there was none"
    worked = 8.0
    clock.ring()
    clock.ring()
    assert given == [8.0]
    worked = 9.0
    clock.ring()
    assert given == [8.0, 9.0]
