"""What can be seen of bridges from outside, by people and by metrics."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Traffic:
    """What has gone one way since the broker started."""

    forwarded: int = 0
    """Taken by the other side."""
    dropped: int = 0
    """Not sent: QoS 0 that the other side could not take, a loop, too large, no topic for it there."""
    rejected: int = 0
    """Refused by the other side."""


@dataclass
class Figures:
    """Of one bridge since the broker started, whatever its settings were."""

    sent: Traffic = field(default_factory=Traffic)
    received: Traffic = field(default_factory=Traffic)


@dataclass(frozen=True)
class BridgeView:
    """A bridge now. `error` is why it is not up, "" if it is; `waiting` are the messages of QoS 1 and 2 that the remote
    has not acknowledged."""

    name: str
    addresses: list[str]
    client_id: str
    up: bool
    error: str
    waiting: int
    sent: Traffic
    received: Traffic
