"""The commands of `headwater`, and those of them that are short."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.config import Assignments, load_settings, read_settings
from headwater.cli.config import config as config_commands
from headwater.cli.data import backup, export_data, import_data, restore
from headwater.cli.passwd import passwd
from headwater.cli.pub import pub
from headwater.cli.reproduce import reproduce
from headwater.cli.sub import sub
from headwater.cli.top import top

if TYPE_CHECKING:
    from headwater.node.config import Config

app = typer.Typer(
    name="headwater",
    help="MQTT from the edge to the lakehouse, nothing lost on the way.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(pub)
app.command()(sub)
app.command()(top)
app.command()(passwd)
app.command()(backup)
app.command()(restore)
app.command("export")(export_data)
app.command("import")(import_data)
app.add_typer(config_commands)
app.add_typer(reproduce)


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Durability(StrEnum):
    SYNC = "sync"
    ASYNC = "async"
    NONE = "none"


@app.command()
def version() -> None:
    """Print the version, and whether the hot modules are compiled."""
    from headwater.build_info import version_line

    print(version_line())


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        version()
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="The same as `headwater version`.")
    ] = False,
) -> None:
    pass


@app.command()
def broker(
    host: Annotated[str | None, typer.Option(help="Name or address to listen on.")] = None,
    port: Annotated[int | None, typer.Option("--port", "-p", help="TCP port; 0 takes a free one.")] = None,
    config: Annotated[str | None, typer.Option("--config", "-c", help="Settings in a TOML file.")] = None,
    log_level: Annotated[LogLevel | None, typer.Option(help="Least severe log line shown.")] = None,
    data_dir: Annotated[
        str | None, typer.Option(help="Folder in which sessions and retained messages outlive the process.")
    ] = None,
    durability: Annotated[
        Durability | None, typer.Option(help="Whether what goes there is acknowledged once it is on disk.")
    ] = None,
    assignments: Assignments = None,
    live: Annotated[bool, typer.Option("--live", help="Show connections and message rates as they change.")] = False,
) -> None:
    """Run an MQTT 3.1.1 and 5.0 broker until it is told to stop (SIGINT, SIGTERM); SIGHUP reads the settings again."""
    flags = {
        "host": host,
        "port": port,
        "data_dir": data_dir,
        "durability": None if durability is None else durability.value,
        "log_level": None if log_level is None else log_level.value,
    }
    settings = load_settings("broker", config, flags, assignments).settings
    from headwater.node.run import run_broker

    def again() -> Config:
        return read_settings(config, flags, assignments).settings

    view = None
    if live:
        from headwater.live import LiveView

        view = LiveView()
    raise typer.Exit(run_broker(settings, view, again))
