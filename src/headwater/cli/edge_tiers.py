"""`headwater edge status|split|join`: who owns which topics, as one of the nodes sees it, by the admin API of that node
(docs/edge-tiers.md)."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headwater.cli.admin import Admin
from headwater.cli.cluster import AsJson, AskOptions, with_ask_options
from headwater.cli.failure import fail

if TYPE_CHECKING:
    from headwater.edge.status import EdgeStatus, Move

LOOKS: Final = 0.3
"""Seconds between two looks at a move."""
EVERY: Final = 10
"""Rows of a store's stretches that are shown for each node; --json has all."""

Filter = Annotated[str, typer.Argument(metavar="FILTER", help="A topic filter.")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until nothing goes to the former owner any more.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be.")]


def add_to(edge: typer.Typer) -> None:
    edge.command()(status)
    edge.command()(split)
    edge.command()(join)


@with_ask_options
def status(of: AskOptions, as_json: AsJson = False) -> None:
    """Who the nodes of the edges are, who owns which topics, what is being moved, and where messages are."""
    with of.node("status", "edge") as node:
        found = node.ask("/v1/edge")
    if as_json:
        print(json.dumps(found))
    else:
        print("\n".join(lines_of(_decoded(found, "status"))))


@with_ask_options
def split(
    of: AskOptions,
    filter: Filter,
    to: Annotated[str, typer.Option("--to", metavar="NODE", help="The delivery node that owns it from now on.")],
    wait: Wait = False,
    dry_run: DryRun = False,
) -> None:
    """Have another delivery node own a part of the topics. Nobody has to reconnect, and nothing is lost or stored
    twice."""
    with of.node("split", "edge") as node:
        print(node.ask("/v1/edge/split", "POST", 10.0, {"filter": filter, "to": to, "dry_run": dry_run})["text"])
        if wait and not dry_run:
            _wait_for(node, filter, "split")


@with_ask_options
def join(of: AskOptions, filter: Filter, wait: Wait = False, dry_run: DryRun = False) -> None:
    """Give a part of the topics to the owner of the filter around it, and take it out of the table."""
    with of.node("join", "edge") as node:
        print(node.ask("/v1/edge/join", "POST", 10.0, {"filter": filter, "dry_run": dry_run})["text"])
        if wait and not dry_run:
            _wait_for(node, filter, "join")


def _decoded(found: Any, command: str) -> EdgeStatus:
    from headwater.edge.status import MalformedStatus, decode

    try:
        return decode(found)
    except MalformedStatus as error:
        fail(f"edge {command}", f"the node answers what is no status of an edge: {error}")


def _wait_for(node: Admin, filter: str, command: str) -> None:
    """Shows for whom it waits whenever that changes. Other nodes hear of a claim a moment after it was made."""
    shown, is_known = "", False
    while True:
        status = _decoded(node.ask("/v1/edge"), command)
        moves = [each for each in status.moves if each.filter == filter]
        is_known = is_known or bool(moves) or any(each.filter == filter for each in status.ownership)
        if is_known and not moves:
            print(f"done: {filter} is node {status.owner_of(filter) or 'of the wider filter'}'s")
            return
        text = "; ".join(_move(each) for each in moves)
        if text and text != shown:
            print(text, flush=True)
            shown = text
        time.sleep(LOOKS)


def lines_of(status: EdgeStatus) -> list[str]:
    from headwater.cli.fitted import printable

    lines = [f"edge {status.edge}, seen by node {status.node}", "", "nodes"]
    for each in status.nodes:
        what = ", ".join(each.roles)
        where = f", store {each.store}" + (f" at {each.rest}" if each.rest else "") if each.store else ""
        ready = "" if each.ready else ", takes no clients"
        lines.append(f"  {each.node}  edge {each.edge}, {what}, {each.state}{ready}{where}")
    lines += ["", "topics"]
    for owned in status.ownership:
        lines.append(f"  {printable(owned.filter)}  node {owned.node}, epoch {owned.epoch}, {owned.state}")
    rest = status.unowned
    where = f"to node {rest.node}" if rest.node else "not stored"
    lines.append(f"  all others  {where} (edge.unowned = {rest.rule}); looked for {rest.topics} times from here")
    lines += [f"    {printable(topic)}" for topic in rest.last[:4]]
    if status.moves:
        lines += ["", "on their way", *(f"  {_move(each)}" for each in status.moves)]
    lines += ["", "messages"]
    for stretch in status.stores[-EVERY:]:
        upto = "on" if stretch.last is None else str(stretch.last)
        filters = ", ".join(printable(each) for each in stretch.filters)
        lines.append(f"  {filters}  store {stretch.id}, {stretch.first} to {upto}, epoch {stretch.epoch}")
    return lines


def _move(move: Move) -> str:
    from headwater.cli.fitted import printable

    since = datetime.fromtimestamp(move.since).astimezone().strftime("%H:%M:%S")
    waits = f", waits for {', '.join(move.waits_for)}" if move.waits_for else ""
    return (
        f"{printable(move.filter)}: from {', '.join(move.sources)} to {move.target} since {since}, {move.step}{waits}"
    )
