"""Who may have a connection to an HTTP listener, and who gives way.

Theory. A connection is either answering a request or waiting: for its first byte, for the rest of a head, for the next
request. Waiting costs its client nothing, so a listener that refuses newcomers once it is full can be kept full by
anybody, for ever. Here a newcomer to a full listener takes the place of the connection that has waited longest; one
whose address has all it may have takes the place of that address's own. Who sends its request at once needs its place
for a moment only, and gets it, however many are silent.

Connections that answer never give way. When they have all the places, a few spare ones are left, where health is
answered and all else is refused; they give way to each other in the same manner. So there is a number of sockets that
is never exceeded, `connections + SPARE`, and health is answered whatever the others do.

The same holds for memory: what has come of unfinished heads is bounded for all connections together, and the oldest
gives way. No sockets and no clocks here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

SPARE: Final = 8
"""Places for health alone."""


class Bounds(NamedTuple):
    """Times are seconds, sizes bytes."""

    connections: int = 128
    per_address: int = 64
    first_byte: float = 5.0
    """From the connection to the first byte, the TLS handshake included."""
    head: float = 10.0
    """From the first byte of a request to the end of its head."""
    body: float = 30.0
    """From there to the end of its body."""
    idle: float = 30.0
    """From an answer to the next request."""
    write: float = 30.0
    """How long a caller may leave what is written for it unread."""
    head_size: int = 256 << 10
    heads_size: int = 4 << 20
    """Of all unfinished heads together."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks whose `X-Forwarded-For` is believed, and which are not bounded as one address."""


class Place:
    """One connection's, which `end` ends; it is called at most once, and never after `leave`."""

    def __init__(self, all_places: Places, address: str, is_spare: bool) -> None:
        self.address = address
        self.is_spare = is_spare
        self.end: Callable[[], None] | None = None
        self._all = all_places
        self._is_here = True

    def wait(self) -> None:
        """From now on it waits for its caller."""
        if self._is_here:
            self._all.waits(self)

    def answer(self) -> None:
        """From now on its caller waits."""
        if self._is_here:
            self._all.answers(self)

    def unfinished(self, size: int) -> None:
        """So many bytes of a head have come; its end has not. Others may have to give way, or this one."""
        if self._is_here:
            self._all.unfinished(self, size)

    def leave(self) -> None:
        if self._is_here:
            self._is_here = False
            self._all.leaves(self)
            self.end = None

    def give_way(self) -> None:
        end = self.end
        self.leave()
        if end is not None:
            end()


class Places:
    """All connections of a listener. Belongs to one thread."""

    def __init__(self, bounds: Bounds) -> None:
        self._most = bounds.connections
        self._most_per_address = bounds.per_address
        self._most_bytes = bounds.heads_size
        self._bytes = 0
        self._heads: dict[Place, int] = {}
        """Bytes of unfinished heads, the oldest first."""
        self._here: dict[str, dict[Place, None]] = {}
        """All but the spare ones, by address."""
        self._waiting: dict[Place, None] = {}
        """Of these, those that wait, the longest first."""
        self._spare: dict[Place, None] = {}
        self._count = 0
        self.replaced = 0
        """Connections that gave way."""

    def __len__(self) -> int:
        """Sockets."""
        return self._count + len(self._spare)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def admit(self, address: str, is_trusted: bool = False) -> Place:
        """A place for a newcomer, which waits."""
        here = self._here.get(address, {})
        if not is_trusted and len(here) >= self._most_per_address:
            oldest = next((each for each in self._waiting if each.address == address), None)
        else:
            oldest = next(iter(self._waiting), None)
            if self._count < self._most:
                return self._placed(address)
        if oldest is not None:
            self._replace(oldest)
            return self._placed(address)
        return self._spare_place(address)

    def _placed(self, address: str) -> Place:
        place = Place(self, address, False)
        self._here.setdefault(address, {})[place] = None
        self._count += 1
        self._waiting[place] = None
        return place

    def _spare_place(self, address: str) -> Place:
        if len(self._spare) >= SPARE:
            self._replace(next(iter(self._spare)))
        place = Place(self, address, True)
        self._spare[place] = None
        return place

    def _replace(self, place: Place) -> None:
        self.replaced += 1
        place.give_way()

    def waits(self, place: Place) -> None:
        if not place.is_spare:
            self._waiting.pop(place, None)
            self._waiting[place] = None

    def answers(self, place: Place) -> None:
        self._waiting.pop(place, None)
        self._bytes -= self._heads.pop(place, 0)

    def unfinished(self, place: Place, size: int) -> None:
        self._bytes += size - self._heads.get(place, 0)
        self._heads[place] = size
        while self._bytes > self._most_bytes:
            self._replace(next(iter(self._heads)))

    def leaves(self, place: Place) -> None:
        self.answers(place)
        if place.is_spare:
            self._spare.pop(place)
            return
        here = self._here[place.address]
        del here[place]
        if not here:
            del self._here[place.address]
        self._count -= 1
