"""What the clients did and saw, in one order.

An operation has two places in that order, where it was invoked and where it was completed; `NEVER` if no answer came.
An observation has one. Places are for judges, times (seconds since the run began) for people and for intervals.

Memory is bounded: from `limit` entries on, `full` tells workloads to end; from a quarter more on, observations are
counted and not kept, and `overflowed` tells judges that the absence of something proves nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

NEVER: Final = 1 << 60
LIMIT: Final = 1_000_000
"""Entries, of about 200 bytes each."""


class Outcome(StrEnum):
    OK = "ok"
    FAILED = "failed"
    """The broker said no: it did not happen."""
    UNKNOWN = "unknown"
    """It may have happened, may still happen, or never."""


@dataclass(slots=True, kw_only=True)
class Entry:
    client: str = ""
    target: str = ""


@dataclass(slots=True, kw_only=True)
class Operation(Entry):
    invoked: int = NEVER
    completed: int = NEVER
    began: float = 0.0
    ended: float | None = None
    outcome: Outcome = Outcome.UNKNOWN


@dataclass(slots=True, kw_only=True)
class Connect(Operation):
    """CONNECT to CONNACK. `takes_over`: the connection that the client left open when it sent this."""

    connection: int
    clean: bool = False
    present: bool = False
    takes_over: int | None = None


@dataclass(slots=True, kw_only=True)
class Publication(Operation):
    """PUBLISH to PUBACK or PUBREC, over reconnects. A will is invoked with its CONNECT and has no acknowledgement.
    QoS 0 is completed when it was sent, and its outcome stays unknown."""

    message: int
    topic: str
    qos: int
    retain: bool = False
    will_of: int | None = None
    """Connection whose will it is."""
    connection: int = 0
    """On which it was sent first."""
    sendings: int = 1


@dataclass(slots=True, kw_only=True)
class Subscription(Operation):
    """SUBSCRIBE to SUBACK."""

    filter: str
    qos: int
    granted: int = 0


@dataclass(slots=True, kw_only=True)
class Read(Operation):
    """Of a retained message, by a new subscription: `message` is what was shown, 0 if there was nothing. `final`: after
    everything had settled."""

    topic: str
    message: int = 0
    final: bool = False


@dataclass(slots=True, kw_only=True)
class Leave(Operation):
    """DISCONNECT to the end of the connection."""

    connection: int


@dataclass(slots=True, kw_only=True)
class Fault(Operation):
    """From the start of the command that disturbs to the end of that which heals. `said` is what they complained of."""

    name: str
    said: str = ""


@dataclass(slots=True, kw_only=True)
class Observation(Entry):
    place: int = NEVER
    at: float = 0.0


@dataclass(slots=True, kw_only=True)
class Delivery(Observation):
    """A PUBLISH came. `fresh`: it is handed to the application, so not the repetition of an open QoS 2 delivery.
    `message` is 0 for an empty payload, -1 for one that is not ours or damaged."""

    connection: int
    message: int
    topic: str
    qos: int
    dup: bool = False
    retain: bool = False
    fresh: bool = True


@dataclass(slots=True, kw_only=True)
class Ended(Observation):
    """A connection is over. `by_us`: the client closed it; without DISCONNECT unless a `Leave` was invoked before."""

    connection: int
    by_us: bool


@dataclass(slots=True, kw_only=True)
class Oddity(Observation):
    """What no correct broker sends, whatever happened before."""

    text: str


@dataclass(slots=True, kw_only=True)
class Phase(Observation):
    """`load`, `heal`, `settle`, `end`: what begins now."""

    name: str


T = TypeVar("T", bound=Operation)
E = TypeVar("E", bound=Operation | Observation)


class History:
    """`clock` is for tests."""

    def __init__(self, limit: int = LIMIT, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self.entries: list[Operation | Observation] = []
        self.dropped = 0
        self._clock = clock
        self._began = clock()
        self.lasted = 0.0
        """Seconds up to the last note."""
        self._place = 0
        self._messages = 0
        self._connections = 0

    @property
    def now(self) -> float:
        return self._clock() - self._began

    @property
    def full(self) -> bool:
        return len(self.entries) >= self.limit

    @property
    def overflowed(self) -> bool:
        return self.dropped > 0

    def next_message(self) -> int:
        self._messages += 1
        return self._messages

    def next_connection(self) -> int:
        self._connections += 1
        return self._connections

    def invoke(self, operation: T) -> T:
        """Note that it begins now."""
        operation.invoked, operation.began = self._next_place(), self.now
        self.entries.append(operation)
        return operation

    def complete(self, operation: Operation, outcome: Outcome) -> None:
        """Note its outcome. One of which nothing is known stays open: it may happen later."""
        operation.outcome = outcome
        operation.ended = self.now
        if outcome is not Outcome.UNKNOWN:
            operation.completed = self._next_place()

    def observe(self, observation: Observation) -> None:
        if len(self.entries) >= self.limit + self.limit // 4:
            self.dropped += 1
            return
        observation.place, observation.at = self._next_place(), self.now
        self.entries.append(observation)

    def _next_place(self) -> int:
        self.lasted = self.now
        self._place += 1
        return self._place

    def of(self, kind: type[E]) -> Iterator[E]:
        """All entries of a kind, in the order in which they began."""
        return (entry for entry in self.entries if isinstance(entry, kind))

    def lines(self) -> Iterator[str]:
        for entry in self.entries:
            yield json.dumps(as_record(entry))

    def save(self, file: Path) -> None:
        """One JSON object a line, in the order in which they began."""
        with file.open("w", encoding="utf-8") as sink:
            sink.writelines(f"{line}\n" for line in self.lines())


def as_record(entry: Operation | Observation) -> dict[str, object]:
    """For programs; `completed` is null if there was no answer."""
    record: dict[str, object] = {"kind": type(entry).__name__, **asdict(entry)}
    for name in ("began", "ended", "at"):
        if isinstance(value := record.get(name), float):
            record[name] = round(value, 6)
    if record.get("completed") == NEVER:
        record["completed"] = None
    return record


def first_place(entry: Operation | Observation) -> int:
    return entry.invoked if isinstance(entry, Operation) else entry.place


def begin_of(entry: Operation | Observation) -> float:
    return entry.began if isinstance(entry, Operation) else entry.at
