"""What came by MQTT and is not written yet: bounded, since the store has it too."""

from __future__ import annotations

from headwater.edge.copies import Copy


class Held:
    """Copies by position, of at most about `most` bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._copies: dict[int, Copy] = {}
        self._size = 0

    def __contains__(self, position: int) -> bool:
        return position in self._copies

    @property
    def size(self) -> int:
        return self._size

    @property
    def is_full(self) -> bool:
        return self._size >= self._most

    def add(self, copy: Copy) -> None:
        """One more, even if it is full."""
        self._copies[copy.position] = copy
        self._size += copy.size

    def take(self, before: int) -> dict[int, Copy]:
        """Those before a position, which are not held any more."""
        copies, self._copies, self._size = self._copies, {}, 0
        taken: dict[int, Copy] = {}
        for copy in copies.values():
            if copy.position < before:
                taken[copy.position] = copy
            else:
                self.add(copy)
        return taken
