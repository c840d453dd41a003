"""`headwater top`: what a broker does, live, from its admin API or from the `$SYS` topics of any broker."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import unquote

import typer

from headwater.cli.admin import PATIENCE, Admin, AdminError, read_token
from headwater.cli.connection import ConnectionOptions, on_signals, run, with_connection_options
from headwater.cli.failure import fail

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from headwater.client import Client
    from headwater.node.protocol.statistics import Statistics

MOST_GROUPS: Final = 20
NOT_FOUND: Final = 404
SECOND_SAMPLE: Final = 11.0
"""Seconds for which `--once` waits for the second sample; brokers update `$SYS` every 10 s by default."""


@dataclass
class SharedGroup:
    name: str
    dispatcher: str = ""
    sent: int = 0
    waiting: int = 0
    members: int = 0
    online: int = 0


@dataclass
class Snapshot:
    figures: Statistics
    """What the broker does not say is 0."""
    groups: list[SharedGroup] = field(default_factory=list)
    cluster: Mapping[str, Any] | None = None
    """As the admin API shows it; None: the broker is in none, or does not say."""
    workers: list[Mapping[str, Any]] = field(default_factory=list)
    """As the admin API shows them; none: the broker is one process, or does not say."""


# ---- where figures come from -------------------------------------------------------------------------------------


class AdminApi:
    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._is_alone = False
        self._has_workers = True

    def read(self) -> Snapshot:
        from headwater.node.protocol.statistics import Statistics

        said = self._admin.ask("/v1/statistics")
        figures = Statistics(**{name: said[name] for name in Statistics.__dataclass_fields__ if name in said})
        groups = [
            SharedGroup(
                each["name"],
                each["dispatcher"],
                each["sent"],
                each["waiting"],
                len(each["members"]),
                sum(member["online"] for member in each["members"]),
            )
            for each in self._admin.ask("/v1/groups")
        ]
        return Snapshot(figures, groups, self._cluster(), self._workers())

    def _workers(self) -> list[Mapping[str, Any]]:
        """Whoever has none is not asked again, nor an older broker, which does not know the question."""
        if not self._has_workers:
            return []
        try:
            found: list[Mapping[str, Any]] = self._admin.ask("/v1/workers")
        except AdminError as error:
            if error.status != NOT_FOUND:
                raise
            found = []
        self._has_workers = bool(found)
        return found

    def _cluster(self) -> Mapping[str, Any] | None:
        """Whoever is in no cluster is not asked again: that takes a restart."""
        if self._is_alone:
            return None
        try:
            found: Mapping[str, Any] = self._admin.ask("/v1/cluster")
        except AdminError as error:
            if error.status != NOT_FOUND:
                raise
            self._is_alone = True
            return None
        return found


def from_sys(topics: Mapping[str, str]) -> Snapshot:
    """Figures of `$SYS` topics, by their names below `$SYS/broker/`: Mosquitto's and ours."""
    from headwater.metric import metrics_of
    from headwater.node.protocol.statistics import Statistics

    figures = Statistics(uptime=_number(topics.get("uptime", "").partition(" ")[0]))
    for name, metric in metrics_of(Statistics).items():
        if metric.topics:
            setattr(figures, name, int(_number(topics.get(metric.topics[0], ""))))
    stored = int(_number(topics.get("messages/stored", topics.get("store/messages/count", ""))))
    figures.queued = max(0, stored - figures.retained)
    groups: dict[str, SharedGroup] = {}
    for name, text in topics.items():
        head, *parts = name.split("/")
        if head == "shared" and len(parts) > 2:
            full = f"$share/{unquote(parts[0])}/{unquote(parts[1])}"
            _learn(groups.setdefault(full, SharedGroup(full)), parts[2:], text)
    return Snapshot(figures, sorted(groups.values(), key=lambda group: group.name))


def _learn(group: SharedGroup, about: list[str], text: str) -> None:
    if about == ["dispatcher"]:
        group.dispatcher = text
    elif about == ["messages", "sent"]:
        group.sent = int(_number(text))
    elif about == ["messages", "waiting"]:
        group.waiting = int(_number(text))
    elif about[0] == "member":
        group.members += 1
        group.online += '"online": true' in text


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


# ---- the view ----------------------------------------------------------------------------------------------------


class TopView:
    """The live view of one broker, and its shared groups below."""

    def __init__(self) -> None:
        from headwater.live import Flow, LiveView

        self._view = LiveView()
        self._flow = Flow
        self._flows: dict[str, Flow] = {}
        self._has_begun = False

    @property
    def has_rates(self) -> bool:
        """They need two snapshots of different moments."""
        return self._has_begun and self._view.has_rates

    def render(self, snapshot: Snapshot) -> RenderableType:
        from rich.console import Group

        if not self._has_begun:
            self._has_begun = True
            self._view.begin(snapshot.figures)
        parts: list[RenderableType] = [self._view.render(snapshot.figures)]
        if snapshot.cluster is not None:
            parts += ["", _cluster_line(snapshot.cluster)]
        if snapshot.workers:
            parts += ["", _workers_table(snapshot.workers)]
        if snapshot.groups:
            parts += ["", self._groups(snapshot)]
        return Group(*parts)

    def _groups(self, snapshot: Snapshot) -> RenderableType:
        from headwater.cli.fitted import Column, Fitted, Kind, number, printable

        figures = map(number, ("online", "waiting", "messages/s", "messages"))
        table = Fitted([Column("shared group", Kind.TAIL), Column("dispatcher"), *figures])
        for group in snapshot.groups[:MOST_GROUPS]:
            if group.name not in self._flows:
                self._flows[group.name] = self._flow()
                self._flows[group.name].begin(group.sent, snapshot.figures.uptime)
            flow = self._flows[group.name]
            flow.update(group.sent, snapshot.figures.uptime)
            online = f"{group.online} of {group.members}"
            cells = [printable(group.name), printable(group.dispatcher), online]
            table.add(*cells, f"{group.waiting:,}", flow.rate(), f"{group.sent:,}")
        if len(snapshot.groups) > MOST_GROUPS:
            table.add(f"… {len(snapshot.groups) - MOST_GROUPS} more")
        return table


