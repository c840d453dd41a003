"""`headwater fleet`: publish as a fleet of simulated devices does."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.connection import ConnectionOptions, Qos, on_signals, run, with_connection_options
from headwater.cli.failure import complain

if TYPE_CHECKING:
    from headwater.client import Client
    from headwater.fleet.devices import Fleet, Published


@with_connection_options
def fleet(
    connection: ConnectionOptions,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "-t",
            "--topic",
            help="Topic, with {n} for the number of the device; repeat.  [default: site/{n}/temperature, …/humidity]",
        ),
    ] = None,
    devices: Annotated[int, typer.Option("--devices", min=1, help="Devices; each publishes to all topics.")] = 10,
    rate: Annotated[float, typer.Option("--rate", min=0.001, help="Messages per second of all together.")] = 20.0,
    count: Annotated[int | None, typer.Option("-C", "--count", min=1, help="Leave after so many messages.")] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0.0, help="Leave after so many seconds.")] = None,
    qos: Qos = 0,
    seed: Annotated[int, typer.Option("--seed", help="The same one gives the same values in the same order.")] = 1,
    silent: Annotated[
        float, typer.Option("--silent", min=0.0, max=1.0, help="Share of devices that say nothing.")
    ] = 0.0,
    late: Annotated[float, typer.Option("--late", min=0.0, max=1.0, help="Share of devices that send late.")] = 0.0,
    lateness: Annotated[float, typer.Option("--lateness", min=0.0, help="By so many seconds.")] = 5.0,
) -> None:
    """Publish as a fleet of devices does: JSON of about 100 bytes with a time (ts) and a value that wanders."""
    from headwater.cli.properties import parse_properties
    from headwater.client import Reconnect
    from headwater.fleet.devices import PATTERNS, Fleet, FleetError

    try:
        wanted = Fleet(tuple(topics or PATTERNS), devices, rate, seed, silent, late, lateness)
    except FleetError as error:
        raise typer.BadParameter(f"{error}.") from None
    client = connection.make_client(parse_properties(connection.property_options or []), reconnect=Reconnect())
    raise typer.Exit(run("fleet", _publish(client, wanted, qos, count, seconds, connection.quiet), connection))


async def _publish(
    client: Client, fleet: Fleet, qos: int, count: int | None, seconds: float | None, quiet: bool
) -> int:
    from headwater.fleet.devices import Publisher

    async with client:
        publisher = Publisher(client, qos)
        work = asyncio.ensure_future(publisher.publish(fleet, most=count, seconds=seconds))
        on_signals(work.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await work
        published = publisher.published()
    complain("fleet", _summary(published), quiet=quiet)
    return 1 if published.refused else 0


def _summary(published: Published) -> str:
    rate = published.messages / published.seconds if published.seconds else 0.0
    text = f"{published.messages:,} messages in {published.seconds:.1f} s ({rate:,.0f}/s)"
    if published.refused:
        text += f", {published.refused:,} refused"
    if published.latest >= 1.0:
        text += f"; it could not keep up: one left {published.latest:.1f} s late"
    return text
