"""The answer of a query, as a table for people, as CSV or as JSON."""

from __future__ import annotations

import base64
import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def rows_of(answer: pa.Table) -> Iterator[dict[str, Any]]:
    """Row by row, with times as ISO 8601 in UTC and bytes as text."""
    for batch in answer.to_batches():
        for row in batch.to_pylist():
            yield {name: plain(value) for name, value in row.items()}


def plain(value: Any) -> Any:
    """As JSON can have it."""
    if isinstance(value, datetime):
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return moment.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return f"base64:{base64.b64encode(value).decode()}"
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def print_rows(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """A table that fits the terminal; numbers stand on the right."""
    from headwater.cli.fitted import Fitted, column_of, show

    table = Fitted(column_of(name, (row[name] for row in rows)) for name in names)
    for row in rows:
        table.add(*(_cell(row[name]) for name in names))
    if left_out := show(table):
        print(f"no room for {', '.join(left_out)} here: a wider terminal, or --format json, shows it", file=sys.stderr)


def print_csv(names: Sequence[str], rows: Iterator[Mapping[str, Any]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([_written(row[name]) for name in names])


def print_json(rows: Iterator[Mapping[str, Any]]) -> None:
    """One object a line."""
    for row in rows:
        print(json.dumps(row, ensure_ascii=False))


def _cell(value: Any) -> str:
    from headwater.cli.fitted import printable, shortened

    return printable(shortened(f"{value:.6g}" if isinstance(value, float) else str(_written(value))))


def _written(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
