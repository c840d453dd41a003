"""A node's end of a link, with what the node knows of it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from headwater.peering.frames.frame import Run
from headwater.peering.frames.reading import FrameReader
from headwater.peering.liveness import Liveness
from headwater_lab.peering_simulation.network import End

if TYPE_CHECKING:
    from headwater_lab.peering_simulation.world import Subscriber

BEAT: Final = 0.5
PATIENCE: Final = 1.6


class Connection:
    def __init__(self, end: End, now: float) -> None:
        self.end = end
        self.reader = FrameReader(1 << 16)
        self.is_up = False
        self.sent = 0
        self.liveness = Liveness(now, BEAT, PATIENCE)
        self.held: deque[Run] = deque()
        """QoS ≥ 1 runs that wait for room in spools."""


class Waiting(NamedTuple):
    """A subscriber whose SUBACK is held."""

    subscriber: Subscriber
    asked: float
