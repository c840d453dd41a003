"""Who is to die where: orders for crash points, which the first process that gets there carries out
(disk/crash_points.py)."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import NamedTuple

from headwater.disk.crash_points import VARIABLE


class Struck(NamedTuple):
    """An order that was carried out: where, by which process, and what the place was about."""

    point: str
    about: str
    process: int

    @property
    def place(self) -> str:
        return self.point if self.about == "-" else f"{self.point}/{self.about}"


class Orders:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "orders"
        self._done = folder / "orders.done"
        self._go = folder / "orders.go"
        self._path.touch()
        self._seen = 0

    @property
    def environment(self) -> dict[str, str]:
        """Of processes that obey."""
        return {VARIABLE: f"@{self._path}"}

    def give(self, *orders: str) -> None:
        """Besides those that there are."""
        with self._path.open("a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write("".join(f"{order}\n" for order in orders))

    def withdraw(self) -> list[str]:
        """All of them; what they were."""
        with self._path.open("r+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            found = file.read().split()
            file.truncate(0)
        return found

    def hold(self, place: str) -> None:
        """The next who gets there waits, until it is told to go on."""
        self._go.unlink(missing_ok=True)
        self.give(f"{place}:1~")

    def go_on(self) -> None:
        self._go.touch()

    def struck(self) -> list[Struck]:
        """What was carried out since this was asked last."""
        try:
            lines = self._done.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        new, self._seen = lines[self._seen :], len(lines)
        return [Struck(point, about, int(process)) for point, about, process in map(str.split, new)]
