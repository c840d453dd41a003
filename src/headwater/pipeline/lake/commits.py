"""What single commits of a table have done, read from its log: which files came, which went, and whether rows changed.

Delta says of each file that comes or goes whether that changes rows (`dataChange`). What upkeep merges does not, so it
is no change. A commit that only took rows away, such as an erasure, says so in a note, `REMOVED`: its files have
nothing new, which can be known after those that it replaced are gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import unquote

from headwater.objects import Missing
from headwater.pipeline.lake.actions import commit_name
from headwater.pipeline.lake.log import LakeError, Log, Positions

REMOVED: Final = "removed"
"""The note with the number of rows that a commit took away, if that is all that it did."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Bounds = tuple[tuple[str, Any, Any], ...]


@dataclass(frozen=True)
class DataFile:
    """Of a table; `path` is relative to its folder. Picklable."""

    path: str
    size: int
    partition: tuple[tuple[str, str | None], ...] = ()
    """As the log has it: text by the name of a column."""
    rows: int | None = None
    bounds: Bounds = ()
    """Of columns that are in every row of the file: name, least and greatest value, as JSON has them."""


@dataclass(frozen=True)
class Commit:
    version: int
    made: datetime
    added: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    notes: Mapping[str, int] = field(default_factory=dict)
    """What it says of positions and jobs (`lake.log`), by name."""

    @property
    def only_removed(self) -> int | None:
        """So many rows went, and none came; None: that was not noted."""
        return self.notes.get(REMOVED)

    @property
    def rows(self) -> int:
        """Of the files that came."""
        return sum(each.rows or 0 for each in self.added)

    def positions(self, job: str) -> Positions:
        """Up to which the table contains everything, of the stores that the commit is about."""
        start = f"{job}/"
        return {name.removeprefix(start): note for name, note in self.notes.items() if name.startswith(start)}

    @property
    def changes(self) -> bool:
        return bool(self.added or self.removed)

    @property
    def size(self) -> int:
        return sum(each.size for each in (*self.added, *self.removed))


def read_commits(log: Log, first: int, last: int) -> Iterator[Commit]:
    """These and those between them. Raises LakeError if one is not in the log any more."""
    for version in range(first, last + 1):
        text = _text(log, version)
        if text is None:
            raise LakeError(
                f"{log.where}: the commit of version {version} is not in the table's log any more, which keeps "
                "commits for keep_log seconds ([upkeep]). Read the table as it is, or begin with a later version."
            )
        yield parse_commit(version, text)


def commits_behind(log: Log, version: int) -> Iterator[Commit]:
    """Those behind the version, up to the newest; nothing if the next one is there no more, or not yet."""
    while (text := _text(log, version + 1)) is not None:
        version += 1
        yield parse_commit(version, text)


def first_since(log: Log, moment: datetime, last: int) -> int:
    """The first version made at this moment or later; behind the last one if there is none. Those that are not in the
    log any more are not asked."""
    for version in range(last, -1, -1):
        text = _text(log, version)
        if text is None or parse_commit(version, text).made < moment:
            return version + 1
    return 0


def parse_commit(version: int, text: str) -> Commit:
    made = EPOCH
    notes: dict[str, int] = {}
    added: list[DataFile] = []
    removed: list[DataFile] = []
    for line in filter(None, text.splitlines()):
        action = json.loads(line)
        if said := action.get("commitInfo"):
            moment = said.get("inCommitTimestamp", said.get("timestamp", 0))
            made = datetime.fromtimestamp(moment / 1000, UTC)
        elif note := action.get("txn"):
            notes[note["appId"]] = int(note["version"])
        else:
            for kind, files in (("add", added), ("remove", removed)):
                if kind in action and action[kind].get("dataChange", True):
                    files.append(_data_file(action[kind]))
    return Commit(version, made, tuple(added), tuple(removed), notes)


def _data_file(said: Mapping[str, Any]) -> DataFile:
    stats = json.loads(said.get("stats") or "{}")
    low, high, nulls = (stats.get(each, {}) for each in ("minValues", "maxValues", "nullCount"))
    bounds = tuple((name, low[name], high[name]) for name in low if name in high and nulls.get(name) == 0)
    partition = tuple((said.get("partitionValues") or {}).items())
    return DataFile(unquote(said["path"]), said.get("size") or 0, partition, stats.get("numRecords"), bounds)


def _text(log: Log, version: int) -> str | None:
    try:
        return log.place.get(commit_name(version)).data.decode()
    except Missing:
        return None
