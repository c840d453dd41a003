"""Telling echoes from messages: what was handed over to the home broker comes back by the own subscription, where the
broker cannot leave it out (No Local of MQTT 5.0, or the bridge bit of Mosquitto).

Theory. `Outstanding` counts what was handed over, by key, and swallows as many of what comes with that key. With MQTT
5.0 the key is of the id in a user property of the message; in 3.1.1 it is a digest of topic and payload, for which a
message of a client of the broker that is the same may be taken, and the echo then for it: one of two equal messages is
as good as the other, and *how many* come through is right.

An echo may never come: the broker drops QoS 0 for a slow reader, or has no such subscription any more. Its entry would
swallow a later message of a client. So a *fence* is handed over from time to time: a message on a topic of the proxy's
own. A broker keeps the order of one connection's messages, so when the fence comes back, echoes of all that was handed
over before it have come or never will: these entries are settled. A fence that is lost itself is settled by the next.

A fence is a message of each QoS, and has come when all have. For brokers keep the order of each QoS only:
RabbitMQ has a queue for what its client gets with QoS 0 and another one for the rest, so that a fence of QoS 1 or 2
comes before echoes of QoS 0; and some route QoS 2 when it is released, so that one of QoS 0 comes before its echoes.

*An echo may come again.* The own client's session outlives its connections, and this process: echoes wait in it, right
behind the next CONNACK, and those of QoS 1 whose acknowledgement the broker had not noted come once more, with DUP
[MQTT-3.3.1-1]. So what is outstanding is kept from one connection to the next, and from one process to the next
(echo_file.py), and what was swallowed is remembered until two fences have come back: the first one says that the broker
has read the acknowledgement, and some write down later what they have read. From a connection that goes on with the
session until a fence that was handed over on it comes back, a message with DUP that is like one of these is its
repetition. A message of a client that is like it and has no DUP comes through.

What is outstanding or remembered is bounded in bytes; when there is too much, the oldest is forgotten: its echo would
come through once more, which other nodes see as a message told twice, and no message is lost.

`Remembered` is the named baseline `paper`: a memory of digests with their time, as in the paper that this is built on.
It has one entry for each digest and swallows whatever has it for `seconds`: a sensor that says the same twice loses a
message (tests/node/proxy/test_echo.py shows it).
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from typing import Final

from mypy_extensions import mypyc_attr

ENTRY: Final = 320
"""Bytes that an entry counts with: a digest, and the objects around it."""
DIGEST: Final = 16
FENCES: Final = (0, 1, 2)
"""With which QoS each fence is handed over."""
NEVER: Final = -1
HANDED_OVER: Final = 1
SWALLOWED: Final = 2
STRETCH: Final = 3
SETTLED: Final = 4
FORGOTTEN: Final = 5
CAME: Final = 6
REMEMBERED: Final = 7
"""What a note says."""


def digest(topic: str, payload: bytes) -> bytes:
    """Of what a message says. Clients choose payloads, so nobody may be able to make two with one digest."""
    found = hashlib.blake2b(topic.encode(), digest_size=DIGEST)
    found.update(b"\0")
    found.update(payload)
    return found.digest()


@mypyc_attr(allow_interpreted_subclasses=True)
class Echoes:
    """Who knows what was handed over. Time is an argument."""

    def handed_over(self, key: bytes, now: float) -> None:
        raise NotImplementedError

    def swallows(self, key: bytes, now: float, is_repeated: bool = False) -> bool:
        """Whether what came with this key is an echo; asked once for each. `is_repeated`: it came with DUP."""
        raise NotImplementedError

    def connected(self, is_present: bool) -> None:
        """By a new connection; `is_present`: the home broker goes on with the session."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Notes:
    """Who is told of each change of `Outstanding`, so that it can be made again."""

    def note(self, what: int, key: bytes) -> None:
        """`key` has `DIGEST` bytes: a key, or a number."""
        raise NotImplementedError


