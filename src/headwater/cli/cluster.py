"""`headwater cluster status|peers|routes|groups|join|leave|drain|undrain|forget|method`: a cluster as one of its nodes
sees it, by the admin API of that node (docs/cluster.md); and the options by which `headwater broker` becomes a node of
one."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

import typer

from headwater.cli.admin import Admin, AdminError, read_token
from headwater.cli.failure import fail
from headwater.cli.options import with_options

if TYPE_CHECKING:
    from headwater.cli.fitted import Column

URL: Final = "http://localhost:18830"
LOOKS: Final = 0.5
"""Seconds between two looks at a drain."""

STATES: Final = ("live", "suspected", "dead", "left")
PLENTY: Final = 1 << 16
"""Messages that a member has room for that has no window."""

cluster = typer.Typer(
    name="cluster",
    help="Look at a cluster from one of its nodes, by that node's admin API, and give the node orders.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


# ---- options -----------------------------------------------------------------------------------------------------


@dataclass
class NodeOptions:
    """Of `headwater broker` and `headwater node`: the cluster that they are to be part of."""

    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="NAME", help="Be a node of this cluster (docs/cluster.md).")
    ] = None
    join: Annotated[
        list[str] | None, typer.Option("--join", metavar="HOST:PORT", help="A node of the cluster to join; repeat.")
    ] = None
    node: Annotated[
        str | None, typer.Option("--node", metavar="ID", help="This node's id in the cluster.  [default: made up]")
    ] = None
    cluster_port: Annotated[
        int | None, typer.Option("--cluster-port", help="TCP port for other nodes; 0 takes a free one.  [11883]")
    ] = None
    cluster_secret_file: Annotated[
        str | None, typer.Option("--cluster-secret-file", help="File with what a node has to know to join.")
    ] = None

    def flags(self) -> dict[str, Any]:
        """By the names of the settings."""
        return {
            "cluster.name": self.cluster,
            "cluster.join": self.join or None,
            "cluster.node": self.node,
            "cluster.port": self.cluster_port,
            "cluster.secret_file": self.cluster_secret_file,
        }


with_node_options = with_options(NodeOptions, "of_cluster")


@dataclass
class AskOptions:
    """Which node is asked."""

    admin: Annotated[str, typer.Option("--admin", metavar="URL", help="The node's admin API.")] = URL
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="Its token.  [default: $HEADWATER_ADMIN__TOKEN]")
    ] = None

    @contextmanager
    def node(self, command: str, group: str = "cluster") -> Iterator[Admin]:
        """What goes wrong ends the command with an explanation."""
        try:
            yield Admin(self.admin, read_token(f"{group} {command}", self.token_file))
        except AdminError as error:
            fail(f"{group} {command}", error.detail or str(error))


with_ask_options = with_options(AskOptions, "of")

AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]


# ---- looking -----------------------------------------------------------------------------------------------------


@cluster.command()
@with_ask_options
def status(of: AskOptions, as_json: AsJson = False) -> None:
    """Who is in the cluster."""
    with of.node("status") as node:
        found = node.ask("/v1/cluster")
    if as_json:
        print(json.dumps(found))
        return
    print(summary(found))
    _print_nodes(found["nodes"])


@cluster.command()
@with_ask_options
def peers(of: AskOptions, as_json: AsJson = False) -> None:
    """Links of the node, and what waits on them. In and out are messages and bytes, as the node sees them; spool is
    what the peer has not acknowledged, and how full that is."""
    with of.node("peers") as node:
        found = node.ask("/v1/cluster")
    if as_json:
        print(json.dumps(found["links"]))
    elif found["links"]:
        _print_links(found["links"])
    else:
        print(f"node {found['node']} has no links: nobody else has joined {found['cluster']}")


@cluster.command()
@with_ask_options
def routes(
    of: AskOptions,
    topic: Annotated[str, typer.Argument(help="A topic name, without wildcards.")],
    as_json: AsJson = False,
) -> None:
    """Where messages of a topic go from the node."""
    with of.node("routes") as node:
        found = node.ask(f"/v1/cluster/routes?topic={quote(topic, safe='')}")
    print(json.dumps(found) if as_json else _route(found))


@cluster.command()
@with_ask_options
def groups(of: AskOptions, as_json: AsJson = False) -> None:
    """Shared groups, and where their members are, as the node knows them. Room is how many messages they would be sent
    at once; sent are those that went there from here since the link is up."""
    with of.node("groups") as node:
        own = node.ask("/v1/cluster")["node"]
        found = node.ask("/v1/groups")
    if as_json:
        print(json.dumps(found))
    elif found:
        _print_groups(found, own)
    else:
        print("there are no shared groups")


def summary(found: Mapping[str, Any]) -> str:
    """A cluster in one line."""
    states = [each["state"] for each in found["nodes"]]
    nodes = [f"{states.count(state)} {state}" for state in STATES if state in states]
    up = sum(link["state"] != "down" for link in found["links"])
    parts = [
        f"cluster {found['cluster']}: {', '.join(nodes)}",
        f"node {found['node']}, method {found['method']}{', relays' if found['relays'] else ''}",
        f"{up} of {len(found['links'])} links up",
    ]
    if found["not_ready"]:
        parts.append(f"takes no clients: {found['not_ready']}")
    return "; ".join(parts)


def _route(found: Mapping[str, Any]) -> str:
    from headwater.cli.fitted import printable

    places = [*(["this node"] if found["local"] else []), *found["links"]]
    groups = [f"{printable(name)}: one of {', '.join(nodes)}" for name, nodes in found["groups"].items()]
    if not places and groups:
        return "\n".join(groups)
    text = f"{printable(found['topic'])}: {', '.join(places) or 'nobody has subscribed'}"
    if not found["is_exact"] and found["links"]:
        text += " (there may be no subscriber behind some links)"
    return "\n".join([text, *groups])


# ---- orders ------------------------------------------------------------------------------------------------------


@cluster.command()
@with_ask_options
def join(
    of: AskOptions,
    addresses: Annotated[list[str], typer.Argument(metavar="HOST:PORT…", help="Nodes of the cluster.")],
) -> None:
    """Look for the cluster at more addresses. Until the node's next start; the setting cluster.join is for good."""
    with of.node("join") as node:
        node.ask("/v1/cluster/join", "POST", body={"addresses": addresses})
    print("looking there; `headwater cluster status` shows who is found")


