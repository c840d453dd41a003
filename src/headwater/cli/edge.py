"""`headwater edge mirror`: everything that a node stores, here too (docs/edge.md)."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headwater.cli.connection import ConnectionOptions, Qos, on_signals, run, with_connection_options
from headwater.cli.edge_tiers import add_to
from headwater.cli.failure import GENERAL, complain, fail, forget_output
from headwater.cli.hand_over import hand_over

if TYPE_CHECKING:
    from headwater.edge.copies import Copy
    from headwater.edge.mirror import Mirror, Report
    from headwater.edge.outputs import Output
    from headwater.store.reader import StoreReader

PLAIN_EVERY: Final = 10.0
"""Seconds between lines when the output is not a terminal."""
REST_PORT: Final = 8080

edge = typer.Typer(
    name="edge",
    help="Nodes that share topics, and what is beyond them: applications that read by MQTT and REST together.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class Format(StrEnum):
    NDJSON = "ndjson"
    CSV = "csv"


class Start(StrEnum):
    FIRST = "first"
    NEXT = "next"


add_to(edge)
edge.command("hand-over")(hand_over)


@edge.command()
@with_connection_options
def mirror(
    connection: ConnectionOptions,
    topics: Annotated[
        list[str] | None, typer.Option("-t", "--topic", help="Topic filter; may be repeated.  [default: #]")
    ] = None,
    qos: Qos = 0,
    out: Annotated[
        str | None,
        typer.Option("-o", "--out", help="File, or folder (a name that ends with /), to go on with if it is there."),
    ] = None,
    format: Annotated[
        Format | None, typer.Option("--format", help="Of what is written.  [default: by the file's name, else ndjson]")
    ] = None,
    rest: Annotated[
        str | None, typer.Option("--rest", metavar="URL", help="The node's REST.  [default: http://HOST:8080]")
    ] = None,
    token: Annotated[
        str | None, typer.Option("--token", envvar="HEADWATER_REST__TOKEN", help="For REST, instead of -u and -P.")
    ] = None,
    direct: Annotated[
        bool, typer.Option("--direct", help="Read what the node has in object storage from there (docs/store.md).")
    ] = False,
    interval: Annotated[float, typer.Option("--interval", min=0.01, help="Seconds between comparisons.")] = 1.0,
    start: Annotated[
        Start, typer.Option("--start", help="With all that the node has, or with what comes from now on.")
    ] = Start.FIRST,
    reader: Annotated[
        str | None, typer.Option("--reader", help="Name under which the node keeps what we have not got yet.")
    ] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0.0, help="Leave after so many seconds.")] = None,
    until_complete: Annotated[
        bool, typer.Option("--until-complete", help="Leave when all is here and nothing more comes for an interval.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the last report as JSON; needs --out.")] = False,
) -> None:
    """Have everything that a node stores: subscribe, ask REST at intervals, compare by position, write what was missed.
    Each message is written once and in order, also if this was stopped or killed and is started again. The status is 1
    if something was lost."""
    from headwater.cli.properties import parse_properties
    from headwater.cli.sub import check_filter
    from headwater.client import Reconnect
    from headwater.edge.mirror import Mirror, Wishes

    if as_json and out is None:
        raise typer.BadParameter("--json needs --out: without it, messages go where the report would.")
    filters = tuple(topics or ["#"])
    for each in filters:
        check_filter(each)
    if connection.version not in ("5", "mqttv5"):
        raise typer.BadParameter("positions come with MQTT 5 only; leave out -V.")
    client = connection.make_client(parse_properties(connection.property_options or []), reconnect=Reconnect())
    wishes = Wishes(filters, qos, interval, start.value, reader, seconds, until_complete)
    shown = Shown(connection.quiet or as_json)
    mirror = Mirror(client, _reader(connection, rest, token, direct), _output(out, format), wishes, shown)
    with shown:
        status = run("edge mirror", _mirror(mirror), connection)
    report = mirror.report()
    if as_json:
        print(json.dumps({**report._asdict(), "completeness": report.completeness}))
    else:
        complain("edge mirror", summary(report), quiet=connection.quiet)
    raise typer.Exit(status or (GENERAL if report.lost else 0))


def _reader(connection: ConnectionOptions, rest: str | None, token: str | None, direct: bool) -> StoreReader:
    from headwater.store.direct import Direct
    from headwater.store.reader import StoreReader

    target = connection.target()
    if rest is None:
        if target.transport == "unix":
            raise typer.BadParameter("give --rest: a Unix socket does not say where REST is.")
        scheme = "https" if connection.tls or connection.cafile or target.tls else "http"
        host = f"[{target.host}]" if ":" in target.host else target.host
        rest = f"{scheme}://{host}:{REST_PORT}"
    user = None if token is not None else target.user
    try:
        return StoreReader(
            rest,
            token=token,
            user=user,
            password=target.password,
            ca=connection.cafile,
            direct=Direct() if direct else None,
        )
    except ValueError as error:
        raise typer.BadParameter(f"--rest: {error}.") from None


def _output(out: str | None, format: Format | None) -> Output:
    from headwater.edge.outputs import FileOutput, FolderOutput, FunctionOutput
    from headwater.edge.rendering import FORMATS, HEADS

    if out is None:
        render = FORMATS[(format or Format.NDJSON).value]
        sys.stdout.buffer.write(HEADS[(format or Format.NDJSON).value])

        def write(copies: Sequence[Copy]) -> None:
            sys.stdout.buffer.write(render(copies))
            sys.stdout.buffer.flush()

        return FunctionOutput(write)
    path = Path(out)
    if out.endswith("/") or path.is_dir():
        return FolderOutput(path, (format or Format.NDJSON).value)
    return FileOutput(path, (format or (Format.CSV if path.suffix == ".csv" else Format.NDJSON)).value)


async def _mirror(mirror: Mirror) -> int:
    from headwater.edge.state import OutputError
    from headwater.edge.strand import MirrorError
    from headwater.store.reader import Refused, StoreError

    def stop() -> None:
        mirror.stop()
        for number in (signal.SIGINT, signal.SIGTERM):  # whoever says it twice does not want to wait
            signal.signal(number, signal.SIG_DFL)

    on_signals(stop)
    try:
        await mirror.run()
    except Refused as error:
        hint = "; check -u and -P, or --token" if error.status in (401, 403) else ""
        fail("edge mirror", f"REST refuses: {error}{hint}.")
    except StoreError as error:
        fail("edge mirror", f"cannot ask REST (--rest): {error}.")
    except (MirrorError, OutputError) as error:
        fail("edge mirror", f"{error}.")
    except BrokenPipeError:  # `headwater edge mirror | head`: nobody wants more
        forget_output()
    except OSError as error:
        fail("edge mirror", f"cannot write {error.filename or 'the output'}: {error.strerror or error}.")
    return 0


# ---- what is shown -----------------------------------------------------------------------------------------------


def summary(report: Report) -> str:
    parts = [
        f"{report.made:,} made",
        f"{report.live:,} by MQTT",
        f"{report.recovered:,} recovered",
        f"{report.duplicate:,} duplicate",
        f"{report.lost:,} lost",
    ]
    where = " ".join(f"{store}:{position}" for store, position in report.positions.items())
    text = f"{100.0 * report.completeness:.4g} % complete up to {where}: {', '.join(parts)}"
    if report.unplaced:
        text += f"; {report.unplaced:,} came without a position, so the node does not store them"
    return text


class Shown:
    """A line that changes, if standard error is a terminal; else a line now and then."""

    def __init__(self, quiet: bool) -> None:
        from rich.console import Console

        self._quiet = quiet
        self._console = Console(stderr=True)
        self._stack = contextlib.ExitStack()
        self._last = time.monotonic()

    def __enter__(self) -> Shown:
        if self._console.is_terminal and not self._quiet:
            self._status = self._stack.enter_context(self._console.status("connecting …"))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __call__(self, report: Report) -> None:
        if self._quiet:
            return
        text = summary(report)
        if report.behind:
            text += f"; {report.behind:,} behind"
        if not report.connected:
            text += "; not connected"
        if self._console.is_terminal:
            self._status.update(text)
        elif time.monotonic() - self._last >= PLAIN_EVERY:
            self._last = time.monotonic()
            complain("edge mirror", text)
