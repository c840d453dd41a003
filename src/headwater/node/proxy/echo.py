"""Telling echoes from messages: what was handed over to the home broker comes back by the own subscription, where the
broker cannot leave it out (No Local of MQTT 5.0, or the bridge bit of Mosquitto).

Theory. `Outstanding` counts what was handed over, by key, and swallows as many of what comes with that key. With MQTT
5.0 the key is the id in a user property of the message; in 3.1.1 it is a digest of topic and payload, for which a
message of a client of the broker that is the same may be taken, and the echo then for it: one of two equal messages is
as good as the other, and *how many* come through is right.

An echo may never come: the broker drops QoS 0 for a slow reader, or has no such subscription any more. Its entry would
swallow a later message of a client. So a *fence* is handed over from time to time: a message on a topic of the proxy's
own. A broker keeps the order of one connection's messages, so when the fence comes back, echoes of all that was handed
over before it have come or never will: these entries are settled. A fence that is lost itself is settled by the next.

A fence is a message of each QoS, and has come when all have. For brokers keep the order of each QoS only:
RabbitMQ has a queue for what its client gets with QoS 0 and another one for the rest, so that a fence of QoS 1 or 2
comes before echoes of QoS 0; and some route QoS 2 when it is released, so that one of QoS 0 comes before its echoes.

What is outstanding is bounded in bytes; when there is too much, the oldest is forgotten: its echo would come through
once more, which other nodes see as a message told twice, and no message is lost.

`Remembered` is the named baseline `paper`: a memory of digests with their time, as in the paper that this is built on.
It has one entry for each digest and swallows whatever has it for `seconds`: a sensor that says the same twice loses a
message (tests/node/proxy/test_echo.py shows it).
"""

from __future__ import annotations

import hashlib
from collections import deque
from typing import Final

from mypy_extensions import mypyc_attr

ENTRY: Final = 320
"""Bytes that an entry counts with: a digest, and the objects around it."""
DIGEST: Final = 16
FENCES: Final = (0, 1, 2)
"""With which QoS each fence is handed over."""


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

    def swallows(self, key: bytes, now: float) -> bool:
        """Whether what came with this key is an echo; asked once for each."""
        raise NotImplementedError


class Outstanding(Echoes):
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

    @property
    def count(self) -> int:
        """Echoes that may still come."""
        return len(self._order) - sum(self._gone.values())

    @property
    def wants_fence(self) -> bool:
        return bool(self._order) and (not self.fences or self._order[-1][0] >= self._stretch)

    def handed_over(self, key: bytes, now: float) -> None:
        self._counts[key] = self._counts.get(key, 0) + 1
        self._order.append((self._stretch, key))
        self._trim()
        if len(self._order) > self.max_entries:
            self._drop_first()
            self.forgotten += 1

    def swallows(self, key: bytes, now: float) -> bool:
        count = self._counts.get(key, 0)
        if not count:
            return False
        self._count(key, count - 1)
        self._gone[key] = self._gone.get(key, 0) + 1
        self._trim()
        return True

    def fence(self) -> int:
        """The number of a fence that is handed over now, behind all that was and before all that will be."""
        number = self._stretch
        self._stretch += 1
        self.fences[number] = set(FENCES)
        return number

    def fence_came(self, number: int, qos: int) -> bool:
        """It has come back, as it was handed over with this QoS. False: there is no such fence."""
        missing = self.fences.get(number)
        if missing is None:
            return False
        missing.discard(qos)
        if missing:
            return True
        for each in [each for each in self.fences if each <= number]:
            del self.fences[each]
        while self._order and self._order[0][0] <= number:
            if not self._drop_first():
                self.settled += 1
        return True

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

    def swallows(self, key: bytes, now: float) -> bool:
        return self._until.get(key, 0.0) > now
