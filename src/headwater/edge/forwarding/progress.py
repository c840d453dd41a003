"""How far a forward has come, as it is kept: what is owed to the target, and what may be under way to it.

`live` is the first position that was not looked at. Below it, a message is owed if it lies in `owed` of its class
(lanes.py); all others are settled. `sent` and `releasing` are the packet ids of QoS 2 that the target may know: those
whose messages may have been sent and were not confirmed, with where they are from, and those that were confirmed and
have to be released. `target` says who that is, `wishes` by which filters the classes were made: under other ones the
ids mean nothing, and of the ranges only that something in them is owed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from headwater.disk.crash_points import crash_point
from headwater.disk.errors import StorageError
from headwater.disk.files import sync_folder, write_whole
from headwater.edge.forwarding.ranges import Range, Ranges, union

FORMAT: Final = "headwater-forward"
SCHEMA: Final = 1


class Span(NamedTuple):
    """A message of a class at `position`; nothing else of its class is in `start` ≤ position < `stop`."""

    position: int
    start: int
    stop: int
    urgency: int


@dataclass
class Progress:
    store: str
    live: int
    owed: list[Ranges]
    wishes: list[Any] = field(default_factory=list)
    target: str = ""
    sent: dict[int, Span] = field(default_factory=dict)
    releasing: set[int] = field(default_factory=set)
    is_changed: bool = False
    """Since it was saved."""

    @property
    def position(self) -> int:
        """Up to here nothing is owed."""
        firsts = [ranges.first for ranges in self.owed]
        return min([self.live, *(first for first in firsts if first is not None)]) - 1

    def cut_off(self, end: int) -> None:
        """There is nothing from `end` on."""
        for owed in self.owed:
            owed.remove(end, max(end, self.live))
        self.live = min(self.live, end)
        self.releasing |= {packet_id for packet_id, span in self.sent.items() if span.position >= end}
        self.sent = {packet_id: span for packet_id, span in self.sent.items() if span.position < end}

    def meant_for(self, target: str) -> None:
        """Another target knows none of the ids; what was under way is owed to it."""
        if target != self.target:
            self.target, self.sent, self.releasing = target, {}, set()

    def wished(self, wishes: list[Any], classes: int) -> None:
        """With other filters or priorities, what is owed may be of any class."""
        if wishes != self.wishes or classes != len(self.owed):
            all_owed = union(self.owed)
            self.wishes, self.owed = wishes, [Ranges(all_owed) for _ in range(classes)]
            self.releasing |= self.sent.keys()
            self.sent = {}

    def written(self) -> bytes:
        owed: list[list[Range]] = [list(ranges) for ranges in self.owed]
        fields = {
            "format": FORMAT,
            "schema": SCHEMA,
            "store": self.store,
            "target": self.target,
            "wishes": self.wishes,
            "live": self.live,
            "owed": owed,
            "sent": {str(packet_id): span for packet_id, span in self.sent.items()},
            "releasing": sorted(self.releasing),
        }
        return json.dumps(fields, separators=(",", ":")).encode()


def read(text: bytes) -> Progress:
    """Raises ValueError if that is none of ours."""
    try:
        fields = json.loads(text)
        if fields["format"] != FORMAT or fields["schema"] != SCHEMA:
            raise ValueError("it is of another version")
        return Progress(
            fields["store"],
            fields["live"],
            [Ranges((start, stop) for start, stop in ranges) for ranges in fields["owed"]],
            fields["wishes"],
            fields["target"],
            {int(packet_id): Span(*span) for packet_id, span in fields["sent"].items()},
            set(fields["releasing"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"something is missing: {error}") from None


class ProgressFile:
    """One file, replaced as a whole: after a crash there is the last one or the one before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._new = path.with_name(path.name + ".new")

    def load(self) -> Progress | None:
        """None: there is none yet. Raises StorageError."""
        try:
            return read(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise StorageError(
                f"{self._path} does not say how far the forward has come ({error}); delete it: the forward goes on "
                "behind what its reader has committed, and some messages may arrive twice"
            ) from error

    def save(self, written: bytes) -> None:
        """On disk when it returns. Raises StorageError."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            crash_point("forward-before-save")
            write_whole(self._new, written)
            self._new.replace(self._path)
            sync_folder(self._path.parent)
            crash_point("forward-after-save")
        except OSError as error:
            raise StorageError(f"cannot write {self._path}: {error.strerror or error}") from error
