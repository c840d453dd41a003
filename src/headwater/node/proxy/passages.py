"""The short way: passages from one socket of a pair to the other, which passing.c serves.

Theory. While a passage is open, passing.c is who knows where in a packet its bytes are, how many packets there were,
and how much is read at once; the scanner and the end know what was so when it opened. Whatever else is done with a pair
begins with closing its passages, which brings that back, and ends with opening them again, if it is such a pair. So
there is one owner of each at any time, and a passage never outlives the descriptors that it leads from and to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headwater.node.proxy.pair import OPEN, End, Pair
from headwater.node.proxy.scanner import Scanner

UNTOUCHED: Final = 0
"""Nothing was done."""
READ: Final = 1
"""These bytes were read, and are neither looked at nor sent; none: its end."""
REST: Final = 2
"""The other socket has not taken these bytes; otherwise all was done."""
FAILED: Final = 3
"""The connection is broken."""

Left = list[tuple[int, int, int, bytes]]
"""Descriptors that passing.c has left to us, with epoll's mask, one of these kinds, and bytes."""


class Passages:
    """`passing`: its `Passages`."""

    def __init__(self, passing: Any) -> None:
        self.serve: Callable[[int, int], tuple[int, int, int, int, int, int, Left | None]] = passing.serve
        self._open: Callable[[int, int, int, int, int, bool], None] = passing.open
        self._close: Callable[[int], tuple[int, int, int] | None] = passing.close

    def open(self, pair: Pair) -> None:
        """In both directions, where nothing is under way that passing.c knows nothing of."""
        if pair.stage != OPEN:
            return
        for end in (pair.client, pair.broker):
            if end is not None:
                self._open_from(end)

    def _open_from(self, end: End) -> None:
        other = end.other
        if end.has_passage or end.fd < 0 or other is None or other.fd < 0:
            return
        skip = -1
        types = 0
        scanner = scanner_of(end)
        if scanner is not None:
            skip = scanner.simple_skip
            types = scanner.types
            if skip < 0:
                return
        self._open(end.fd, other.fd, end.read_size, skip, types, end.is_client)
        end.has_passage = True

    def close(self, pair: Pair) -> None:
        """In both directions. More than once is as once."""
        for end in (pair.client, pair.broker):
            if end is not None and end.has_passage:
                end.has_passage = False
                found = self._close(end.fd)
                if found is not None:
                    end.read_size = found[0]
                    scanner = scanner_of(end)
                    if scanner is not None:
                        scanner.skipped(found[2], found[1])


def scanner_of(end: End) -> Scanner | None:
    """None: its bytes are not looked at."""
    tap = end.pair.tap
    if tap is None or tap.is_blind:
        return None
    return tap.of_client if end.is_client else tap.of_broker
