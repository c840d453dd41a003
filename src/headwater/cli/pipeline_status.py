"""`headwater pipeline status`: how far the tables are, without Spark."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headwater.cli.failure import complain
from headwater.cli.lakes import StoresOptions, failing, with_stores_options

if TYPE_CHECKING:
    from headwater.pipeline.jobs.expectations import RuleCount
    from headwater.pipeline.jobs.status import Status

RULES: Final = ("expectation", "of", "action", "checked", "failed", "last minute", "checked then", "failed then")


@with_stores_options
def status(of: StoresOptions, as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """How far each table is, and what is left; without Spark, and also while a pipeline runs."""
    command = "pipeline status"
    settings = of.settings(command)
    lake = of.open_lake(command, settings)
    from headwater.pipeline.jobs.status import look, totals

    with failing(command):
        found, counts = look(lake, settings.source(), settings=settings), totals(lake)
    if as_json:
        print(json.dumps({**dataclasses.asdict(found), "completeness": counts}, default=_as_text))
        return
    _print_status(found, counts)


def _rule(each: RuleCount) -> dict[str, Any]:
    when = "" if each.minute is None else f"{each.minute:%H:%M}"
    values = (each.rule, each.table, each.action, each.checked, each.failed, when, each.checked_last, each.failed_last)
    return dict(zip(RULES, values, strict=True))


def _as_text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _print_status(found: Status, counts: dict[str, int]) -> None:
    from headwater.cli.answers import print_rows
    from headwater.live import size

    who = "nobody writes to it" if found.writer is None else f"{found.writer} writes to it"
    print(f"{found.lake}: {who}\n")
    rows = [
        {
            "table": each.name,
            "rows": each.rows,
            "files": each.files,
            "size": size(each.size),
            "version": each.version,
            "contains": ", ".join(f"{store}:{last}" for store, last in each.positions.items()),
            "complete until": "" if each.until is None else each.until.isoformat(),
        }
        for each in found.tables.values()
    ]
    print_rows(("table", "rows", "files", "size", "version", "contains", "complete until"), rows)
    stores = [
        {
            "store": each.store,
            "landed": each.landed,
            "lag": "does not answer" if each.lag is None else each.lag,
            "seconds": None if each.lag_seconds is None else round(each.lag_seconds, 1),
            "silver behind": each.behind,
        }
        for each in found.stores
    ]
    if stores:
        print()
        print_rows(("store", "landed", "lag", "seconds", "silver behind"), stores)
    if counts:
        print("\ncompleteness: " + ", ".join(f"{name} {count:,}" for name, count in counts.items()))
    if found.outcomes:
        print("outcomes: " + ", ".join(f"{name} {count:,}" for name, count in found.outcomes.items()))
    if found.rules:
        print()
        print_rows(RULES, [_rule(each) for each in found.rules])
    for name, why in found.changed.items():
        print(f"\n{name} was made with {why}: `headwater pipeline remake {name}`")
    if found.remaking:
        print(f"\nbeing made again: {', '.join(found.remaking)}")
    for url, why in found.silent.items():
        complain("pipeline status", f"no store answers at {url} ({why}); --url says where they are.")