def _workers_table(workers: list[Mapping[str, Any]]) -> RenderableType:
    from headwater.cli.fitted import Column, Fitted, number

    names = ("process", "connections", "messages in", "messages out", "to others", "CPU s", "MiB", "restarts")
    table = Fitted([Column("worker"), Column("state"), *map(number, names)])
    for each in workers:
        counts = (each[name] for name in ("connections", "messages_received", "messages_sent", "forwarded"))
        used = (f"{each['cpu_seconds']:,.0f}", f"{each['resident_bytes'] / (1 << 20):,.0f}", f"{each['restarts']:,}")
        state = "up" if each["up"] else "down"
        table.add(each["name"], state, str(each["process"] or ""), *(f"{count:,}" for count in counts), *used)
    return table


def _cluster_line(cluster: Mapping[str, Any]) -> RenderableType:
    """In red if a node or a link is not as it should be."""
    from rich.text import Text

    from headwater.cli.cluster import summary
    from headwater.cli.fitted import printable

    down = [each["peer"] for each in cluster["links"] if each["state"] == "down"]
    away = [each for each in cluster["nodes"] if each["state"] in ("suspected", "dead")]
    text = summary(cluster) + (f" (down: {', '.join(down)})" if down else "")
    return Text(printable(text), style="bold red" if down or away else "")


# ---- the command -------------------------------------------------------------------------------------------------


@with_connection_options
def top(
    connection: ConnectionOptions,
    admin: Annotated[
        str | None, typer.Option("--admin", metavar="URL", help="Ask the admin API there, as http://localhost:18830.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="Its token.  [default: $HEADWATER_ADMIN__TOKEN]")
    ] = None,
    interval: Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print once, from two samples, and leave.")] = False,
) -> None:
    """Show connections, rates and shared groups of a broker, live. With --admin from its admin API; without, from the
    `$SYS` topics of any broker that has them, with the options of mosquitto_sub."""
    from rich.console import Console

    console = Console()
    if admin is not None:
        source = AdminApi(Admin(admin, read_token("top", token_file)))
        _watch_admin(source.read, console, interval, once)
    else:
        from headwater.client import Reconnect

        client = connection.make_client({}, reconnect=Reconnect())
        raise typer.Exit(run("top", _watch_sys(client, console, interval, once), connection))


def _watch_admin(read: Callable[[], Snapshot], console: Console, interval: float, once: bool) -> None:
    from rich.live import Live

    view = TopView()
    try:
        rendered = view.render(read())
        if once:
            time.sleep(interval)  # a rate is the difference of two samples
            console.print(view.render(read()))
            return
        with Live(rendered, console=console, auto_refresh=False, screen=console.is_terminal) as live:
            while True:
                time.sleep(interval)
                live.update(view.render(read()), refresh=True)
    except AdminError as error:
        fail("top", str(error))
    except KeyboardInterrupt:
        return


async def _watch_sys(client: Client, console: Console, interval: float, once: bool) -> int:
    from rich.live import Live

    topics: dict[str, str] = {}
    view = TopView()
    async with client:
        await client.subscribe("$SYS/broker/#")
        listening = asyncio.ensure_future(_listen(client, topics))
        on_signals(listening.cancel)
        try:
            async with asyncio.timeout(PATIENCE):
                while "uptime" not in topics and not listening.done():
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)  # the rest of what is retained comes right behind it
            if once:
                await _print_once(view, topics, console)
                return 0
            with Live(console=console, auto_refresh=False, screen=console.is_terminal) as live:
                while not listening.done():
                    live.update(view.render(from_sys(topics)), refresh=True)
                    await asyncio.wait([listening], timeout=interval)
        except TimeoutError:
            fail("top", "this broker publishes nothing below $SYS/broker, or does not let us read it")
        finally:
            listening.cancel()
    return 0


async def _print_once(view: TopView, topics: Mapping[str, str], console: Console) -> None:
    """With rates, which are the difference of two samples: wait for the second, but not for ever."""
    rendered = view.render(from_sys(topics))
    deadline = time.monotonic() + SECOND_SAMPLE
    while not view.has_rates and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
        rendered = view.render(from_sys(topics))
    if view.has_rates:
        await asyncio.sleep(0.1)  # what else the broker has just published
        rendered = view.render(from_sys(topics))
    console.print(rendered)
    if not view.has_rates:
        text = f"rates need two samples, and this broker updated $SYS only once in {SECOND_SAMPLE:.0f} s"
        print(f"headwater top: {text}", file=sys.stderr)


async def _listen(client: Client, topics: dict[str, str]) -> None:
    async for message in client.messages:
        name = message.topic.removeprefix("$SYS/broker/")
        text = message.payload.decode(errors="replace")
        if text:
            topics[name] = text
        else:
            topics.pop(name, None)
