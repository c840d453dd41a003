"""What each commit of a table says: read from the files of its log, one after the other.

A commit of Delta is one file of JSON lines. Ours carry notes (`txn` actions) that say up to which position of which
store the table contains everything (lake/log.py), so a commit tells which messages it brought.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.objects import Missing, Place
from headwater.pipeline.lake.log import Positions


@dataclass(frozen=True)
class Commit:
    """`positions` are the notes by job and store; `rows`, `size` and `files` of what was added. Where `changes` is
    false, rows were only laid out anew."""

    version: int
    time: float
    """Seconds since 1970."""
    operation: str = ""
    rows: int = 0
    size: int = 0
    files: int = 0
    removed: int = 0
    changes: bool = False
    notes: dict[str, int] = field(default_factory=dict)

    def positions(self, job: str) -> Positions:
        start = f"{job}/"
        return {name.removeprefix(start): note for name, note in self.notes.items() if name.startswith(start)}


def commits_after(table: Place, version: int) -> Iterator[Commit]:
    """Those behind the version, up to the newest; nothing if the next one is there no more, or not yet."""
    while True:
        version += 1
        try:
            found = table.get(f"_delta_log/{version:020d}.json").data
        except Missing:
            return
        yield parse(version, found)


def parse(version: int, data: bytes) -> Commit:
    moment, operation = 0.0, ""
    rows = size = files = removed = 0
    changes = False
    notes: dict[str, int] = {}
    for line in data.splitlines():
        for kind, action in json.loads(line).items() if line.strip() else ():
            if kind == "commitInfo":
                moment = action.get("timestamp", 0) / 1000
                operation = action.get("operation", "")
            elif kind == "txn":
                notes[action["appId"]] = action["version"]
            elif kind == "add":
                files += 1
                size += action["size"]
                rows += json.loads(action.get("stats") or "{}").get("numRecords", 0)
                changes |= action["dataChange"]
            elif kind == "remove":
                removed += 1
                changes |= action["dataChange"]
    return Commit(version, moment, operation, rows, size, files, removed, changes, notes)
