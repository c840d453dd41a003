"""What is next: each way to die in its turn, in random order."""

from __future__ import annotations

from random import Random
from typing import Final

from headwater.disk.crash_points import ICEBERG_POINTS, PIPELINE_POINTS

DRIVER: Final = "driver at a random moment"
JAVA: Final = "Java at a random moment"
WORKER: Final = "a Python of Java at a random moment"
NODE: Final = "a node at a random moment"
ALL: Final = "all processes of the driver at once"
ASLEEP: Final = "all but one that is about to commit, and goes on later"
LEFT: Final = "the driver, while one is about to commit, which goes on later"
RANDOM: Final = (DRIVER, JAVA, WORKER, NODE, ALL, ASLEEP, LEFT)
STORE: Final = "the object store at a random moment"
STORE_TOO: Final = "the object store and the driver at once"
OF_THE_STORE: Final = (STORE, STORE_TOO)
"""Where the lake is in one. They have their turn more often than others."""

OFTEN: Final = (
    "bronze",
    "dropped",
    "silver_rules",
    "silver",
    "quarantine",
    "latest",
    "gold",
    "gold_short",
    "gold_open",
)
ONCE_A_MINUTE: Final = ("late", "completeness", "operations_traffic", "outcomes")
COMMITS: Final = ("pipeline-before-commit", "pipeline-after-commit")
FILES: Final = ("pipeline-before-file", "pipeline-after-file")
PLACES: Final = (
    "pipeline-before-read",
    *(f"{point}/{table}" for point in FILES for table in ("bronze", "silver", "gold")),
    *(f"{point}/{table}" for point in COMMITS for table in OFTEN),
    "pipeline-before-reader",
    "pipeline-after-reader",
    "pipeline-after-columns/silver",
    "pipeline-in-tidy",
)
"""Reached within seconds."""
SLOW: Final = tuple(f"{point}/{table}" for point in COMMITS for table in ONCE_A_MINUTE)
FIRST: Final = "pipeline-after-names"
"""Reached only when a lake is new."""
EVERYTHING: Final = (*PLACES, *RANDOM, *SLOW, FIRST)
FEW: Final = (*(point for point in PIPELINE_POINTS if point != FIRST), DRIVER, JAVA, WORKER, NODE, ASLEEP)
"""One of each, for who has little time."""

EXECUTOR: Final = "an executor at a random moment"
EXECUTOR_WHILE: Final = "an executor, while one is at "
"""And then a crash point: the executor that its process belongs to, or any, if that is one of the driver's."""
ON_A_CLUSTER: Final = (
    *(EXECUTOR,) * 6,
    *(f"{EXECUTOR_WHILE}{point}" for point in PIPELINE_POINTS if point != FIRST),
    *(DRIVER, JAVA, WORKER, NODE, ALL, ASLEEP),
    *("pipeline-after-file", "pipeline-after-commit/bronze"),
)
"""Where executors are processes of their own, on which tasks are run again while the driver lives on."""

WITH_ICEBERG: Final = (
    *(f"{point}/{table}" for point in ICEBERG_POINTS for table in ("bronze", "silver", "gold", "latest")),
    *(DRIVER, ALL, ASLEEP, "pipeline-after-commit/bronze", "pipeline-after-columns/silver", "pipeline-in-tidy"),
)
"""Where tables are told to a catalog of Iceberg."""

MOST_NAMES: Final = 6
BOUND: Final = 4
"""How often a place is passed at most before it strikes."""


class Aims:
    """A place that was not reached in time has its turn again after all others, and strikes when it is reached first;
    if it is not reached then either, it waits for the next time that all have theirs."""

    def __init__(self, aims: tuple[str, ...] = EVERYTHING) -> None:
        self._all = tuple(aim for aim in aims if aim not in (FIRST, *SLOW))
        self._beside = tuple(aim for aim in aims if aim in SLOW)
        self._begins_with_names = FIRST in aims
        self._turns: list[str] = []
        self._missed: set[str] = set()
        self._slow: list[str] = []

    def next(self, random: Random) -> str:
        if not self._turns:
            self._turns = list(self._all)
            random.shuffle(self._turns)
        return self._turns.pop()

    def order(self, place: str, random: Random) -> str:
        """For a crash point; it may say itself when it strikes, as `pipeline-before-read:1`."""
        if ":" in place:
            return place
        rare = place in self._missed or place.startswith(("pipeline-after-columns", "pipeline-in-tidy"))
        return f"{place}:{1 if rare else random.randint(1, BOUND)}"

    def first(self, random: Random) -> list[str]:
        """Orders for a new lake."""
        names = [f"{FIRST}:{random.randint(1, MOST_NAMES)}"] if self._begins_with_names else []
        return [*names, *self.beside(random)]

    def beside(self, random: Random) -> list[str]:
        """An order of those for which nobody can wait: it strikes some time. None, if there are none."""
        if not self._slow:
            self._slow = list(self._beside)
            random.shuffle(self._slow)
        return [f"{self._slow.pop()}:1"] if self._slow else []

    def missed(self, place: str) -> None:
        self._missed.add(place)
        if self._turns:
            self._turns.insert(0, place)
