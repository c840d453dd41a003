"""What the commands of `headwater pipeline` share: which lake, which stores, and a Spark that is asked for late."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headwater.cli.failure import fail
from headwater.cli.options import with_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.pipeline.jobs.settings import Settings
    from headwater.pipeline.lake.folder import Lake

FOLDER: Final = "headwater-lake"
URL: Final = "http://localhost:8080"
NOT_INSTALLED: Final = "pip install 'headwater[spark]'"
SPARK_LOG: Final = "spark.log"
LOCAL: Final = "local[*]"

Master = Annotated[
    str, typer.Option("--master", help="Where Spark runs: local[N], spark://host:port, or sc://host:port for Connect.")
]
LakePlace = Annotated[
    str, typer.Option("--lake", help="The folder of the tables, or its URL: s3://…, abfss://…, gs://….")
]
LakeOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--lake-option", metavar="NAME=VALUE", help="Of the object store, such as AWS_REGION=eu-west-1; repeat."
    ),
]


@dataclass
class StoresOptions:
    """Which lake, from which stores, and who asks them. What is given here goes before what the file says."""

    lake: LakePlace = FOLDER
    lake_option: LakeOptions = None
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Settings in a TOML file (docs/pipeline.md).")
    ] = None
    url: Annotated[
        list[str] | None, typer.Option("--url", help=f"REST of a node; repeat for several.  [default: {URL}]")
    ] = None
    urls_file: Annotated[
        Path | None, typer.Option("--urls-file", help="A file of such addresses, one a line; it is read again.")
    ] = None
    token: Annotated[str | None, typer.Option("--token", envvar="HEADWATER_REST__TOKEN", help="REST token.")] = None
    user: Annotated[str | None, typer.Option("-u", "--username", help="User name, with -P.")] = None
    password: Annotated[str | None, typer.Option("-P", "--pw", help="Password.")] = None
    cafile: Annotated[str | None, typer.Option("--cafile", help="Trust the certificates in this file (https).")] = None

    def settings(self, command: str, **further: Any) -> Settings:
        """Those of the file and those given, with `further` ones that are not None. A mistake ends the command."""
        with needing_spark(command):
            from headwater.pipeline.jobs.settings import Settings, SettingsError, read_file
        given = {
            "urls_file": None if self.urls_file is None else str(self.urls_file),
            "token": self.token,
            "user": self.user,
            "password": self.password,
            "ca": self.cafile,
            **further,
        }
        try:
            settings = Settings() if self.config is None else read_file(self.config)
            if self.url or self.urls_file is not None:  # those, and none that the file names
                settings = dataclasses.replace(settings, urls=tuple(self.url or ()), urls_file=None)
            settings = dataclasses.replace(settings, **{name: value for name, value in given.items() if value})
            settings.source()
        except SettingsError as error:
            fail(command, f"{error}.")
        except ValueError as error:
            raise typer.BadParameter(f"{error}.") from None
        return settings

    def lake_at(self, command: str, settings: Settings) -> Lake:
        """It need not be there yet. A mistake ends the command."""
        lake = _lake(command, self.lake, {**settings.lake_options, **lake_options(self.lake_option)})
        lake.other_engines = settings.other_engines
        return lake

    def open_lake(self, command: str, settings: Settings) -> Lake:
        """One that is there. A mistake ends the command."""
        return _there(command, self.lake_at(command, settings))


with_stores_options = with_options(StoresOptions, "of")


def open_lake(command: str, where: str, options: Mapping[str, str]) -> Lake:
    """One that is there. A mistake ends the command."""
    return _there(command, _lake(command, where, options))


def lake_options(given: list[str] | None) -> dict[str, str]:
    """From NAME=VALUE."""
    found = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise typer.BadParameter("--lake-option is a name and a value, such as AWS_REGION=eu-west-1.")
        found[name] = value
    return found


def _lake(command: str, where: str, options: Mapping[str, str]) -> Lake:
    with needing_spark(command):
        from headwater.pipeline.lake.folder import Lake
        from headwater.pipeline.lake.log import LakeError
    try:
        return Lake(where, options=options)
    except LakeError as error:
        fail(command, f"{error}.")


def _there(command: str, lake: Lake) -> Lake:
    from headwater.objects import PlaceError

    try:
        is_there = lake.exists()
    except PlaceError as error:
        fail(command, f"{error}.")
    if not is_there:
        fail(command, f"there is no lake in {lake.where}; `headwater pipeline run --lake {lake.where}` makes one.")
    return lake


@contextlib.contextmanager
def needing_spark(command: str) -> Iterator[None]:
    """Around imports."""
    try:
        yield
    except ImportError as error:
        fail(command, f"{error.name or error} is needed: {NOT_INSTALLED}")


@contextlib.contextmanager
def spark_session(
    command: str, lake: Lake, master: str, *, short: bool, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A Spark that ends with the command, and its Java with it, unless this process had one before. What Java says is
    in the lake's spark.log. `short`: it will live for seconds. `settings` are Spark's own; of a master that they name,
    one that is given goes before."""
    with needing_spark(command):
        from pyspark.sql import SparkSession

        from headwater.pipeline.java import NoJava
        from headwater.pipeline.session import SHORT_LIFE, NoSpark, end_session, make_session
        from headwater.pipeline.spark_settings import MASTER
    had_one = SparkSession.getActiveSession() is not None
    log = lake.scratch / SPARK_LOG
    warehouse = {"spark.sql.warehouse.dir": str(lake.scratch / "warehouse")}  # not in the folder somebody stands in
    chosen = {**warehouse, **(SHORT_LIFE if short else {}), **(settings or {})}
    named = chosen.pop(MASTER, LOCAL)
    master = named if master == LOCAL else master
    try:
        lake.scratch.mkdir(parents=True, exist_ok=True)
        spark = make_session(master, settings=chosen, log=log)
    except (NoJava, NoSpark) as error:
        fail(command, str(error))
    except OSError as error:
        fail(command, f"cannot use {lake.scratch}: {error.strerror or error}.")
    except Exception as error:
        fail(command, f"Spark does not start ({master}): {plain_words(error)}; {log} has what it said.")
    try:
        yield spark
    finally:
        if not had_one:
            end_session(spark)


@contextlib.contextmanager
def failing(command: str) -> Iterator[None]:
    """What a pipeline or a lake says ends the command."""
    from headwater.objects import PlaceError
    from headwater.pipeline.jobs.pipeline import PipelineError
    from headwater.pipeline.lake.log import LakeError
    from headwater.pipeline.monitoring.monitor import MonitoringError
    from headwater.pipeline.options import OptionError

    try:
        yield
    except (PipelineError, LakeError, PlaceError, MonitoringError, OptionError) as error:
        text = str(error)
        if "does not exist" in text and ".parquet" in text:
            text += "; if the file was removed by hand, `headwater pipeline backfill` fetches what was in it"
        fail(command, f"{text.rstrip('.')}.")


def plain_words(error: Exception | str) -> str:
    """Of an error of Spark one sentence: its first line, without its class, its state and what follows."""
    from headwater.pipeline.jobs.pipeline import first_words

    text = first_words(str(error))
    if text.startswith("["):
        text = text.partition("] ")[2] or text
    return text.partition(" SQLSTATE: ")[0].rstrip(". ")
