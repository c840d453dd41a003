"""The answer of a query, as a table for people, as CSV or as JSON."""

from __future__ import annotations

import base64
import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN: Final = 100
"""Characters of a cell in a table."""


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
    """A table; numbers stand on the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in names:
        numbers = all(isinstance(row[name], int | float | None) for row in rows)
        table.add_column(name, justify="right" if numbers and rows else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(_cell(row[name])) for name in names))
    console = Console()
    if not console.is_terminal:  # nobody wants a table cut off that goes into a file
        console = Console(width=10_000)
    console.print(table)


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
    """A text may hold anything, also what a terminal would obey."""
    text = f"{value:.6g}" if isinstance(value, float) else str(_written(value))
    return "".join(each if each.isprintable() else "·" for each in text[:SHOWN])


def _written(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
