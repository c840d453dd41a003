"""Topics of spatial ids: a tower of voxels, `zoom/floor/x/y`, and what clients subscribe to in it.

Spatial ids divide space into voxels as maps divide the ground into tiles; at the finest zoom one is about half a metre
wide, and a tower has more than a million of them (the paper's section 2.1). Clients want single voxels, whole floors
(`zoom/floor/+/+`), and blocks (`zoom/floor/x/#`).
"""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

ZOOM: Final = 26
FIRST_X: Final = 59_614_000
FIRST_Y: Final = 26_427_000
"""Where the tower stands."""


class Tower(NamedTuple):
    floors: int
    width: int
    depth: int

    @property
    def voxels(self) -> int:
        return self.floors * self.width * self.depth

    def topic(self, number: int) -> str:
        rest, y = divmod(number, self.depth)
        floor, x = divmod(rest, self.width)
        return f"{ZOOM}/{floor}/{FIRST_X + x}/{FIRST_Y + y}"


def tower(filters: int) -> Tower:
    """With twice as many voxels as there are to be filters."""
    width = 128
    return Tower(max(4, 2 * filters // (width * width)), width, width)


class Interests(NamedTuple):
    """Filters, each once; and voxels that none of them matches."""

    filters: list[str]
    unwanted: list[str]


def interests(count: int, seed: int, most_unwanted: int) -> Interests:
    """So many filters: one floor in a hundred, one block in a thousand, and otherwise voxels."""
    random = Random(seed)
    place = tower(count)
    floors = set(random.sample(range(place.floors), max(1, place.floors // 100)))
    rows = random.sample(range(place.floors * place.width), max(1, count // 1000))
    found = [f"{ZOOM}/{floor}/+/+" for floor in sorted(floors)]
    found += [f"{ZOOM}/{row // place.width}/{FIRST_X + row % place.width}/#" for row in rows]
    voxels = random.sample(range(place.voxels), place.voxels)
    wanted = voxels[: count - len(found)]
    found += [place.topic(number) for number in wanted]
    random.shuffle(found)
    covered = set(rows)
    unwanted: list[str] = []
    for number in voxels[count - len(found) + len(wanted) :]:
        row = number // place.depth
        if row not in covered and row // place.width not in floors:
            unwanted.append(place.topic(number))
            if len(unwanted) == most_unwanted:
                break
    return Interests(found, unwanted)
