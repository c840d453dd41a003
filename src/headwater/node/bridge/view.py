"""What can be seen of bridges from outside, by people and by metrics."""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, field

from headwater.metric import Labels, counter, gauge


@dataclass
class Traffic:
    """What has gone one way since the broker started."""

    forwarded: int = 0
    """Taken by the other side."""
    dropped: int = 0
    """Not sent: QoS 0 that the other side could not take, a loop, too large, no topic for it there, or a
    condition that it does not meet."""
    rejected: int = 0
    """Refused by the other side."""


@dataclass
class Figures:
    """Of one bridge since the broker started, whatever its settings were."""

    sent: Traffic = field(default_factory=Traffic)
    received: Traffic = field(default_factory=Traffic)


def _by_outcome(direction: str, traffic: Traffic) -> dict[Labels, float]:
    return {(direction, outcome): count for outcome, count in asdict(traffic).items()}


@dataclass(frozen=True)
class BridgeView:
    """A bridge now. `error` is why it is not up, "" if it is; `waiting` are the messages of QoS 1 and 2 that the remote
    has not acknowledged."""

    name: str
    addresses: list[str]
    client_id: str
    error: str
    up: bool = gauge("Whether the bridge is up.", default=MISSING, name="bridge_up")
    waiting: int = gauge(
        "Messages that the remote has not acknowledged.", default=MISSING, name="bridge_waiting_messages"
    )
    sent: Traffic = counter(
        "Messages by what became of them: forwarded, dropped, or rejected by the other side.",
        default=MISSING,
        name="bridge_messages",
        labels=("direction", "outcome"),
        samples=lambda bridge: _by_outcome("out", bridge.sent),
    )
    received: Traffic = counter(
        "What came from the remote, in the same way.",
        default=MISSING,
        name="bridge_messages",
        labels=("direction", "outcome"),
        samples=lambda bridge: _by_outcome("in", bridge.received),
    )
