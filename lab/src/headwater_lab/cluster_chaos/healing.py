"""Whether messages come from each node to each other one again, and how long that took."""

from __future__ import annotations

from itertools import permutations

from headwater_lab.chaos.history import History, Received, Sent
from headwater_lab.cluster_chaos.population import STEADY
from headwater_lab.cluster_chaos.world import home


class Healing:
    """Begins with the end of a fault, `at`. Of each two nodes, when the first message arrived that was sent since."""

    def __init__(self, history: History, at: float, nodes: list[str]) -> None:
        self.at = at
        self.arrived: dict[tuple[str, str], float] = {}
        self._history = history
        self._place = len(history.events)
        self._missing = set(permutations(nodes, 2))
        self._first = history.next_message()
        self._sent: dict[int, str] = {}

    def is_over(self) -> bool:
        events = self._history.events
        for event in events[self._place :]:
            if isinstance(event, Sent):
                note = self._history.notes[event.message]
                if note.topic.startswith(STEADY) and event.message >= self._first:
                    self._sent.setdefault(event.message, home(note.publisher))
            elif isinstance(event, Received) and event.message in self._sent:
                pair = (self._sent[event.message], home(event.client))
                if pair in self._missing:
                    self._missing.discard(pair)
                    self.arrived[pair] = event.at
        self._place = len(events)
        return not self._missing

    @property
    def seconds(self) -> float:
        """Of the slowest pair."""
        return max(self.arrived.values()) - self.at

    def __str__(self) -> str:
        return ", ".join(f"{one} to {other}" for one, other in sorted(self._missing))
