"""Derived tables thrown away, to be made again from bronze: after other rules for payloads, or other windows.

Bronze is what came, `live` and `advice` are what happened: those cannot be made again, and are never thrown away.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from typing import Final

from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.tables import (
    BY_NAME,
    COMPLETENESS,
    GOLD,
    LATE,
    LATEST,
    MEMBERS,
    QUARANTINE,
    SILVER,
    TRAFFIC,
    Table,
)

DECODED: Final = (SILVER, QUARANTINE, GOLD, LATE, LATEST)
BEHIND: Final[dict[str, tuple[Table, ...]]] = {
    SILVER.name: DECODED,
    QUARANTINE.name: DECODED,
    **{table.name: (table,) for table in (GOLD, LATE, LATEST, COMPLETENESS, TRAFFIC, MEMBERS)},
}
"""Tables that can be made again, and what has to go with each: what is made of it, or in one pass with it."""
DISCARDED: Final = ".discarded-"


class NotDerived(ValueError):
    """There is no such table, or it cannot be made again; the text says which can."""


def involved(names: Iterable[str]) -> list[Table]:
    """The tables that are thrown away if these are to be made again. Raises NotDerived."""
    chosen: dict[str, Table] = {}
    for name in names:
        if name not in BEHIND:
            why = "is what came, and cannot be made again" if name in BY_NAME else "is no table"
            raise NotDerived(f"{name} {why}; those that can be are {', '.join(BEHIND)}")
        chosen |= {table.name: table for table in BEHIND[name]}
    return list(chosen.values())


def discard(lake: Lake, tables: Iterable[Table]) -> None:
    """The tables are not there any more: whoever runs the pipeline next makes them from the beginning. To be called by
    who holds the lake (`Lake.writing`)."""
    for table in tables:
        path = lake.path(table)
        if path.exists():
            path.rename(path.with_name(f"{DISCARDED}{table.name}"))  # at once, so that a half of it is never read
        shutil.rmtree(path.with_name(f"{DISCARDED}{table.name}"), ignore_errors=True)
