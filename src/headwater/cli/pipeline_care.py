"""`headwater pipeline backfill|remake|compact|tables`: what is done to tables now and then, and what they are."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headwater.cli.failure import fail
from headwater.cli.lakes import (
    FOLDER,
    LOCAL,
    LakeOptions,
    LakePlace,
    Master,
    StoresOptions,
    failing,
    lake_options,
    needing_spark,
    open_lake,
    plain_words,
    spark_session,
    with_stores_options,
)
from headwater.suggestion import unknown

if TYPE_CHECKING:
    from headwater.pipeline.jobs.remaking import Plan
    from headwater.pipeline.lake.folder import Lake

OF_BRONZE: Final = ("silver", "completeness", "operations_traffic", "operations_members")
"""With what is made of them, all that is derived."""


@with_stores_options
def backfill(
    of: StoresOptions,
    deleted: Annotated[bool, typer.Option("--deleted", help="Also what somebody deleted with another tool.")] = False,
    master: Master = LOCAL,
) -> None:
    """Fetch from the stores what bronze lacks; not what was erased."""
    command = "pipeline backfill"
    settings = of.settings(command)
    lake = of.open_lake(command, settings)
    from headwater.pipeline.jobs.accounts import missing, recover
    from headwater.pipeline.jobs.forgetting import learn

    with spark_session(command, lake, master, short=True, settings=settings.spark) as spark, failing(command):
        with lake.writing(command), _reading(command):
            if missing(lake):
                learn(lake, settings)
            found, lost = recover(spark, lake, settings, deleted=deleted)
        print(f"bronze: {found:,} messages fetched, {lost:,} lost", flush=True)
    if found:
        print(f"what was derived before lacks them: headwater pipeline remake {' '.join(OF_BRONZE)}")
    raise typer.Exit(1 if lost else 0)


@with_stores_options
def remake(
    of: StoresOptions,
    tables: Annotated[list[str] | None, typer.Argument(help="Derived tables.", show_default=False)] = None,
    start: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Only what arrived from then on (ISO 8601).")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Only what arrived before.")] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Give up a remake that was begun.")] = False,
    master: Master = LOCAL,
) -> None:
    """Make derived tables again from bronze, with the settings as they are now, and what is made of them. They are
    built beside the old ones, which can be read and go on until the new ones take their place. A pipeline that runs is
    asked to do it, by the settings in its file, which it reads again; this waits for it. Else this does it, and lands
    new messages, too."""
    command = "pipeline remake"
    settings = of.settings(command)
    lake = of.open_lake(command, settings)
    from headwater.pipeline.jobs.remaking import can_be_cancelled, forget_plan, planned, stored_plan

    if lake.writer() is not None:
        _ask(command, lake, None if cancel else _plan_of(tables, start, end))
        return
    if cancel:
        with failing(command), lake.writing(command):
            begun = stored_plan(lake)
            if begun is not None and not can_be_cancelled(lake, begun):
                fail(command, "some tables are made again already, and the others have to be; go on with it.")
            forget_plan(lake)
        print("given up." if begun else "there is none to give up.")
        return
    if not tables and stored_plan(lake) is None:
        raise typer.BadParameter("say which tables; `headwater pipeline tables` lists them.")
    plan = _plan_of(tables, start, end) if tables else None
    with spark_session(command, lake, master, short=False, settings=settings.spark) as spark, failing(command):
        from headwater.cli.pipeline_run import stopping
        from headwater.cli.pipeline_view import PipelineView
        from headwater.pipeline.jobs.pipeline import Pipeline, remake_all

        pipeline, view = (
            Pipeline(spark, lake, settings, remake=plan, what=command),
            PipelineView(lake, settings.source()),
        )
        with pipeline:
            names = ", ".join(table.name for table in planned(lake, pipeline.remake)) if pipeline.remake else ""
            with stopping(pipeline, view, None), view.watching():
                remake_all(pipeline)
    done = pipeline.remake is None
    print(f"made again: {names}" if done else "stopped; `headwater pipeline run` or `remake` goes on with it.")


def _plan_of(tables: list[str] | None, start: str | None, end: str | None) -> Plan:
    from headwater.pipeline.jobs.remaking import NotDerived, make_plan

    if not tables:
        raise typer.BadParameter("say which tables; `headwater pipeline tables` lists them.")
    try:
        return make_plan(tables, _moment(start, "--from"), _moment(end, "--to"))
    except NotDerived as error:
        raise typer.BadParameter(f"{error}.") from None


def _ask(command: str, lake: Lake, plan: Plan | None) -> None:
    """The pipeline that writes to the lake. Who interrupts the waiting does not stop it."""
    from headwater.pipeline.jobs import requests
    from headwater.pipeline.jobs.remaking import planned

    with failing(command):
        number = requests.ask(lake, plan)
    print(f"asked {lake.writer()}, which writes to {lake.where}; Ctrl-C stops waiting for it", flush=True)
    try:
        said = requests.wait(lake, number)
    except KeyboardInterrupt:
        print("it goes on; `headwater pipeline status` says how far it is.")
        return
    if said.error:
        fail(command, f"{said.error.rstrip('.')}.")
    names = "" if plan is None else ", ".join(table.name for table in planned(lake, plan))
    print(f"made again: {names}" if plan else "given up.")


def _moment(text: str | None, option: str) -> datetime | None:
    try:
        found = None if text is None else datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{option} is a time such as 2026-01-31T12:00:00Z, not {text!r}.") from None
    return found.replace(tzinfo=UTC) if found is not None and found.tzinfo is None else found


@contextmanager
def _reading(command: str) -> Iterator[None]:
    """What Spark says when it cannot read a store."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        fail(command, f"{plain_words(error)}.")


def compact(
    lake: LakePlace = FOLDER,
    lake_option: LakeOptions = None,
    keep: Annotated[int, typer.Option("--keep", min=1, help="Hours for which replaced files stay, for readers.")] = 1,
    tables: Annotated[
        list[str] | None, typer.Option("--table", metavar="TABLE", help="Only this one; repeat.  [default: all]")
    ] = None,
) -> None:
    """Make few large files of many small ones, and remove those that no table needs. A pipeline that runs does so by
    itself."""
    command = "pipeline compact"
    found = open_lake(command, lake, lake_options(lake_option))
    with needing_spark(command):
        from headwater.pipeline.lake.upkeep import tidy
    names = {table.name: table for table in found.tables()}
    for name in tables or ():
        if name not in names:
            raise typer.BadParameter(unknown("table", name, names, f" in {lake}"))
    with failing(command), found.writing(command):
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
            raise typer.BadParameter(unknown("table", name, BY_NAME))
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
