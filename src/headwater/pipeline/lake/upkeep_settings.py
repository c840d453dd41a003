"""What decides how much of a table's past is kept, and how its files are laid out. Needs nothing but the standard
library."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from headwater.suggestion import check_known, check_value

LATEST: Final = "latest"
OFTEN: Final = (LATEST, "gold_open")
"""Tables that are replaced often."""


@dataclass(frozen=True)
class UpkeepSettings:
    """Times are in seconds, sizes in bytes.

    The log of a table is summed up every `checkpoint_every` commits. A commit stays in it for `keep_log`, and with it
    the version that it made. A file that was replaced stays for `keep_replaced`, those of `latest`, which is replaced
    often, for `keep_latest`: as long as that, who began to read before still finds it.

    `latest` is written not more often than every `latest_every`, and not more than `latest_rate` bytes a second: a
    commit writes what changed and what shares files with it (`lake.pages`).

    As many files of about the same size as `few_files` become one, until it has `file_size`; one visit to a lake's
    tables rewrites about as many bytes.
    """

    checkpoint_every: int = 20
    keep_log: float = 3600.0
    keep_replaced: float = 3600.0
    keep_latest: float = 600.0
    latest_every: float = 5.0
    latest_rate: int = 256 << 10
    file_size: int = 64 << 20
    few_files: int = 16

    def __post_init__(self) -> None:
        for each in fields(self):
            value, whole = getattr(self, each.name), each.type == "int"
            right = type(value) is int if whole else isinstance(value, int | float) and math.isfinite(value)
            check_value(
                right and not isinstance(value, bool), each.name, value, "a whole number" if whole else "a number"
            )
        check_value(self.checkpoint_every >= 1, "checkpoint_every", self.checkpoint_every, "at least 1 commit")
        for name in ("keep_replaced", "keep_latest"):
            check_value(
                0 <= getattr(self, name) <= self.keep_log, name, getattr(self, name), "from 0 to keep_log seconds"
            )
        check_value(self.latest_every >= 0, "latest_every", self.latest_every, "0 seconds or more")
        check_value(self.latest_rate >= 1, "latest_rate", self.latest_rate, "at least 1 byte a second")
        check_value(self.file_size >= 1 << 20, "file_size", self.file_size, "at least 1048576 bytes")
        check_value(self.few_files >= 2, "few_files", self.few_files, "at least 2")

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> UpkeepSettings:
        """From names and values as a configuration has them; what is not named has its default."""
        check_known("setting", settings, (each.name for each in fields(cls)), " of [upkeep]")
        return cls(**settings)

    def kept(self, table: str) -> float:
        """Seconds for which replaced files of a table stay."""
        return self.keep_latest if table in OFTEN else self.keep_replaced

    def pause(self, size: int) -> float:
        """Seconds from one commit of `latest` to the next, if it wrote so many bytes."""
        return max(self.latest_every, size / self.latest_rate)

    def properties(self, table: str = "") -> dict[str, str]:
        """Of Delta, for whoever else writes to the table."""
        return {
            "delta.checkpointInterval": str(self.checkpoint_every),
            "delta.logRetentionDuration": _interval(self.keep_log),
            "delta.deletedFileRetentionDuration": _interval(self.kept(table)),
            "delta.enableExpiredLogCleanup": "false",  # upkeep does it, when it has read what it needs
        }


def _interval(seconds: float) -> str:
    return f"interval {math.ceil(seconds)} seconds"
