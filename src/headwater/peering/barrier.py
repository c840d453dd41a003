"""Who waits until others have acknowledged a change, and for how long.

Theory. Changes of one node's interest are numbered, and acknowledgements are of all changes up to a number. Whoever
waits names the number and the peers that it needs; each acknowledgement, and each link that goes down, takes peers off.
When none is left it is released; when its time is over it is given up instead, and the caller decides what that means:
a SUBACK is sent all the same, a relay's own acknowledgement is not, as it would say what is not so.

After the SUBACK of a subscriber whose wait was released, every node that was linked then knows of the subscription. A
link that came up meanwhile needs no waiting for: its other end takes this node for one that wants everything until it
has all (`exchange.py`).
"""

from __future__ import annotations

from typing import Generic, TypeVar

Token = TypeVar("Token")


class _Waiting(Generic[Token]):
    def __init__(self, token: Token, number: int, peers: set[str], until: float) -> None:
        self.token = token
        self.number = number
        self.peers = peers
        self.until = until


class Barrier(Generic[Token]):
    """`wait` seconds at most for each."""

    def __init__(self, wait: float) -> None:
        self.wait = wait
        self._waiting: list[_Waiting[Token]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def hold(self, token: Token, number: int, peers: set[str], now: float) -> bool:
        """Until these peers have acknowledged the number; False: there is nothing to wait for."""
        if not peers:
            return False
        self._waiting.append(_Waiting(token, number, peers, now + self.wait))
        return True

    def acknowledged(self, peer: str, number: int) -> list[Token]:
        """Those that are released by it, in the order in which they came."""
        return self._without(peer, number)

    def gone(self, peer: str) -> list[Token]:
        """The link to a peer is down: nobody waits for it any more."""
        return self._without(peer, None)

    def expired(self, now: float) -> list[Token]:
        """Those whose time is over; they are not waiting any more."""
        found = [each.token for each in self._waiting if each.until <= now]
        if found:
            self._waiting = [each for each in self._waiting if each.until > now]
        return found

    @property
    def next(self) -> float | None:
        """When the next one's time is over."""
        return min((each.until for each in self._waiting), default=None)

    def _without(self, peer: str, number: int | None) -> list[Token]:
        for each in self._waiting:
            if number is None or each.number <= number:
                each.peers.discard(peer)
        released = [each.token for each in self._waiting if not each.peers]
        if released:
            self._waiting = [each for each in self._waiting if each.peers]
        return released
