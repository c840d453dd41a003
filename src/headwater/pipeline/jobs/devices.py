"""The table of devices: what is known of each, and from when to when it was so.

Theory. What a device is changes slowly: it moves to another site, gets another owner. A reading belongs to what its
device was at the time of the reading, whenever one asks. So a row has a span of time, spans of one device do not
overlap, and the views `silver_devices` and `gold_devices` join each reading, or window, with the one row that was
valid then.

A file says either the whole history (it has a column `valid_from`), which takes the place of what is there; or how
things are now: a device of which something differs gets a new row from then on, and its old one ends. Devices that the
file does not name stay as they are. Either way it is one commit, and the same file again changes nothing.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from headwater.pipeline.decoding.naming import column_name
from headwater.pipeline.lake.dataset import dataset
from headwater.pipeline.lake.files import write_files
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.types import arrow_schema
from headwater.pipeline.tables import DEVICES

MOST_ROWS: Final = 1_000_000
MOST_COLUMNS: Final = 100
LARGEST: Final = 256 << 20
"""Bytes of a file."""
DEVICE: Final = "device"
FROM: Final = "valid_from"
TO: Final = "valid_to"
FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""From when a device is known that was never named before: its older readings are its own as well."""
Row = dict[str, Any]


class DevicesError(ValueError):
    """A file that cannot be loaded; says which row, and why."""


@dataclass(frozen=True)
class Loaded:
    """How many rows the table has, of how many devices, and how many rows are new or end now."""

    rows: int
    devices: int
    changed: int


def read_rows(path: Path) -> list[Row]:
    """Of a file of CSV with a head, or of JSON, an object a line. Raises DevicesError."""
    try:
        if path.stat().st_size > LARGEST:
            raise DevicesError(f"{path}: it has more than {LARGEST} bytes")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DevicesError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DevicesError(f"{path} is no text in UTF-8") from None
    found = list(_json_lines(text) if path.suffix in (".json", ".jsonl", ".ndjson") else _csv(text))
    if len(found) > MOST_ROWS:
        raise DevicesError(f"there are {len(found)} rows, and {MOST_ROWS} are allowed")
    return [_checked(number, row) for number, row in enumerate(found, 1)]


def _csv(text: str) -> Iterator[Mapping[str, Any]]:
    reader = csv.DictReader(text.splitlines())
    if len(set(reader.fieldnames or ())) != len(reader.fieldnames or ()):
        raise DevicesError("two columns have the same name")
    for number, row in enumerate(reader, 1):
        if None in row or None in row.values():
            raise DevicesError(f"row {number} has another number of columns than the head")
        yield row


def _json_lines(text: str) -> Iterator[Mapping[str, Any]]:
    for number, line in enumerate(filter(str.strip, text.splitlines()), 1):
        try:
            found = json.loads(line)
        except ValueError as error:
            raise DevicesError(f"row {number} is no JSON: {error}") from None
        if not isinstance(found, dict):
            raise DevicesError(f"row {number} is no object")
        yield found


def _checked(number: int, given: Mapping[str, Any]) -> Row:
    device = given.get(DEVICE)
    if not isinstance(device, str) or not device:
        raise DevicesError(f"row {number} has no device")
    if len(given) > MOST_COLUMNS:
        raise DevicesError(f"row {number} has {len(given)} columns, and {MOST_COLUMNS} are allowed")
    row: Row = {DEVICE: device}
    for name, value in given.items():
        if name in (FROM, TO):
            row[name] = _moment(number, name, value)
        elif name != DEVICE:
            column = column_name((name,))
            if column in row:
                raise DevicesError(f"row {number}: two columns become {column!r}")
            row[column] = None if value in (None, "") else value if isinstance(value, str) else json.dumps(value)
    return row


def _moment(number: int, name: str, value: Any) -> datetime | None:
    if value in (None, ""):
        return None
    try:
        found = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise DevicesError(f"row {number}: {name} is {value!r}, and no time such as 2026-01-31T12:00:00Z") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def load(lake: Lake, rows: Sequence[Row], at: datetime) -> Loaded:
    """One commit, or none if nothing differs. `at` is when it is so, if the rows do not say it. Raises DevicesError,
    and LakeError if somebody else has loaded at the same time."""
    log = lake.log(DEVICES)
    seen = log.look()
    there = [_without_nulls(row) for row in dataset(log).to_table().to_pylist()]
    new = _history(rows) if any(FROM in row for row in rows) else _since(there, rows, at)
    key = [(row[DEVICE], row[FROM]) for row in new]
    loaded = Loaded(len(new), len({device for device, _ in key}), _differing(there, new))
    if loaded.changed:
        names = sorted({name for row in new for name in row} - set(DEVICES.names))
        schema = pa.schema([*arrow_schema(DEVICES), *(pa.field(name, pa.string()) for name in names)])
        files = write_files([pa.RecordBatch.from_pylist(new, schema)], log.place, None) if new else []
        log.commit(files, {"loaded": (seen.note("loaded") or 0) + 1}, replaced=seen.paths(), seen=seen)
    return loaded


def _history(rows: Sequence[Row]) -> list[Row]:
    """Spans end where the next begins, and do not overlap."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[DEVICE], []).append({**row, FROM: row.get(FROM) or FIRST})
    made: list[Row] = []
    for device, theirs in sorted(found.items()):
        theirs.sort(key=lambda row: row[FROM])
        for row, next in zip(theirs, [*theirs[1:], None], strict=True):
            until = row.get(TO) or (None if next is None else next[FROM])
            if until is not None and (until <= row[FROM] or (next is not None and until > next[FROM])):
                raise DevicesError(
                    f"of device {device}, the spans from {row[FROM].isoformat()} on overlap or are empty"
                )
            made.append(_without_nulls({**row, TO: until}))
    return made


def _since(there: Sequence[Row], rows: Sequence[Row], at: datetime) -> list[Row]:
    """What was, and what is so from then on."""
    made = {(row[DEVICE], row[FROM]): row for row in there}
    last = {row[DEVICE]: row for row in sorted(there, key=lambda row: row[FROM]) if TO not in row}
    for row in rows:
        device, now = row[DEVICE], _without_nulls(row)
        before = last.get(device)
        if before is not None and _said(before) == _said(now):
            continue
        is_known = any(each[DEVICE] == device for each in there) if before is None else True
        begin = at if is_known else FIRST
        if before is not None:
            if begin <= before[FROM]:
                raise DevicesError(f"of device {device}, something is known from {before[FROM].isoformat()} on already")
            made[(device, before[FROM])] = {**before, TO: begin}
        last[device] = made[(device, begin)] = {**now, FROM: begin}
    return _history(list(made.values()))


def _said(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in (FROM, TO)}


def _without_nulls(row: Row) -> Row:
    return {name: value for name, value in row.items() if value is not None}


def _differing(before: Iterable[Row], now: Iterable[Row]) -> int:
    one, other = (
        {tuple(sorted((name, str(value)) for name, value in row.items())) for row in rows} for rows in (before, now)
    )
    return len(other - one) + len(one - other)
