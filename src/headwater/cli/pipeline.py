"""`headwater pipeline run|status|query|…`: stores into tables, and answers (docs/pipeline.md)."""

from __future__ import annotations

import typer

from headwater.cli.pipeline_care import backfill, compact, remake, tables
from headwater.cli.pipeline_devices import devices
from headwater.cli.pipeline_erase import erase
from headwater.cli.pipeline_forget import forget
from headwater.cli.pipeline_query import query
from headwater.cli.pipeline_register import register
from headwater.cli.pipeline_run import run
from headwater.cli.pipeline_status import status
from headwater.cli.pipeline_submit import submit

pipeline = typer.Typer(
    name="pipeline",
    help="Bring what nodes have stored into tables of a lakehouse, with Spark, and ask the tables.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
pipeline.command()(run)
pipeline.command()(status)
pipeline.command()(query)
pipeline.command()(backfill)
pipeline.command()(remake)
pipeline.command()(erase)
pipeline.command()(forget)
pipeline.command()(devices)
pipeline.command()(compact)
pipeline.command()(tables)
pipeline.command()(register)
pipeline.add_typer(submit)
