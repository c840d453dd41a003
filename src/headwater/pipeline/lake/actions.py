"""What a commit of Delta says: files that come, with the bounds of their rows, and files that go."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from typing import Any

from deltalake.transaction import AddAction, RemoveAction

from headwater.pipeline.lake.files import WrittenFile


def commit_name(version: int, kind: str = "json") -> str:
    """Of a commit, or of a summary, in the place of a table."""
    return f"_delta_log/{version:020d}.{kind}"


def addition(file: WrittenFile, changes: bool) -> AddAction:
    stats = {
        "numRecords": file.rows,
        "minValues": {name: _stated(value, False) for name, value in file.low.items()},
        "maxValues": {name: _stated(value, True) for name, value in file.high.items()},
        "nullCount": file.nulls,
    }
    return AddAction(file.path, file.size, file.partition, file.made, changes, json.dumps(stats))


def removal(path: str, size: int | None, now: float, changes: bool) -> RemoveAction:
    partition: dict[str, str | None] = {}
    for part in path.split("/")[:-1]:
        name, _, partition[name] = part.partition("=")
    return RemoveAction(path, changes, int(now * 1000), size, partition or None)


def _stated(value: Any, is_greatest: bool) -> Any:
    """Delta has times in milliseconds: a bound has to stay one."""
    if isinstance(value, datetime):
        rounded = value.replace(microsecond=value.microsecond // 1000 * 1000)
        if is_greatest and rounded != value:
            rounded += timedelta(milliseconds=1)
        return rounded.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else value
