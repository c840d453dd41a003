"""`headwater demo`: a node, a small simulated fleet, and the pipeline into tables; and what flows, on the terminal.
What `./scripts/run` shows."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headwater.cli.failure import complain, fail

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from headwater.cli.demo_pipeline import DemoPipeline
    from headwater.client import Client
    from headwater.fleet.devices import Fleet
    from headwater.fleet.node import RunningNode

EVERY: Final = 0.5
PLAIN_EVERY: Final = 2.0
"""Seconds between looks, and between lines when the output is not a terminal."""
MOST_TOPICS: Final = 12
FEW_TOPICS: Final = 4
"""If there are tables to show as well."""
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STARTING: Final = "Spark is starting …"
TOPICS: Final = ("plant/{n}/temperature", "plant/{n}/humidity")


def demo(
    port: Annotated[int, typer.Option("-p", "--port", min=1, max=65535, help="For MQTT; another one if busy.")] = 1883,
    rest_port: Annotated[int, typer.Option(min=1, max=65535, help="For REST; another one if it is busy.")] = 8080,
    devices: Annotated[int, typer.Option("--devices", min=1, help="Simulated devices.")] = 5,
    rate: Annotated[float, typer.Option("--rate", min=0.1, help="Messages per second of all together.")] = 20.0,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0.0, help="Stop after so many seconds.")] = None,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="Keep what is stored here; without it, it goes with the demo.")
    ] = None,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="With the pipeline into tables, or only the node.")
    ] = True,
    command: Annotated[str, typer.Option("--called", hidden=True, help="How people run headwater here.")] = "headwater",
) -> None:
    """Run a node (MQTT, store, REST), a small simulated fleet, and the pipeline that brings it into tables; show what
    flows, and say what to try. Ctrl-C stops all of it."""
    from headwater.fleet.devices import Fleet
    from headwater.fleet.process import BrokerError

    fleet = Fleet(TOPICS, devices, rate, seed=1)
    _interrupt_by_signals()
    try:
        with ExitStack() as stack:
            folder = data_dir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headwater-demo-")))
            node = stack.enter_context(_node(folder, port, rest_port))
            tables = stack.enter_context(pipeline) if (pipeline := _pipeline(node, folder, spark)) else None
            shown = Shown(node, tables, command, None if data_dir is None else str(folder))
            try:
                asyncio.run(_show(node, fleet, seconds, shown))
            finally:
                _interrupt_by_signals()  # the loop has taken its own away
    except BrokerError as error:
        fail("demo", f"the node does not start: {error}")
    except OSError as error:
        fail("demo", f"cannot use {error.filename or data_dir or 'the temporary folder'}: {error.strerror or error}.")
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("\nstopped.")
    else:
        print("stopped.")


def _interrupt_by_signals() -> None:
    """End as by Ctrl-C, with the node that we started."""
    for number in ENDING:
        signal.signal(number, signal.default_int_handler)


@contextmanager
def _node(folder: Path, port: int, rest_port: int) -> Iterator[RunningNode]:
    """Not in our process group: Ctrl-C on the terminal is for us, and we end it when our part is done."""
    from headwater.fleet.node import RunningNode

    with RunningNode(
        folder, port=_free("MQTT", port), rest_port=_free("REST", rest_port), own_group=True, log_level="warning"
    ) as node:
        yield node


def _pipeline(node: RunningNode, folder: Path, is_wanted: bool) -> DemoPipeline | None:
    if not is_wanted:
        return None
    from headwater.cli.demo_pipeline import DemoPipeline, why_not

    if missing := why_not():
        complain("demo", f"{missing}. It goes on without Spark; --no-spark says so from the start.")
        return None
    return DemoPipeline(node, folder)


def _free(what: str, port: int) -> int:
    from headwater.fleet.process import free_port

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            return port
        except OSError:
            other = free_port()
            complain("demo", f"port {port} is used by another program; {what} is on {other} instead.")
            return other


async def _show(node: RunningNode, fleet: Fleet, seconds: float | None, shown: Shown) -> None:
    from headwater.client import Client
    from headwater.fleet.devices import Publisher

    task = asyncio.current_task()
    assert task is not None
    for number in ENDING:  # between two steps of the loop, not in the middle of one
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    async with Client("127.0.0.1", node.port) as devices, Client("127.0.0.1", node.port) as viewer:
        await shown.subscribe(viewer)
        publishing = asyncio.ensure_future(Publisher(devices, qos=1).publish(fleet, seconds=seconds))
        listening = asyncio.ensure_future(shown.listen(viewer))
        try:
            with shown:
                while not publishing.done():
                    await asyncio.wait([publishing], timeout=EVERY)
                    node.check_alive()
                    await asyncio.to_thread(shown.look)
            publishing.result()
        finally:
            for task in (publishing, listening):
                task.cancel()
            await asyncio.wait([publishing, listening])


class Shown:
    """What is on the terminal: where to connect, what to try, and figures that change."""

    def __init__(self, node: RunningNode, tables: DemoPipeline | None, command: str, folder: str | None) -> None:
        from rich.console import Console
        from rich.live import Live

        from headwater.live import Flow
        from headwater.store.reader import StoreReader

        self._reader = StoreReader(node.url, timeout=5.0)
        self._console: Console = Console()
        self._flow = Flow()
        self._began = self._last_line = time.monotonic()
        self._latest: dict[str, tuple[int, str]] = {}
        self._live: Live | None = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        self._tables = tables
        self._view = None if tables is None else tables.view()
        self._console.print(_welcome(node, tables, command, folder), highlight=False, markup=False, soft_wrap=True)

    def __enter__(self) -> Shown:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    async def subscribe(self, client: Client) -> None:
        from headwater.client import Properties
        from headwater.message import POSITION_PROPERTY

        asking = Properties(user_properties=[(POSITION_PROPERTY, "yes")])
        await client.subscribe("plant/#", properties=asking)

    async def listen(self, client: Client) -> None:
        from headwater.edge.copies import place_of

        async for message in client.messages:
            place = place_of(message)
            with contextlib.suppress(ValueError, TypeError, KeyError):  # what others publish may be anything
                value = str(json.loads(message.payload)["value"])
                self._latest[message.topic] = (0 if place is None else place.position, value)

    def look(self) -> None:
        """Ask the node and look at the tables, and show it."""
        status = self._reader.status()
        if self._view is not None:
            with contextlib.suppress(Exception):  # such as a file that has just been replaced: the next look has it
                self._view.look()
        now = time.monotonic()
        rate = self._flow.update(status["next"] - 1, now - self._began)
        if self._live is not None:
            self._live.update(self._render(status, rate), refresh=True)
        elif now - self._last_line >= PLAIN_EVERY:
            self._last_line = now
            last = status["next"] - 1
            line = f"{rate:,.0f} messages/s  last position {status['id']}:{last}  {status['topics']:,} topics"
            print(f"{line}{self._of_the_tables()}", flush=True)

    def _of_the_tables(self) -> str:
        if self._tables is None or self._view is None:
            return ""
        if failure := self._tables.failure():
            return f"  pipeline: has ended: {failure}"
        is_up = self._view.status is not None and self._view.status.tables
        return f"  pipeline: {self._view.line() if is_up else STARTING}"

    def _render(self, status: dict[str, Any], rate: float) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        from headwater.cli.fitted import Column, Fitted, Kind, number, printable

        line = Text()
        for name, value in (
            ("messages/s", f"{rate:,.0f}"),
            ("last position", f"{status['id']}:{status['next'] - 1}"),
            ("topics", f"{status['topics']:,}"),
            ("on disk", f"{status['size'] / 1000:,.0f} kB"),
        ):
            line.append(f"{name} ", style="dim")
            line.append(f"{value}   ", style="bold")
        table = Fitted([Column("topic", Kind.TAIL), number("latest value"), number("position")])
        most = MOST_TOPICS if self._view is None else FEW_TOPICS
        for topic, (position, value) in sorted(self._latest.items())[:most]:
            table.add(printable(topic), printable(value), f"{position:,}")
        return Group(line, Text(self._flow.bars(), style="cyan"), table, *self._rendered_tables())

    def _rendered_tables(self) -> list[RenderableType]:
        from rich.text import Text

        if self._tables is None or self._view is None:
            return []
        if failure := self._tables.failure():
            return ["", Text(f"The pipeline has ended: {failure}", style="red")]
        if self._view.status is None or not self._view.status.tables:
            return ["", Text(f"The pipeline: {STARTING}", style="dim")]
        return ["", Text("Tables, by the pipeline:", style="dim"), self._view.render()]


def _welcome(node: RunningNode, tables: DemoPipeline | None, command: str, folder: str | None) -> str:
    mqtt = "" if node.port == 1883 else f" -p {node.port}"
    rest = "" if node.rest_port == 8080 else f" --url {node.url}"
    mirror = "" if node.rest_port == 8080 else f" --rest {node.url}"
    kept = f"what is stored stays in {folder}" if folder else "what is stored goes with it; --data-dir DIR keeps it"
    text = f"""\
A node runs here: MQTT on localhost:{node.port}, REST on {node.url}; Ctrl-C stops it, and {kept}.
A simulated fleet publishes to it. In another terminal, try:

  {command} sub{mqtt} -t 'plant/#' -v
  {command} pub{mqtt} -t plant/9/temperature -m '{{"value": 30}}' -q 1
  {command} store query{rest} -t 'plant/+/temperature' --min 20 -n 5
  {command} store stats{rest} --topics '#'
  {command} edge mirror{mqtt}{mirror} -o readings.ndjson --seconds 5
  curl {node.url}/v1/topics/plant/1/temperature/latest
"""
    if tables is None:
        return text
    lake = tables.lake
    query = f"{command} pipeline query --lake {lake}"
    return f"""\
{text}
The pipeline loads it into tables, with Spark. Windows take ten seconds; those still open have final = false:

  {command} pipeline status{rest} --lake {lake}
  {query} "select window_end, topic, count, mean, flags, final from windows order by 1 desc limit 20"
  {query} "select * from windows where metric = 'temperature'" --plot window_end,mean,topic
"""
