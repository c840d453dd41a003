"""A `connection` of a configuration file of Mosquitto as one of our bridges (docs/bridge.md).

What the file leaves unsaid has Mosquitto's default, written out where ours is another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

PROTOCOLS: Final = {"mqttv50": "5.0", "mqttv311": "3.1.1"}
DIRECTIONS: Final = ("in", "out", "both")
EMPTY: Final = '""'


@dataclass
class Bridge:
    settings: dict[str, Any]
    topics: list[dict[str, Any]] = field(default_factory=list)
    tls: dict[str, Any] | None = None
    notifications: bool = True
    local_only: bool = False

    def secure(self, name: str, value: object) -> None:
        if self.tls is None:
            self.tls = {}
        self.tls[name] = value

    def row(self) -> dict[str, Any]:
        """Our settings of it."""
        settings = {"protocol": "3.1.1", "reconnect_first": 5.0, "reconnect_longest": 30.0, **self.settings}
        settings["notifications"] = ("local" if self.local_only else "both") if self.notifications else "none"
        if self.tls is not None:
            settings["tls"] = self.tls
        return {**settings, "topics": self.topics}


def bridge_topic(value: str) -> dict[str, Any]:
    """`pattern [direction [qos [local-prefix [remote-prefix]]]]`; raises ValueError."""
    words = ["" if word == EMPTY else word for word in value.split()]
    pattern, direction, qos, local, remote, *more = [*words, *["", "out", "0", "", ""][len(words) :]]
    if not words or more or direction not in DIRECTIONS or qos not in ("0", "1", "2"):
        raise ValueError(value)
    topic: dict[str, Any] = {"filter": pattern, "direction": direction, "qos": int(qos)}
    if local:
        topic["local_prefix"] = local
    if remote:
        topic["remote_prefix"] = remote
    return topic


def bridge_addresses(value: str) -> list[str]:
    """Mosquitto writes an address of IPv6 without brackets, and then always with its port."""
    addresses = []
    for each in value.split():
        host, colon, port = each.rpartition(":")
        addresses.append(f"[{host}]:{port}" if ":" in host and colon and not host.startswith("[") else each)
    if not addresses:
        raise ValueError(value)
    return addresses


def restart_timeout(value: str) -> tuple[float, float]:
    """First and longest; one number is both."""
    first, *more = [float(word) for word in value.split()]
    return first, max(first, more[0]) if more else first
