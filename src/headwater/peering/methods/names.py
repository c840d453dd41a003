"""The methods by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headwater.peering.frames.frame import MalformedFrame
from headwater.peering.methods.bloom import BLOOM, BloomAnnouncement, BloomHearing
from headwater.peering.methods.flood import FLOOD, FloodAnnouncement, FloodHearing
from headwater.peering.methods.method import Announcement, Hearing
from headwater.peering.methods.subscribe import SUBSCRIBE, SubscribeAnnouncement, SubscribeHearing

DEFAULT: Final = SUBSCRIBE
ANNOUNCEMENTS: Final[dict[str, Callable[[], Announcement]]] = {
    FLOOD: FloodAnnouncement,
    SUBSCRIBE: SubscribeAnnouncement,
    BLOOM: BloomAnnouncement,
}
HEARINGS: Final[dict[str, Callable[[], Hearing]]] = {
    FLOOD: FloodHearing,
    SUBSCRIBE: SubscribeHearing,
    BLOOM: BloomHearing,
}
NAMES: Final = tuple(ANNOUNCEMENTS)


def hearing(method: str) -> Hearing:
    """Raises MalformedFrame: nodes that speak the same frames have the same methods."""
    if method not in HEARINGS:
        raise MalformedFrame(f"there is no method {method!r}")
    return HEARINGS[method]()
