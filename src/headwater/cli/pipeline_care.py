"""`headwater pipeline backfill|compact|tables`: what is done to tables now and then, and what they are."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from headwater.cli.failure import fail
from headwater.cli.lakes import (
    FOLDER,
    LOCAL,
    LakeFolder,
    Master,
    StoresOptions,
    failing,
    needing_spark,
    open_lake,
    plain_words,
    spark_session,
    with_stores_options,
)


@with_stores_options
def backfill(
    of: StoresOptions,
    remake: Annotated[
        list[str] | None, typer.Option("--remake", metavar="TABLE", help="Make this one again from bronze; repeat.")
    ] = None,
    master: Master = LOCAL,
) -> None:
    """Fetch from the stores what bronze lacks; with --remake, throw derived tables away and make them again from
    bronze, with the settings as they are now."""
    command = "pipeline backfill"
    settings = of.settings(command)
    lake = open_lake(command, of.lake)
    from headwater.pipeline.jobs.accounts import recover
    from headwater.pipeline.jobs.pipeline import Pipeline, drain
    from headwater.pipeline.jobs.remaking import NotDerived, discard, involved

    try:
        again = involved(remake or ())
    except NotDerived as error:
        raise typer.BadParameter(f"{error}.") from None
    with spark_session(command, lake, master, short=not again) as spark, failing(command):
        with lake.writing(), _reading(command):
            found, lost = recover(spark, lake, settings)
            print(f"bronze: {found:,} messages fetched, {lost:,} lost", flush=True)
            discard(lake, again)
        if again:
            from headwater.cli.pipeline_run import stopping
            from headwater.cli.pipeline_view import PipelineView

            print(f"made again: {', '.join(table.name for table in again)}", flush=True)
            pipeline, view = Pipeline(spark, lake, settings, landing=False), PipelineView(lake, settings.source())
            with pipeline, stopping(pipeline, view, None), view.watching():
                drain(pipeline)
            if pipeline.stopped.is_set():
                print("stopped; `headwater pipeline run` makes the rest.")
    if found and not again:
        print("what was derived before lacks them: --remake silver --remake completeness --remake operations_traffic")
    raise typer.Exit(1 if lost else 0)


@contextmanager
def _reading(command: str) -> Iterator[None]:
    """What Spark says when it cannot read a store."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        fail(command, f"{plain_words(error)}.")


def compact(
    lake: LakeFolder = FOLDER,
    keep: Annotated[int, typer.Option("--keep", min=1, help="Hours for which replaced files stay, for readers.")] = 168,
    tables: Annotated[
        list[str] | None, typer.Option("--table", metavar="TABLE", help="Only this one; repeat.  [default: all]")
    ] = None,
) -> None:
    """Make few large files of many small ones, and remove those that no table needs. A pipeline that runs does so by
    itself."""
    command = "pipeline compact"
    found = open_lake(command, lake)
    with needing_spark(command):
        from headwater.pipeline.lake.upkeep import tidy
    names = {table.name: table for table in found.tables()}
    for name in tables or ():
        if name not in names:
            raise typer.BadParameter(f"there is no table {name} in {lake}; there are {', '.join(names)}.")
    with failing(command), found.writing():
        for name in tables or names:
            if sys.stdout.isatty():
                print(f"{name} …", end="\r", flush=True)
            done = tidy(found, names[name], keep=keep)
            figures = f"{done.before} files before, {done.after} now, {done.removed} old ones removed"
            print(f"{name}: {figures}", flush=True)


def tables(
    names: Annotated[list[str] | None, typer.Argument(help="Tables; without them all.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """What the tables are: columns, keys, and when a row is final (docs/tables.md)."""
    from headwater.pipeline.tables import BY_NAME, TABLES

    for name in names or ():
        if name not in BY_NAME:
            raise typer.BadParameter(f"there is no table {name}; there are {', '.join(BY_NAME)}.")
    chosen = [table for table in TABLES if not names or table.name in names]
    if as_json:
        print(json.dumps([dataclasses.asdict(table) for table in chosen]))
        return
    for table in chosen:
        print(f"{table.name}: {table.doc}\n  keys: {', '.join(table.keys)}; {table.watermark}")
        width = max(len(column.name) for column in table.columns)
        for column in table.columns:
            kind = column.type + ("" if column.nullable else " not null")
            print(f"    {column.name:{width}}  {kind:18}  {column.doc}".rstrip())
        print()
