"""Ids of messages, and what has been seen of each origin: nothing goes round in circles, and nothing comes twice.

Theory. The node at which a message is published gives it an id: its own name, its boot, and a counter, of which there
are two, one for QoS 0 and one for QoS ≥ 1. It sends messages over each link in the order of counters, links keep their
order, and relays pass on in the order in which they receive. Two ways from an origin to here may differ in speed.

*QoS 0* is taken if its counter is higher than all before: what comes by the slower way is dropped, and so is what comes
late, which would break the order. One number for each origin.

*QoS ≥ 1* must not be lost, so what is late and was not seen is taken. Seen are the last `WINDOW` counters of each life
of an origin, one bit each; what is older than those counts as seen. That is safe: whoever relays a message knows of at
least the interest that its sender knew of, so each way carries what is owed in order, and a counter that is far behind
has come by another way already. The exception is a way that was added while another one was cut, and then carried
`WINDOW` messages of the origin before the cut healed; the configured graph is not to be changed during a cut.

In a full mesh nothing is relayed, and positions of links alone (`applied.py`) would do. Where messages are relayed,
bits have to be as durable as what was done with the messages: `chunks` are to be written in the same batch.

Memory: 8 KiB for each life of an origin, of which `LIVES` are kept, for `ORIGINS` nodes: 32 MiB at most. The one that
has not been used for longest gives way.
"""

from __future__ import annotations

from typing import Final

WINDOW: Final = 65536
"""Counters of QoS ≥ 1 messages that are remembered."""
CHUNK: Final = 512
"""Of them in one record on disk: 64 bytes."""
LIVES: Final = 4
ORIGINS: Final = 1024


class Window:
    """The QoS ≥ 1 messages of one life."""

    def __init__(self) -> None:
        self.newest = -1
        self._bits = bytearray(WINDOW // 8)

    def take(self, counter: int, count: int) -> int:
        """Which of these are new, one bit each, the first the lowest; they have been seen from now on."""
        fresh = 0
        last = counter + count - 1
        if last > self.newest:
            self._advance(last)
        oldest = self.newest - WINDOW
        bits = self._bits
        for index in range(count):
            each = counter + index
            if each > oldest and not bits[each % WINDOW >> 3] >> (each & 7) & 1:
                bits[each % WINDOW >> 3] |= 1 << (each & 7)
                fresh |= 1 << index
        return fresh

    def fresh(self, counter: int, count: int) -> int:
        """As `take`, without having seen them."""
        oldest, newest, bits = max(self.newest, counter + count - 1) - WINDOW, self.newest, self._bits
        found = 0
        for index in range(count):
            each = counter + index
            if each > newest or (each > oldest and not bits[each % WINDOW >> 3] >> (each & 7) & 1):
                found |= 1 << index
        return found

    def chunks(self, counter: int, count: int) -> dict[int, bytes]:
        """By number, the parts of the window that these counters are in, as long as they are."""
        first, last = max(counter, self.newest - WINDOW + 1) // CHUNK, (counter + count - 1) // CHUNK
        return {number: self._chunk(number) for number in range(first, last + 1)}

    def restore(self, number: int, chunk: bytes) -> None:
        """One that was written, in any order; older ones may be among them."""
        bits = int.from_bytes(chunk, "little")
        highest = number * CHUNK + bits.bit_length() - 1
        if not bits or highest <= self.newest - WINDOW:
            return
        if highest > self.newest:
            self._advance(highest)
        for index in range(bits.bit_length()):
            each = number * CHUNK + index
            if bits >> index & 1 and each > self.newest - WINDOW:
                self._bits[each % WINDOW >> 3] |= 1 << (each & 7)

    def _advance(self, newest: int) -> None:
        """Clear the bits of counters that have not been yet, where those of old ones were."""
        if newest - self.newest >= WINDOW:
            self._bits = bytearray(WINDOW // 8)
        else:
            for each in range(self.newest + 1, newest + 1):
                self._bits[each % WINDOW >> 3] &= ~(1 << (each & 7)) & 0xFF
        self.newest = newest

    def _chunk(self, number: int) -> bytes:
        first = number * CHUNK
        at = first % WINDOW >> 3
        bits = int.from_bytes(self._bits[at : at + CHUNK // 8], "little")
        low = max(0, self.newest - WINDOW + 1 - first)
        high = min(CHUNK, self.newest + 1 - first)
        kept = bits & ((1 << high) - 1) >> low << low if high > low else 0
        return kept.to_bytes(CHUNK // 8, "little")


class Windows:
    """Of all origins, so many at most."""

    def __init__(self, origins: int = ORIGINS) -> None:
        self._origins = origins
        self._newest: dict[str, tuple[int, int]] = {}
        self._windows: dict[str, dict[int, Window]] = {}

    def take0(self, origin: str, boot: int, counter: int, count: int) -> int:
        """How many of a run's QoS 0 messages, from its first on, are not new."""
        newest = self._newest.get(origin)
        last = counter + count - 1
        if newest is None or boot > newest[0] or (boot == newest[0] and last > newest[1]):
            if newest is None and len(self._newest) >= self._origins:
                del self._newest[next(iter(self._newest))]
            self._newest[origin] = (boot, last)
            if newest is None or boot > newest[0] or counter > newest[1]:
                return 0
            return newest[1] + 1 - counter
        return count

    def take1(self, origin: str, boot: int, counter: int, count: int) -> int:
        """Which of a run's QoS ≥ 1 messages are new, one bit each, the first the lowest."""
        return self.window(origin, boot).take(counter, count)

    def fresh1(self, origin: str, boot: int, counter: int, count: int) -> int:
        """As `take1`, without having seen them."""
        return self.window(origin, boot).fresh(counter, count)

    def window(self, origin: str, boot: int) -> Window:
        lives = self._windows.pop(origin, None)
        if lives is None:
            lives = {}
            if len(self._windows) >= self._origins:
                del self._windows[next(iter(self._windows))]
        self._windows[origin] = lives
        found = lives.pop(boot, None)
        if found is None:
            found = Window()
            if len(lives) >= LIVES:
                del lives[next(iter(lives))]
        lives[boot] = found
        return found

    def has_use_for(self, origin: str, boot: int, number: int) -> bool:
        """Whether a chunk that was written is a part of what is here."""
        window = self._windows.get(origin, {}).get(boot)
        return window is not None and (number + 1) * CHUNK > window.newest - WINDOW + 1

    def forget(self, origin: str) -> None:
        self._newest.pop(origin, None)
        self._windows.pop(origin, None)
