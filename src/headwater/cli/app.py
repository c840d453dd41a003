"""The commands of `headwater`, and those of them that are short."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from headwater.cli.cluster import NodeOptions, with_node_options
from headwater.cli.cluster import cluster as cluster_commands
from headwater.cli.config import OF_A_NODE, Assignments, load_settings, read_settings
from headwater.cli.config import config as config_commands
from headwater.cli.data import backup, export_data, import_data, repair, restore
from headwater.cli.demo import demo
from headwater.cli.edge import edge
from headwater.cli.fleet import fleet
from headwater.cli.forwards import forwards
from headwater.cli.passwd import passwd
from headwater.cli.pipeline import pipeline
from headwater.cli.plugins import PluggedGroup
from headwater.cli.proxy import proxy
from headwater.cli.pub import pub
from headwater.cli.store import store
from headwater.cli.sub import sub
from headwater.cli.top import top

if TYPE_CHECKING:
    from headwater.node.config import Config

app = typer.Typer(
    name="headwater",
    cls=PluggedGroup,
    help="MQTT from the edge to the lakehouse, nothing lost on the way.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(proxy)
app.command()(pub)
app.command()(sub)
app.command()(top)
edge.command()(forwards)
app.command()(passwd)
app.command()(fleet)
app.command()(demo)
app.command()(backup)
app.command()(restore)
app.command()(repair)
app.command("export")(export_data)
app.command("import")(import_data)
app.add_typer(config_commands)
app.add_typer(store)
app.add_typer(edge)
app.add_typer(pipeline)
app.add_typer(cluster_commands)


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


Host = Annotated[str | None, typer.Option(help="Name or address to listen on.")]
Port = Annotated[int | None, typer.Option("--port", "-p", help="TCP port; 0 takes a free one.")]
ConfigFile = Annotated[str | None, typer.Option("--config", "-c", help="Settings in a TOML file.")]
Level = Annotated[LogLevel | None, typer.Option(help="Least severe log line shown.")]
When = Annotated[Durability | None, typer.Option(help="Whether what goes there is acknowledged once it is on disk.")]
Workers = Annotated[
    int | None, typer.Option("--workers", metavar="N", help="Processes that serve clients together (docs/workers.md).")
]
Live = Annotated[bool, typer.Option("--live", help="Show connections and message rates as they change.")]


@app.command()
@with_node_options
def broker(
    of_cluster: NodeOptions,
    host: Host = None,
    port: Port = None,
    config: ConfigFile = None,
    log_level: Level = None,
    data_dir: Annotated[
        str | None, typer.Option(help="Folder in which sessions and retained messages outlive the process.")
    ] = None,
    durability: When = None,
    workers: Workers = None,
    assignments: Assignments = None,
    live: Live = False,
) -> None:
    """Run an MQTT 3.1.1 and 5.0 broker until it is told to stop (SIGINT, SIGTERM); SIGHUP reads the settings again."""
    flags = {**_flags(host, port, log_level, data_dir, durability), "workers": workers, **of_cluster.flags()}
    _run("broker", config, flags, assignments, {}, live)


@app.command()
@with_node_options
def node(
    of_cluster: NodeOptions,
    host: Host = None,
    port: Port = None,
    rest_port: Annotated[int | None, typer.Option(help="TCP port of REST; 0 takes a free one.  [8080]")] = None,
    config: ConfigFile = None,
    log_level: Level = None,
    data_dir: Annotated[
        str | None, typer.Option(help="Folder of messages, sessions and retained messages.  [headwater-data]")
    ] = None,
    durability: When = None,
    workers: Workers = None,
    assignments: Assignments = None,
    live: Live = False,
) -> None:
    """Run broker, delivery store and REST together: every message has a position, and is on disk before anybody gets
    it. As `headwater broker` in all else."""
    flags = {**_flags(host, port, log_level, data_dir, durability), "rest.port": rest_port, "workers": workers}
    flags |= of_cluster.flags()
    _run("node", config, flags, assignments, OF_A_NODE, live)


def _flags(
    host: str | None, port: int | None, log_level: LogLevel | None, data_dir: str | None, durability: Durability | None
) -> dict[str, Any]:
    return {
        "host": host,
        "port": port,
        "data_dir": data_dir,
        "durability": None if durability is None else durability.value,
        "log_level": None if log_level is None else log_level.value,
    }


def _run(
    command: str,
    config: str | None,
    flags: dict[str, Any],
    assignments: list[str] | None,
    defaults: dict[str, Any],
    live: bool,
) -> NoReturn:
    settings = load_settings(command, config, flags, assignments, defaults).settings
    from headwater.node.run import run_broker

    def again() -> Config:
        return read_settings(config, flags, assignments, defaults).settings

    view = None
    if live:
        from headwater.live import LiveView

        view = LiveView()
    raise typer.Exit(run_broker(settings, view, again))
