"""What a process was promised before it was killed, as it has told.

begin N          the store is open, and the next position is N
acknowledged N   all before N is on disk: sync has returned
seen N           all before N could be read
trimmed N        all before N is gone
reader NAME N    a reader is about to commit N, or -1: is about to be forgotten
committed NAME   that has returned
synced FILE N    so many bytes of the log are surely on disk
wrong TEXT       something was not as it should be
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

FORGOTTEN: Final = -1


@dataclass(slots=True)
class Account:
    """`end` is behind the last position that must be there; `first` is that of the first that may be."""

    seed: int
    hard_limit: bool = False
    life: int = 0
    id: str | None = None
    first: int = 1
    end: int = 1
    runs: list[tuple[int, int]] = field(default_factory=lambda: [(1, 0)])
    """From a position on, until the next, messages are of this life."""
    readers: dict[str, set[int]] = field(default_factory=dict)
    """Where each may be; FORGOTTEN: it may be unknown."""
    asked: dict[str, int] = field(default_factory=dict)
    """What each was last about to do."""
    synced: tuple[str, int] = ("", 0)
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def hear(self, line: str) -> None:
        what, _, rest = line.partition(" ")
        self.counts[what] += 1
        if what == "wrong":
            self.wrong.append(rest)
        elif what == "reader":
            name, position = rest.split()
            self.readers.setdefault(name, {FORGOTTEN}).add(int(position))
            self.asked[name] = int(position)
        elif what == "committed":
            self.readers[rest] = {self.asked[rest]}
        elif what == "synced":
            name, size = rest.split()
            self.synced = max(self.synced, (name, int(size)))
        else:
            self._heard_position(what, int(rest))

    def _heard_position(self, what: str, position: int) -> None:
        if what == "begin":
            if position < self.end:
                self.wrong.append(f"lost: the next position is {position}, and {self.end - 1} was promised")
            self.runs = [run for run in self.runs if run[0] < position] + [(position, self.life)]
        elif what == "trimmed":
            self.first = max(self.first, position)
        else:
            self.end = max(self.end, position)

    def life_of(self, position: int) -> int:
        return self.runs[bisect_right(self.runs, position, key=lambda run: run[0]) - 1][1]

    def found(self, what: dict[str, Any]) -> None:
        """What was examined is promised from now on."""
        self.wrong += what["wrong"]
        if "next" in what:
            self.id, self.first, self.end = what["id"], what["first"], max(self.end, what["next"])
            self.readers = {name: {position} for name, position in what["readers"].items()}
