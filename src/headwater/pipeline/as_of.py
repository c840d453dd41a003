"""Views that join readings and windows with what was known of their device then: SQL that both engines take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headwater.pipeline.tables import DEVICES, GOLD, SILVER

AS_OF: Final = {"silver_devices": (SILVER.name, "time"), "gold_devices": (GOLD.name, "window_start")}
"""Of each view, the table, and the column of the time at which a device was what it was."""
PREFIX: Final = "device_"


def needed(view: str) -> tuple[str, str]:
    """The tables that a view is made of."""
    return AS_OF[view][0], DEVICES.name


def select(view: str, columns: Sequence[str]) -> str:
    """`columns` are those of the table of devices; in the view, each has PREFIX. Every row of the view's table is there
    once: spans of a device do not overlap."""
    table, time = AS_OF[view]
    further = "".join(f', d."{name}" AS "{PREFIX}{name}"' for name in columns if name != "device").replace('"', "`")
    return (
        f"SELECT t.*{further} FROM {table} t LEFT JOIN {DEVICES.name} d ON t.device = d.device "
        f"AND t.{time} >= d.valid_from AND (d.valid_to IS NULL OR t.{time} < d.valid_to)"
    )
