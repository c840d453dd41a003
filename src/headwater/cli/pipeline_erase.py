"""`headwater pipeline erase`: messages that are to be forgotten, out of all tables of the lake."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headwater.cli.failure import fail
from headwater.cli.lakes import (
    LOCAL,
    Master,
    StoresOptions,
    failing,
    plain_words,
    spark_session,
    with_stores_options,
)


@with_stores_options
def erase(
    of: StoresOptions,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", metavar="FILTER", help="Messages of these topics; repeat.")
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="Messages of bronze for which this holds.")
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Note that what bronze lacks was deleted on purpose, by another tool.")
    ] = False,
    why: Annotated[str, typer.Option("--why", help="What to note as the reason.")] = "",
    vacuum: Annotated[
        bool, typer.Option("--vacuum", help="Remove the old files now; else `compact --keep` does, by their age.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    master: Master = LOCAL,
) -> None:
    """Erase messages from the lake, from bronze and all that is made of it, and note that they were: they are not lost,
    and are not fetched again. The nodes' stores are not touched."""
    command = "pipeline erase"
    if [bool(topic), where is not None, record].count(True) != 1:
        raise typer.BadParameter("say what: --topic, --where or --record, one of them.")
    check_filters(topic)
    settings = of.settings(command)
    lake = of.open_lake(command, settings)
    with spark_session(command, lake, master, short=True, settings=settings.spark) as spark, failing(command):
        from pyspark.errors import PySparkException

        from headwater.pipeline.jobs import erasing
        from headwater.pipeline.jobs.positions import count

        wanted = erasing.Wanted(tuple(topic or ()), where)
        with lake.writing(command):
            if record:
                noted = erasing.record_deleted(spark, lake, why)
                print(f"noted: {count(noted):,} messages that bronze lacks were deleted")
                return
            try:
                found = erasing.find(spark, lake, wanted)
            except PySparkException as error:
                fail(command, f"{plain_words(error)}.")
            if not found.rows:
                print("there are no such messages")
                return
            agree(command, f"{found.rows:,} messages of {len(found.topics):,} topics", yes)
            erasing.erase(spark, lake, settings, wanted, found, why)
            for name, rows in found.erased.items():
                print(f"{name}: {rows:,} rows erased")
            if vacuum:
                print(f"{erasing.vacuum(lake):,} old files removed")


def check_filters(topic: list[str] | None) -> None:
    from headwater.routing.topics import LEVELS_ASKED, InvalidTopicFilter, check_filter

    try:
        for each in topic or ():
            check_filter(each, LEVELS_ASKED)
    except InvalidTopicFilter as error:
        raise typer.BadParameter(f"--topic: {error}.") from None


def agree(command: str, what: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        fail(command, f"would erase {what}; say --yes.")
    typer.confirm(f"Erase {what}? They cannot be had back.", abort=True)
