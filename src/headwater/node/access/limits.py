"""Rates, and bans of those who fail too often.

A bucket holds as many tokens as may be used at once and gains `rate` of them a second. What has been read is already
there, so a bucket may go below nothing; the debt says how long its owner has to wait. Everything that is remembered
about strangers is bounded: the oldest is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import sha256
from typing import Final, NamedTuple

from headwater.message import NEVER
from headwater.web.addresses import network_of

MAX_REMEMBERED: Final = 65_536
LONGEST_NAME: Final = 256
"""Characters of a name that are remembered as they are."""
ADDRESS: Final = "address"
USER: Final = "user"
CLIENT: Final = "client"
KINDS: Final = (ADDRESS, USER, CLIENT)


class Bucket:
    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate = rate
        self.burst = burst
        self.tokens = burst
        self.at = now

    def _refill(self, now: float) -> None:
        if now > self.at:
            self.tokens = min(self.burst, self.tokens + (now - self.at) * self.rate)
            self.at = now

    def take(self, now: float) -> bool:
        """Use one token, if there is one."""
        self._refill(now)
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True

    def owe(self, count: float, now: float) -> float:
        """Use so many tokens, there or not; seconds until the debt is paid."""
        self._refill(now)
        self.tokens -= count
        return 0.0 if self.tokens >= 0 else -self.tokens / self.rate


class Meter:
    """How fast one client sends."""

    def __init__(self, message_rate: float, byte_rate: float, seconds: float, now: float) -> None:
        self.messages = Bucket(message_rate, max(1.0, message_rate * seconds), now) if message_rate else None
        self.bytes = Bucket(byte_rate, max(1.0, byte_rate * seconds), now) if byte_rate else None

    def used(self, size: int, messages: int, now: float) -> float:
        """Seconds to wait after what was read now."""
        wait = 0.0
        if self.messages is not None and messages:
            wait = self.messages.owe(messages, now)
        if self.bytes is not None:
            wait = max(wait, self.bytes.owe(size, now))
        return wait


class AddressRates:
    """How often each address connects."""

    def __init__(self, rate: float, burst: int) -> None:
        self.rate = rate
        self.burst = burst
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, network: str, now: float) -> bool:
        bucket = self._buckets.get(network)
        if bucket is None:
            if len(self._buckets) >= MAX_REMEMBERED:
                self._buckets.popitem(last=False)
            bucket = self._buckets[network] = Bucket(self.rate, self.burst, now)
        else:
            self._buckets.move_to_end(network)
        return bucket.take(now)


def shortened(value: str) -> str:
    """A name as it is remembered: strangers choose them, and one of 64 KiB is not worth its memory."""
    return value if len(value) <= LONGEST_NAME else f"sha256:{sha256(value.encode()).hexdigest()}"


class Ban(NamedTuple):
    kind: str
    """address, user or client (id)"""
    value: str
    until: float
    """Of the broker's clock; infinity: until it is lifted."""
    reason: str


class Bans:
    def __init__(self) -> None:
        self._bans: OrderedDict[tuple[str, str], Ban] = OrderedDict()
        self.changes = 0
        """Bans that have been added."""

    def add(self, kind: str, value: str, until: float, reason: str) -> Ban:
        """ValueError: no such kind."""
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is none of {', '.join(KINDS)}")
        if kind == ADDRESS:
            value = network_of(value)
        value = shortened(value)
        if len(self._bans) >= MAX_REMEMBERED:
            self._bans.popitem(last=False)
        ban = self._bans[kind, value] = Ban(kind, value, until, reason)
        self.changes += 1
        return ban

    def lift(self, kind: str, value: str) -> bool:
        return self._bans.pop((kind, shortened(network_of(value) if kind == ADDRESS else value)), None) is not None

    def find(self, kind: str, value: str, now: float) -> Ban | None:
        """`value` of an address is its network."""
        value = shortened(value)
        ban = self._bans.get((kind, value))
        if ban is None or ban.until > now:
            return ban
        del self._bans[kind, value]
        return None

    def all(self, now: float) -> list[Ban]:
        return [ban for ban in list(self._bans.values()) if ban.until > now]

    def __bool__(self) -> bool:
        return bool(self._bans)


class Failures:
    """Failures of each address or user within a window of time."""

    def __init__(self, window: float) -> None:
        self.window = window
        self._counts: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()

    def add(self, kind: str, value: str, now: float) -> int:
        """One more; how many there are within the window that began with the first."""
        value = shortened(value)
        count, until = self._counts.pop((kind, value), (0, NEVER))
        if now >= until:
            count, until = 0, NEVER
        if count == 0:
            until = now + self.window
        if len(self._counts) >= MAX_REMEMBERED:
            self._counts.popitem(last=False)
        self._counts[kind, value] = (count + 1, until)
        return count + 1

    def forget(self, kind: str, value: str) -> None:
        self._counts.pop((kind, shortened(value)), None)


def host_of(address: str) -> str:
    """The host of `host:port`, as channels have it."""
    host, colon, port = address.rpartition(":")
    return host.strip("[]") if colon and port.isdigit() else address