@cluster.command()
@with_ask_options
def leave(of: AskOptions) -> None:
    """Part from the other nodes. For a node that is to be stopped for good; its clients stay until then."""
    with of.node("leave") as node:
        node.ask("/v1/cluster/leave", "POST")
    print("left: the node serves its clients alone until it joins again or restarts")


@cluster.command()
@with_ask_options
def drain(
    of: AskOptions,
    name: Annotated[str, typer.Argument(metavar="NODE", help="The node's own id.")],
    stay: Annotated[bool, typer.Option("--stay", help="Stay a member: for a restart.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until it is done, and show what is left.")
    ] = True,
) -> None:
    """Hand the node's clients and sessions over to other nodes, then leave. Asked of the admin API of that node."""
    with of.node("drain") as node:
        node.ask("/v1/cluster/drain", "POST", body={"node": name, "stay": stay})
        shown = ""
        while wait:
            found = node.ask("/v1/cluster")["drain"]
            if found is None:
                fail("cluster drain", f"node {name} is not drained any more")
            if found["state"] == "drained":
                break
            if (left := _left(found)) != shown:
                print(left, flush=True)
                shown = left
            time.sleep(LOOKS)
    if not wait:
        print("the node is being drained; `headwater cluster status` shows when it is done")
    elif stay:
        print(f"{name} is drained: restart it, or have it take clients again with `headwater cluster undrain {name}`")
    else:
        print(f"{name} is drained and has left: stop it")


def _left(found: Mapping[str, Any]) -> str:
    """What is left of a node that is drained, in one line."""
    kinds = {"clients": "clients", "sessions": "sessions", "moving": "sessions on their way"}
    kinds |= {"spooled": "messages to other nodes", "grouped": "messages of shared groups", "wills": "wills"}
    parts = [f"{found[key]:,} {text}" for key, text in kinds.items() if found[key]]
    away = f"; waits for {', '.join(found['waits_for'])}" if found["waits_for"] else ""
    return f"left: {', '.join(parts) or 'nothing'}{away}"


@cluster.command()
@with_ask_options
def undrain(of: AskOptions, name: Annotated[str, typer.Argument(metavar="NODE", help="The node's own id.")]) -> None:
    """Take clients again. What was handed over stays where it is until its clients come back."""
    with of.node("undrain") as node:
        node.ask("/v1/cluster/undrain", "POST", body={"node": name})
    print(f"{name} takes clients")


