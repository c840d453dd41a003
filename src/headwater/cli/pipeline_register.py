"""`headwater pipeline register`: the tables of a lake in the catalogs that the settings name, once and now."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.failure import fail
from headwater.cli.lakes import FOLDER, LakeOptions, LakePlace, lake_options, needing_spark, open_lake


def register(
    lake: LakePlace = FOLDER,
    lake_option: LakeOptions = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Settings in a TOML file: [[catalog]] and [iceberg].")
    ] = None,
) -> None:
    """Register tables in the catalogs of the settings. `run` does it whenever a table is made or its columns change."""
    command = "pipeline register"
    with needing_spark(command):
        from headwater.pipeline.catalogs.described import CatalogError
        from headwater.pipeline.catalogs.registrar import Registrar
        from headwater.pipeline.jobs.settings import Settings, SettingsError, read_file
    try:
        settings = Settings() if config is None else read_file(config)
    except SettingsError as error:
        fail(command, f"{error}.")
    if not settings.catalog and settings.iceberg is None:
        fail(command, "no catalog is set: --config needs a file with [[catalog]] or [iceberg].")
    found = open_lake(command, lake, {**settings.lake_options, **lake_options(lake_option)})
    try:
        for label, tables in Registrar(found, settings.catalog, settings.iceberg).once().items():
            print(f"{label}: {', '.join(tables) or 'nothing new'}")
    except CatalogError as error:
        fail(command, f"{error}.")
