"""What a home broker can do, as the probe saw it (probe.py)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Abilities:
    no_local: bool
    """What the own client published does not come back to it."""
    retain_as_published: bool
    """The retain flag of a message comes with it."""
    copies: bool
    """A message comes once for each subscription that it matches."""
    fences: bool
    """A message to itself comes back."""
    qos: int
    """Highest that it grants."""
    is_tried: bool = True
    """False: nothing came back, and this is what the standard says."""

    def __str__(self) -> str:
        said = [
            "no echo" if self.no_local else "sends back what is handed over",
            "tells retained messages" if self.retain_as_published else "does not tell retained messages",
            "a copy for each subscription" if self.copies else "one copy for overlapping subscriptions",
            f"QoS {self.qos}",
        ]
        return ", ".join(said) + ("" if self.is_tried else " (not tried: its own topics are closed to the proxy)")
