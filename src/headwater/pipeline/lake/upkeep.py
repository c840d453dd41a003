"""Many small files into few large ones, and away with what no table needs.

A file that is replaced stays for `keep` hours: who reads an older version of the table, or began to read before, still
finds it. Files that no commit ever named (of tasks that died) go in the same way, by their age.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headwater.disk.crash_points import crash_point
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.log import Log
from headwater.pipeline.tables import Table

TARGET: Final = 128 << 20
"""Bytes of a file that is large enough."""
KEEP: Final = 24 * 7
"""Hours for which replaced files stay."""
FEW: Final = 8
"""As many small files of a table are left as they are."""


@dataclass(frozen=True)
class Upkeep:
    """What was done to a table."""

    table: str
    before: int
    after: int
    removed: int


def tidy(lake: Lake, table: Table, *, keep: int = KEEP, target: int = TARGET, least: int = FEW) -> Upkeep:
    """Compact, remove what is too old, and sum up the log."""
    log = lake.log(table)
    before = len(log.paths())
    if before > least:
        log.open().optimize.compact(target_size=target)
        crash_point("pipeline-in-tidy", table.name)
    removed = _vacuum(log, keep)
    opened = log.open()
    opened.create_checkpoint()
    opened.cleanup_metadata()
    return Upkeep(table.name, before, len(log.paths()), removed)


def _vacuum(log: Log, keep: int) -> int:
    removed = log.open().vacuum(keep, dry_run=False, enforce_retention_duration=False, full=True)
    return len(removed)