class Outstanding(Echoes):
    """Keys have `DIGEST` bytes."""

    def __init__(self, max_bytes: int) -> None:
        self.max_entries = max(1, max_bytes // ENTRY)
        self.forgotten = 0
        """Entries for which there was no room."""
        self.settled = 0
        """Entries whose echo never came."""
        self._counts: dict[bytes, int] = {}
        self._order: deque[tuple[int, bytes]] = deque()
        """What was handed over, in order, with the number of its stretch; swallowed ones are still there."""
        self._gone: dict[bytes, int] = {}
        """Of those in `_order`, how many were swallowed: the oldest with their key."""
        self._stretch = 0
        self.fences: dict[int, set[int]] = {}
        """Those that are under way, with the QoS with which they have not come yet."""
        self._swallowed: deque[tuple[int, bytes]] = deque()
        """In order, with the stretch in which it was."""
        self._again: dict[bytes, int] = {}
        """Of those, how many may come again on this connection."""
        self._again_until = NEVER
        """The first fence of this connection."""
        self.notes: Notes | None = None

    @property
    def count(self) -> int:
        """Echoes that may still come."""
        return len(self._order) - sum(self._gone.values())

    @property
    def wants_fence(self) -> bool:
        waits = bool(self._swallowed) or self._again_until != NEVER
        return (waits and not self.fences) or (
            bool(self._order) and (not self.fences or self._order[-1][0] >= self._stretch)
        )

    def handed_over(self, key: bytes, now: float) -> None:
        self._counts[key] = self._counts.get(key, 0) + 1
        self._order.append((self._stretch, key))
        self._trim()
        if len(self._order) + len(self._swallowed) > self.max_entries:
            self.forgotten += 1
            if self._swallowed:
                self._swallowed.popleft()
            else:
                self._drop_first()
        self._note(HANDED_OVER, key)

    def swallows(self, key: bytes, now: float, is_repeated: bool = False) -> bool:
        again = self._again.get(key, 0) if is_repeated else 0
        if again:
            self._again[key] = again - 1
            return True
        if not self._counts.get(key, 0):
            return False
        self._came(key)
        if len(self._order) + len(self._swallowed) < self.max_entries:
            self._swallowed.append((self._stretch, key))
        self._note(SWALLOWED, key)
        return True

    def connected(self, is_present: bool) -> None:
        self._again = {}
        self._again_until = NEVER
        self.fences = {}  # of those under way, QoS 0 is lost
        if not is_present:
            self._counts, self._gone = {}, {}
            self._order.clear()
            self._swallowed.clear()
            self._note(FORGOTTEN, bytes(DIGEST))
            return
        for _, key in self._swallowed:
            self._again[key] = self._again.get(key, 0) + 1
        if self._again:
            self._again_until = self._stretch

    def fence(self) -> int:
        """The number of a fence that is handed over now, behind all that was and before all that will be."""
        number = self._stretch
        self._stretch += 1
        self.fences[number] = set(FENCES)
        self._note(STRETCH, _as_key(self._stretch))
        return number

    def fence_came(self, number: int, qos: int) -> bool:
        """It has come back, as it was handed over with this QoS. False: there is no such fence."""
        missing = self.fences.get(number)
        if missing is None:
            return False
        missing.discard(qos)
        if not missing:
            self.settle(number)
        return True

    def settle(self, number: int) -> None:
        """This fence has come back."""
        for each in [each for each in self.fences if each <= number]:
            del self.fences[each]
        while self._order and self._order[0][0] <= number:
            if not self._drop_first():
                self.settled += 1
        while self._swallowed and self._swallowed[0][0] < number:
            self._swallowed.popleft()
        if self._again_until != NEVER and number >= self._again_until:
            self._again = {}
            self._again_until = NEVER
        self._note(SETTLED, _as_key(number))

    # ---- what outlives the process -------------------------------------------------------------------------------

    def again(self, what: int, key: bytes) -> None:
        """Make a change that was noted."""
        if what == HANDED_OVER:
            self.handed_over(key, 0.0)
        elif what == SWALLOWED:
            self.swallows(key, 0.0)
        elif what == STRETCH:
            self._stretch = int.from_bytes(key, "big")
        elif what == SETTLED:
            self.settle(int.from_bytes(key, "big"))
        elif what == FORGOTTEN:
            self.connected(False)
        elif what == CAME and self._counts.get(key, 0):
            self._came(key)
        elif what == REMEMBERED:
            self._swallowed.append((self._stretch, key))

    def notes_of_all(self) -> Iterator[tuple[int, bytes]]:
        """Of all that is known, in the order in which to make it again."""
        found = [(stretch, HANDED_OVER, key) for stretch, key in self._order]
        found += [(stretch, REMEMBERED, key) for stretch, key in self._swallowed]
        found.sort(key=_stretch_of)  # what was handed over stays in its order
        at = NEVER
        for stretch, what, key in found:
            if stretch != at:
                at = stretch
                yield STRETCH, _as_key(stretch)
            yield what, key
        yield STRETCH, _as_key(self._stretch)
        for key, count in self._gone.items():
            for _ in range(count):
                yield CAME, key

    def _note(self, what: int, key: bytes) -> None:
        if self.notes is not None:
            self.notes.note(what, key)

    # ---- entries -------------------------------------------------------------------------------------------------

    def _came(self, key: bytes) -> None:
        self._count(key, self._counts[key] - 1)
        self._gone[key] = self._gone.get(key, 0) + 1
        self._trim()

    def _drop_first(self) -> bool:
        """Whether it was swallowed."""
        _, key = self._order.popleft()
        gone = self._gone.get(key, 0)
        if gone:
            if gone == 1:
                del self._gone[key]
            else:
                self._gone[key] = gone - 1
            return True
        self._count(key, self._counts[key] - 1)
        return False

    def _trim(self) -> None:
        while self._order and self._gone.get(self._order[0][1], 0):
            self._drop_first()

    def _count(self, key: bytes, count: int) -> None:
        if count:
            self._counts[key] = count
        else:
            del self._counts[key]


def _as_key(number: int) -> bytes:
    return number.to_bytes(DIGEST, "big")


def _stretch_of(entry: tuple[int, int, bytes]) -> int:
    return entry[0]


class Remembered(Echoes):
    """The baseline `paper`."""

    def __init__(self, max_bytes: int, seconds: float) -> None:
        self.max_entries = max(1, max_bytes // ENTRY)
        self.seconds = seconds
        self._until: dict[bytes, float] = {}

    def handed_over(self, key: bytes, now: float) -> None:
        self._until.pop(key, None)
        self._until[key] = now + self.seconds
        while len(self._until) > self.max_entries:
            del self._until[next(iter(self._until))]

    def swallows(self, key: bytes, now: float, is_repeated: bool = False) -> bool:
        return self._until.get(key, 0.0) > now
