"""The sessions at a proxy's own broker that outlive their connections: by client id, with the claim that each is from,
and when it ends. Wall time, since it outlives the proxy as well. Bytes are bounded; a session for which there is no
room is one of its broker alone, to which nobody is led.
"""

from __future__ import annotations

import heapq
import struct
from typing import Final, NamedTuple

from headwater.peering.frames.frame import MalformedFrame
from headwater.peering.retained.clock import Stamp
from headwater.wire.primitives import FOR_EVER

EACH: Final = 400
"""Bytes that one counts with beside its client id."""
_RECORD: Final = struct.Struct(">QId")


class Resident(NamedTuple):
    stamp: Stamp
    expiry: int
    """Seconds that it outlives its connection by."""
    until: float
    """0: its client is there, or it does not end by itself."""


def record_of(resident: Resident) -> bytes:
    return _RECORD.pack(resident.stamp.time, resident.expiry, resident.until)


def resident_in(record: bytes, node: str, wall: float) -> Resident:
    """As a proxy finds it that has just started: all connections ended at the latest now."""
    if len(record) != _RECORD.size:
        raise MalformedFrame("malformed record of a session at the home broker")
    time, expiry, until = _RECORD.unpack(record)
    if not until and expiry != FOR_EVER:
        until = wall + expiry
    return Resident(Stamp(time, node), expiry, until)


class Residents:
    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.bytes = 0
        self._residents: dict[str, Resident] = {}
        self._ends: list[tuple[float, str]] = []
        """A heap; an entry counts if the resident still ends then."""

    def put(self, client_id: str, resident: Resident) -> bool:
        """False: there is no room."""
        if client_id not in self._residents:
            size = _size(client_id)
            if self.bytes + size > self.most_bytes:
                return False
            self.bytes += size
        self._residents[client_id] = resident
        if resident.until:
            heapq.heappush(self._ends, (resident.until, client_id))
            if len(self._ends) > 2 * len(self._residents) + 64:
                self._ends = [(each.until, name) for name, each in self._residents.items() if each.until]
                heapq.heapify(self._ends)
        return True

    def get(self, client_id: str) -> Resident | None:
        return self._residents.get(client_id)

    def remove(self, client_id: str) -> bool:
        found = self._residents.pop(client_id, None)
        if found is not None:
            self.bytes -= _size(client_id)
        return found is not None

    def ended(self, wall: float) -> str | None:
        """The client id of one whose time is over, or None."""
        while self._ends and self._ends[0][0] <= wall:
            until, client_id = heapq.heappop(self._ends)
            found = self._residents.get(client_id)
            if found is not None and found.until == until:
                return client_id
        return None

    def items(self) -> list[tuple[str, Resident]]:
        return list(self._residents.items())

    def __len__(self) -> int:
        return len(self._residents)


def _size(client_id: str) -> int:
    return EACH + (len(client_id) if client_id.isascii() else 4 * len(client_id))
