"""All looks at one make: alone, or behind a proxy."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from headwater_lab.check_broker.contestants import running
from headwater_lab.makes.fabric import OURS, fabric
from headwater_lab.makes.looks import ALL, Ground, see, version
from headwater_lab.makes.looks.between import CROSSINGS
from headwater_lab.makes.nodes import Make

UNSTEADY: Final = frozenset({"amqtt"})
"""Makes that do otherwise from one time to the next as soon as they have more to do: only what crosses is looked at."""


def seen_alone(make: Make, folder: Path) -> dict[str, str]:
    """By row. Raises BrokerError."""
    with running(make.make, folder) as nodes:
        ground = Ground(nodes[-1].port, nodes[-1])
        ground.version = version(ground)
        return {look.row: see(look, ground) for look in ALL}


def seen_behind(make: Make, folder: Path) -> dict[str, str]:
    """The same behind a proxy, but for the broker's end, and what crosses to a node of ours and back.

    Raises BrokerError and Closed."""
    with fabric(folder, [make.name, OURS]) as (home, other):
        ground, ours = Ground(home.port, home.broker), Ground(other.port)
        ground.version = version(ground)
        ours.version = version(ours)
        crossed = {each.row: each.see(ground, ours) for each in CROSSINGS}
        if make.name in UNSTEADY:
            return crossed
        return {**crossed, **{look.row: see(look, ground) for look in ALL if not (look.ends_it or look.is_slow)}}
