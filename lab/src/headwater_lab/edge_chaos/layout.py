"""Which nodes there are, of which edges; and topics, and filters that are moved.

Filters overlap, so that the most specific one that matches a topic is one time this, another time that; and nobody owns
`stray/#` and the steady messages at first: they go to the delivery node of the publisher's edge with the smallest id.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

NORTH: Final = "north"
SOUTH: Final = "south"
RECEIVING: Final = "receiving"
DELIVERY: Final = "delivery"


class Place(NamedTuple):
    """Of a node."""

    edge: str
    roles: tuple[str, ...]
    owns: tuple[str, ...] = ()

    @property
    def receives(self) -> bool:
        return RECEIVING in self.roles

    @property
    def delivers(self) -> bool:
        return DELIVERY in self.roles

    def settings(self) -> dict[str, Any]:
        found: dict[str, Any] = {"edge.name": self.edge, "edge.roles": list(self.roles), "edge.hold": HOLD}
        if self.delivers:
            found |= {"edge.owns": list(self.owns), "store.enabled": True}
        return found


_RECEIVES: Final = (RECEIVING,)
_DELIVERS: Final = (DELIVERY,)
HOLD: Final = 120.0
"""Seconds: longer than any fault, so that order holds always."""
OWNED: Final = "plant/#"

LAYOUTS: Final[dict[int, dict[str, Place]]] = {
    3: {"r1": Place(NORTH, _RECEIVES), "d1": Place(NORTH, _DELIVERS, (OWNED,)), "d2": Place(NORTH, _DELIVERS)},
    4: {
        "r1": Place(NORTH, _RECEIVES),
        "d1": Place(NORTH, _DELIVERS, (OWNED,)),
        "d2": Place(NORTH, _DELIVERS),
        "s1": Place(SOUTH, (RECEIVING, DELIVERY)),
    },
    5: {
        "r1": Place(NORTH, _RECEIVES),
        "d1": Place(NORTH, _DELIVERS, (OWNED,)),
        "d2": Place(NORTH, _DELIVERS),
        "r2": Place(SOUTH, _RECEIVES),
        "d3": Place(SOUTH, _DELIVERS),
    },
}
"""By the number of nodes."""
SIZES: Final = (3, 4, 4, 5)

TOPICS: Final = (*(f"plant/{number}/{part}" for number in range(3) for part in "ab"), "stray/1")
FILTERS: Final = (
    *("plant/#", "plant/0/#", "plant/1/#", "plant/2/#"),
    *("plant/+/a", "plant/1/a", "stray/#", "steady/#"),
)
