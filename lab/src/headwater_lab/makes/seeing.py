"""All looks at one make: alone, or behind a proxy."""

from __future__ import annotations

from pathlib import Path

from headwater_lab.check_broker.contestants import running
from headwater_lab.makes.looks import ALL, Ground, see, version
from headwater_lab.makes.nodes import Make


def seen_alone(make: Make, folder: Path) -> dict[str, str]:
    """By row. Raises BrokerError."""
    with running(make.make, folder) as nodes:
        ground = Ground(nodes[-1].port, nodes[-1])
        ground.version = version(ground)
        return {look.row: see(look, ground) for look in ALL}
