"""`headwater reproduce NAME`: the experiments of the papers that Headwater builds on, run again."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.failure import fail

reproduce = typer.Typer(
    name="reproduce",
    help="Run the experiments of the papers again, and show theirs beside ours.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Quick = Annotated[bool, typer.Option("--quick", help="A short run, of about a minute.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write name, paper, ours and unit of each figure.")]
Out = Annotated[Path | None, typer.Option("--out", help="Write table, figures and data into this folder.")]


@reproduce.command()
def balance(
    quick: Quick = False,
    json: Json = None,
    out: Out = None,
    seed: Annotated[int | None, typer.Option(help="Of the phases of the report timers; else chosen at random.")] = None,
) -> None:
    """Shared subscriptions with members of unequal speed, in real time, by all dispatchers."""
    from headwater.bench.reproduce.balance.experiment import ExperimentError, run
    from headwater.bench.reproduce.process import ProcessError

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end as by Ctrl-C, with all processes that we started
    try:
        status = run(quick, json, out, seed)
    except (ProcessError, ExperimentError, OSError) as error:
        fail("reproduce balance", str(error))
    except KeyboardInterrupt:
        fail("reproduce balance", "stopped.", 130)
    raise typer.Exit(status)


@reproduce.command()
def edge(
    quick: Quick = False,
    json: Json = None,
    out: Out = None,
    seed: Annotated[int | None, typer.Option(help="Of the values that are measured; else chosen at random.")] = None,
) -> None:
    """One edge node: CPU and latency while devices send, equality of what MQTT and REST bring, a cloud that is late."""
    from headwater.bench.contenders import BrokerError
    from headwater.bench.reproduce.edge.experiment import ExperimentError, run
    from headwater.bench.reproduce.process import ProcessError
    from headwater.store.reader import StoreError

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end as by Ctrl-C, with all processes that we started
    try:
        status = run(quick, json, out, seed)
    except (BrokerError, ProcessError, ExperimentError, StoreError, OSError) as error:
        fail("reproduce edge", str(error))
    except KeyboardInterrupt:
        fail("reproduce edge", "stopped.", 130)
    raise typer.Exit(status)
