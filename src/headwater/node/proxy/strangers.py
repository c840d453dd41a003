"""Clients that the home broker has not accepted yet: how many there are, and what they have had the proxy keep.

Theory: node/protocol/strangers.py, which bounds those of a broker. Where a bound is reached, of number, address or
memory, the one that has been a stranger for longest gives way. Counted are the connection itself, what has come of a
CONNECT, and what the tap has learned from what came behind it.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from headwater.node.access.limits import host_of
from headwater.node.proxy.pair import Pair
from headwater.web.addresses import network_of

log = logging.getLogger("headwater.proxy")

STRANGER: Final = 1024
"""Bytes that one takes beside what it has sent, about."""

Crowd = OrderedDict[Pair, None]
"""The oldest first."""


class Strangers:
    """`end` closes a pair and has `left` called for it."""

    def __init__(self, most: int, most_of_address: int, most_bytes: int, end: Callable[[Pair], None]) -> None:
        self.everybody: Crowd = OrderedDict()
        self.used = 0
        """Bytes: the sum of `Pair.charge`."""
        self._by_address: dict[str, Crowd] = {}
        self._most = most
        self._most_of_address = most_of_address
        self._most_bytes = most_bytes
        self._end = end

    def came(self, pair: Pair, weight: int) -> None:
        """A connection was accepted; `weight`: bytes that its layers take."""
        if len(self.everybody) >= self._most:
            self.give_way("max_unauthenticated")
        self.everybody[pair] = None
        self.keeps(pair, STRANGER + weight)

    def parts(self, pair: Pair) -> None:
        """It is to go, and may take its time for that."""
        self.left(pair)
        self.everybody[pair] = None

    def moved(self, pair: Pair, address: str) -> None:
        """Where it comes from is known: `host:port`, or a Unix socket."""
        if pair not in self.everybody or address.startswith("unix:"):
            return
        place = network_of(host_of(address))
        crowd = self._by_address.get(place)
        if crowd is not None and len(crowd) >= self._most_of_address:
            self.cut_off(next(iter(crowd)), "max_unauthenticated_per_address is reached")
        self._by_address.setdefault(place, OrderedDict())[pair] = None
        pair.crowd = place

    def keeps(self, pair: Pair, size: int) -> bool:
        """So many bytes more (or fewer) are kept for it. False: it has given way itself."""
        if pair not in self.everybody:
            return True
        self.used += size
        pair.charge += size
        while self.used > self._most_bytes and self.give_way("max_unauthenticated_memory"):
            pass
        return pair in self.everybody

    def left(self, pair: Pair) -> None:
        """It is a stranger no more, or gone. More than once is as once."""
        if pair not in self.everybody:
            return
        del self.everybody[pair]
        self.used -= pair.charge
        pair.charge = 0
        crowd = self._by_address.get(pair.crowd)
        if crowd is not None:
            crowd.pop(pair, None)
            if not crowd:
                del self._by_address[pair.crowd]

    def give_way(self, why: str) -> bool:
        """The one that has been a stranger for longest ends. False: there is none."""
        oldest = next(iter(self.everybody), None)
        if oldest is not None:
            self.cut_off(oldest, f"{why} is reached")
        return oldest is not None

    def cut_off(self, pair: Pair, why: str) -> None:
        log.info("%s is cut off before the broker has accepted it: %s", pair.address, why)
        self._end(pair)
