"""`headwater pipeline forget`: a device or a person, out of the lake and the stores' history, with a receipt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from headwater.cli.pipeline_erase import agree, check_filters

if TYPE_CHECKING:
    from headwater.pipeline.jobs.erasing import Wanted
    from headwater.pipeline.jobs.settings import Settings
    from headwater.pipeline.source.stores import StoreNow


@with_stores_options
def forget(
    of: StoresOptions,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", metavar="FILTER", help="Messages of these topics; repeat.")
    ] = None,
    publisher: Annotated[
        list[str] | None, typer.Option("--publisher", metavar="NAME", help="Messages of these clients; repeat.")
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="Messages of bronze for which this holds.")
    ] = None,
    why: Annotated[str, typer.Option("--why", help="The reason, for the receipt.")] = "",
    who: Annotated[str, typer.Option("--who", help="Who has asked for it, for the receipt.")] = "",
    receipt: Annotated[Path | None, typer.Option("--receipt", help="Write the receipt to this file, too.")] = None,
    vacuum: Annotated[
        bool, typer.Option("--vacuum", help="Remove old files of the tables now; else upkeep does, by their age.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    master: Master = LOCAL,
) -> None:
    """Forget a device or a person: erase messages from all tables and from the stores' history, for good, and keep a
    receipt. Needs the REST token of each node, and all nodes. The pipeline has to be stopped meanwhile."""
    command = "pipeline forget"
    if [bool(topic), bool(publisher), where is not None].count(True) != 1:
        raise typer.BadParameter("say what: --topic, --publisher or --where, one of them.")
    check_filters(topic)
    settings = of.settings(command)
    lake = of.open_lake(command, settings)
    with spark_session(command, lake, master, short=True, settings=settings.spark) as spark, failing(command):
        from pyspark.errors import PySparkException

        from headwater.pipeline.jobs import erasing, forgetting
        from headwater.store.reader import StoreError

        wanted = _wanted(topic, publisher, where)
        with lake.writing(command):
            lake.keep(settings.upkeep)
            stores = _stores(command, settings)
            try:
                found = erasing.find(spark, lake, wanted)
            except PySparkException as error:
                fail(command, f"{plain_words(error)}.")
            if not found.rows and not topic:
                print("there are no such messages")
                return
            agree(command, f"{found.rows:,} messages of the lake, and what {len(stores)} stores have of them", yes)
            request = forgetting.Request(why, who)
            try:
                done = forgetting.forget(spark, lake, settings, wanted, found, request, stores, clean=vacuum)
            except StoreError as error:
                fail(command, f"{error}; not all is forgotten yet: the same command does the rest.")
        text = json.dumps(done.document(), indent=2)
        if receipt is not None:
            receipt.write_text(text + "\n", encoding="utf-8")
        print(text)


def _wanted(topic: list[str] | None, publisher: list[str] | None, where: str | None) -> Wanted:
    from headwater.pipeline.jobs.erasing import Wanted

    if publisher:
        names = ", ".join("'" + each.replace("\\", "\\\\").replace("'", "\\'") + "'" for each in publisher)
        where = f"publisher in ({names})"
    return Wanted(tuple(topic or ()), where)


def _stores(command: str, settings: Settings) -> dict[str, StoreNow]:
    """All of them have to answer: what one does not forget is not forgotten."""
    from headwater.pipeline.source.stores import Stores
    from headwater.store.reader import StoreError

    stores = Stores(settings.source())
    try:
        found = stores.look()
    except StoreError as error:
        fail(command, f"{error}.")
    if stores.silent:
        fail(command, f"no answer from {', '.join(stores.silent)}; all stores have to forget. Nothing was done.")
    return found
