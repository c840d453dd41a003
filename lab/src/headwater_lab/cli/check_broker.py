"""`headwater check-broker`: clients, faults and judges against any MQTT broker or cluster."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.failure import fail
from headwater.wire.packets import V5, V311

CANNOT_RUN = 2

check_broker = typer.Typer(name="check-broker", add_completion=False, rich_markup_mode=None)


@check_broker.command()
def check(
    target: Annotated[
        str, typer.Option(metavar="HOST:PORT,…", help="The broker, or all nodes of a cluster, as clients reach them.")
    ],
    seconds: Annotated[float, typer.Option(min=1, help="Of load.")] = 20.0,
    seed: Annotated[int, typer.Option(help="Of what clients do and when faults begin.")] = 1,
    rate: Annotated[float, typer.Option(min=0.1, help="Messages per second of each publisher.")] = 20.0,
    promise: Annotated[
        str,
        typer.Option(
            help="Profile standard (all targets are one Server) or per-node (each is one, as with bridges); "
            "then +NAME and -NAME: what is promised besides, and what is only reported."
        ),
    ] = "standard",
    fault: Annotated[
        list[str] | None, typer.Option(metavar="NAME=COMMAND", help="A shell command that disturbs; may be repeated.")
    ] = None,
    heal: Annotated[
        list[str] | None, typer.Option(metavar="NAME=COMMAND", help="The command that ends the fault of this name.")
    ] = None,
    fault_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Faults from a TOML file: [fault.NAME] start =, heal =.")
    ] = None,
    fault_every: Annotated[float, typer.Option(min=0.1, help="Seconds between two faults, on average.")] = 4.0,
    fault_lasts: Annotated[float, typer.Option(min=0.1, help="Seconds that a fault lasts at most.")] = 4.0,
    settle: Annotated[
        float, typer.Option(min=1, help="Seconds that what is owed may take after the last fault.")
    ] = 45.0,
    mqtt: Annotated[str, typer.Option(help="5, 3 (3.1.1), or auto: 5 if the broker takes it.")] = "auto",
    username: Annotated[str | None, typer.Option("--username", "-u", help="For all clients.")] = None,
    password: Annotated[str | None, typer.Option("--password", "-P", help="For all clients.")] = None,
    history_limit: Annotated[
        int, typer.Option(min=1000, help="Entries of the history (200 bytes each); then the load ends.")
    ] = 1_000_000,
    show: Annotated[int, typer.Option(min=0, help="Violations of each promise that are shown.")] = 3,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the outcome.")] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with timelines.")] = None,
    history: Annotated[
        Path | None, typer.Option("--history", metavar="FILE", help="Write every operation, one JSON object a line.")
    ] = None,
) -> None:
    """Check what an MQTT broker or cluster promises while it is disturbed. Exit status: 0 nothing promised was seen
    broken, 1 violations, 2 it could not be run."""
    from headwater_lab.check_broker.connection import parse_target
    from headwater_lab.check_broker.faults import parse_faults
    from headwater_lab.check_broker.promises import parse_promises
    from headwater_lab.check_broker.run import Settings

    versions = {"auto": None, "5": V5, "3": V311}
    try:
        if mqtt not in versions:
            raise ValueError(f"--mqtt is auto, 5 or 3, not {mqtt!r}")
        targets = tuple(parse_target(each.strip()) for each in target.split(",") if each.strip())
        if not targets:
            raise ValueError("--target names no broker")
        profile, promised = parse_promises(promise, len(targets))
        settings = Settings(
            targets,
            seconds=seconds,
            seed=seed,
            rate=rate,
            roams=profile == "standard",
            version=versions[mqtt],
            faults=parse_faults(fault or [], heal or [], fault_file),
            fault_every=fault_every,
            fault_lasts=fault_lasts,
            settle=settle,
            username=username,
            password=None if password is None else password.encode(),
            limit=history_limit,
        )
    except ValueError as problem:
        fail("check-broker", f"{problem}.", CANNOT_RUN)
    files = [each for each in (json, html, history) if each is not None]
    for file in files:
        if not file.parent.is_dir():
            fail("check-broker", f"{file.parent} is no folder: make it before.", CANNOT_RUN)
    from headwater_lab.check_broker.outcome import Outputs, check_and_report

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end as by Ctrl-C: what is disturbed is healed
    try:
        status = asyncio.run(check_and_report(settings, profile, promised, Outputs(json, html, history, show)))
    except KeyboardInterrupt:
        fail("check-broker", "stopped.", 130)
    sys.stdout.flush()
    raise typer.Exit(status)