@cluster.command()
@with_ask_options
def forget(of: AskOptions, name: Annotated[str, typer.Argument(metavar="NODE", help="Its id.")]) -> None:
    """Forget a node that does not come back. At all nodes; it has to be dead, or to have left."""
    with of.node("forget") as node:
        node.ask("/v1/cluster/forget", "POST", body={"node": name})
    print(f"{name} is forgotten; if it comes back, it joins as a new node")


@cluster.command()
@with_ask_options
def method(
    of: AskOptions, name: Annotated[str, typer.Argument(metavar="METHOD", help="flood, subscribe or bloom.")]
) -> None:
    """Tell others by this method what clients want. Until the node's next start; the setting cluster.method is for
    good."""
    with of.node("method") as node:
        node.ask("/v1/cluster/method", "PUT", body={"method": name})
    print(f"the node uses {name}")


# ---- tables ------------------------------------------------------------------------------------------------------


def _print_nodes(nodes: list[dict[str, Any]]) -> None:
    from headwater.cli.fitted import Column, Kind, number, printable

    columns = [Column("node"), Column("state", Kind.WHOLE), Column("address"), Column("mqtt"), number("phi")]
    rows = [
        [
            printable(each["node"]),
            printable(each["phase"] if each["state"] == "live" and each["phase"] != "serving" else each["state"]),
            *(printable(each[name]) for name in ("address", "mqtt")),
            f"{each['phi']:.1f}",
            span(each["since"]),
            printable(each["reason"]),
        ]
        for each in nodes
    ]
    print_table([*columns, number("since"), Column("why")], rows)


def _print_links(links: list[dict[str, Any]]) -> None:
    from headwater.cli.fitted import Column, Kind, number, printable
    from headwater.live import size

    columns = [Column("peer"), Column("state", Kind.WHOLE), Column("method", Kind.SPARE)]
    columns += [*map(number, ("round trip", "in msg", "out msg")), number("in", Kind.SPARE), number("out", Kind.SPARE)]
    columns += [number("spool"), number("dropped"), number("reconnects", Kind.SPARE)]
    rows = [
        [
            *(printable(each[name]) for name in ("peer", "state", "method")),
            "" if each["round_trip"] is None else f"{each['round_trip'] * 1000:.1f} ms",
            *(f"{each[name]:,}" for name in ("messages_received", "messages_sent")),
            *(size(each[name]) for name in ("bytes_received", "bytes_sent")),
            f"{each['spool_messages']:,} ({each['spool_bytes'] / max(1, each['spool_limit']):.0%})",
            *(f"{each[name]:,}" for name in ("dropped", "reconnects")),
            printable(each["reason"]),
        ]
        for each in links
    ]
    print_table([*columns, Column("why")], rows)


def _print_groups(groups: list[dict[str, Any]], own: str) -> None:
    from headwater.cli.fitted import Column, Kind, number, printable

    columns = [Column("group"), Column("dispatcher", Kind.SPARE), Column("node", Kind.WHOLE)]
    columns += [*map(number, ("members", "online", "room", "sent", "waiting"))]
    rows = []
    for group in groups:
        name, here = [printable(group[key]) for key in ("name", "dispatcher")], group["members"]
        if here or group["waiting"]:
            counts = (len(here), sum(each["online"] for each in here))
            ready = f"{sum(each['ready'] for each in here)} ready" if here else ""
            sent, waiting = (f"{group[key]:,}" for key in ("sent", "waiting"))
            rows.append([*name, own, *(f"{count:,}" for count in counts), ready, sent, waiting, ""])
        for each in group["elsewhere"]:
            figures = [f"{each[key]:,}" for key in ("members", "online", "credit", "sent")]
            if each["credit"] >= PLENTY:
                figures[2] = "plenty"
            rows.append([*name, printable(each["node"]), *figures, "", "" if each["is_linked"] else "away"])
    print_table([*columns, Column("why")], rows)


def print_table(columns: list[Column], rows: list[list[str]]) -> None:
    """The last column only if there is something in it."""
    from headwater.cli.fitted import Fitted, show

    shown = len(columns) - (not any(row[-1] for row in rows))
    table = Fitted(columns[:shown])
    for row in rows:
        table.add(*row[:shown])
    if left_out := show(table):
        print(f"no room for {', '.join(left_out)} here: a wider terminal, or --json, shows it", file=sys.stderr)


def span(seconds: float) -> str:
    """A time for people."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"
