"""`headwater pipeline devices`: what is known of devices, into the table that readings are joined with."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.failure import fail
from headwater.cli.lakes import FOLDER, LakeOptions, LakePlace, failing, lake_options, needing_spark, open_lake


def devices(
    file: Annotated[Path, typer.Argument(help="CSV with a head, or JSON, an object a line.", show_default=False)],
    lake: LakePlace = FOLDER,
    lake_option: LakeOptions = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Since when it is so (ISO 8601).  [default: now]")
    ] = None,
) -> None:
    """Load what is known of devices: a row each, with a column `device` and others of your own. With a column
    `valid_from` the file is the whole history, and takes the place of what is there; else it says what is so now. The
    views silver_devices and gold_devices join readings with what was known of their device at their time. It may be
    done while a pipeline runs."""
    command = "pipeline devices"
    found = open_lake(command, lake, lake_options(lake_option))
    with needing_spark(command):
        from headwater.pipeline.jobs.devices import DevicesError, load, read_rows
    try:
        moment = datetime.now(UTC) if at is None else datetime.fromisoformat(at)
    except ValueError:
        raise typer.BadParameter(f"--at is a time such as 2026-01-31T12:00:00Z, not {at!r}.") from None
    with failing(command):
        try:
            done = load(found, read_rows(file), moment if moment.tzinfo else moment.replace(tzinfo=UTC))
        except DevicesError as error:
            fail(command, f"{error}.")
    print(f"devices: {done.devices:,}, in {done.rows:,} rows, of which {done.changed:,} changed")
