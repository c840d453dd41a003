"""`headwater proxy`: a broker of any make becomes part of a cluster (docs/proxy.md)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import unquote

import typer

from headwater.cli.config import Assignments, load_settings, read_settings
from headwater.cli.failure import fail

CLUSTER: Final = "headwater"
"""The cluster's name unless another one is given: proxies and nodes that are to be one name the same."""


class Method(StrEnum):
    FLOOD = "flood"
    SUBSCRIBE = "subscribe"
    BLOOM = "bloom"


class Level(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class HomeBroker(NamedTuple):
    """An address of the command line, in the settings' parts."""

    broker: str
    username: str | None
    password: str | None


def home_broker(text: str) -> HomeBroker:
    """`[mqtt[s]://][user[:password]@]host[:port]`; user and password may be percent-encoded."""
    scheme, is_url, rest = text.rpartition("://")
    who, has_user, place = rest.rpartition("@")
    user, has_password, password = who.partition(":")
    return HomeBroker(
        f"{scheme}://{place}" if is_url else place,
        unquote(user) if has_user else None,
        unquote(password) if has_password else None,
    )


def proxy(
    broker: Annotated[
        str | None,
        typer.Option("--broker", metavar="URL", help="The home broker: [mqtt[s]://][user[:password]@]host[:port]."),
    ] = None,
    listen: Annotated[
        list[str] | None,
        typer.Option("--listen", metavar="[HOST:]PORT", help="Where its clients connect; repeat.  [localhost:1883]"),
    ] = None,
    peer: Annotated[
        list[str] | None, typer.Option("--peer", metavar="HOST:PORT", help="A proxy or node to be one with; repeat.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="NAME", help=f"Name of the cluster.  [{CLUSTER}]")
    ] = None,
    node: Annotated[
        str | None, typer.Option("--node", metavar="ID", help="This node's id in the cluster.  [default: made up]")
    ] = None,
    cluster_port: Annotated[
        int | None, typer.Option("--cluster-port", help="TCP port for other nodes; 0 takes a free one.  [11883]")
    ] = None,
    cluster_secret_file: Annotated[
        str | None, typer.Option("--cluster-secret-file", help="File with what a node has to know to join.")
    ] = None,
    method: Annotated[
        Method | None, typer.Option("--method", help="How other nodes are told what is wanted here.  [subscribe]")
    ] = None,
    data_dir: Annotated[
        str | None, typer.Option(help="Folder in which what waits for others outlives the process.")
    ] = None,
    config: Annotated[str | None, typer.Option("--config", "-c", help="Settings in a TOML file.")] = None,
    log_level: Annotated[Level | None, typer.Option(help="Least severe log line shown.")] = None,
    assignments: Assignments = None,
) -> None:
    """Make a broker of any make part of a cluster: its clients connect here, and others' messages come to them."""
    home = HomeBroker("", None, None) if broker is None else home_broker(broker)
    flags: dict[str, Any] = {
        "proxy.broker": home.broker or None,
        "proxy.username": home.username,
        "proxy.password": home.password,
        "proxy.listen": listen or None,
        "cluster.join": peer or None,
        "cluster.name": cluster,
        "cluster.node": node,
        "cluster.port": cluster_port,
        "cluster.secret_file": cluster_secret_file,
        "cluster.method": None if method is None else method.value,
        "data_dir": data_dir,
        "log_level": None if log_level is None else log_level.value,
    }
    defaults = {"cluster.name": CLUSTER}
    settings = load_settings("proxy", config, flags, assignments, defaults).settings
    if not settings.proxy.enabled:
        fail("proxy", "which broker? Give --broker HOST:PORT, or set proxy.broker")
    from headwater.node.run import run_broker

    raise typer.Exit(run_broker(settings, None, lambda: read_settings(config, flags, assignments, defaults).settings))
