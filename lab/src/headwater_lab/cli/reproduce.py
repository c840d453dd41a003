"""`headwater reproduce NAME`: the experiments of the papers that Headwater builds on, run again."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.failure import fail

reproduce = typer.Typer(
    name="reproduce",
    add_completion=False,
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
    sweep: Annotated[
        bool,
        typer.Option("--sweep", help="On a virtual clock instead: groups, loads, dispatchers and seeds, all of them."),
    ] = False,
    spark: Annotated[
        str | None,
        typer.Option(
            metavar="MASTER",
            help="The sweep as a Spark job: local[*], spark://host:port or sc://host:port. "
            "What needs real sockets and real time runs here only.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Of the sweep, from --seed on (else from 1).")] = 5,
) -> None:
    """Shared subscriptions with members of unequal speed, in real time, by all dispatchers."""
    if sweep or spark is not None:
        raise typer.Exit(_swept(quick, json, out, 1 if seed is None else seed, seeds, spark))
    from headwater_lab.reproduce.balance.experiment import ExperimentError, run
    from headwater_lab.reproduce.process import ProcessError

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end as by Ctrl-C, with all processes that we started
    try:
        status = run(quick, json, out, seed)
    except (ProcessError, ExperimentError, OSError) as error:
        fail("reproduce balance", str(error))
    except KeyboardInterrupt:
        fail("reproduce balance", "stopped.", 130)
    raise typer.Exit(status)


def _swept(quick: bool, json: Path | None, out: Path | None, seed: int, seeds: int, spark: str | None) -> int:
    from headwater.pipeline.java import NoJava
    from headwater.pipeline.session import NoSpark
    from headwater_lab.reproduce.balance.swept import run
    from headwater_lab.sweep import PointFailed

    try:
        return run(quick, json, out, seed, seeds, spark)
    except (PointFailed, NoSpark, NoJava, OSError) as error:
        fail("reproduce balance --sweep", str(error))
    except KeyboardInterrupt:
        fail("reproduce balance --sweep", "stopped.", 130)


@reproduce.command()
def interest(
    quick: Quick = False,
    json: Json = None,
    out: Out = None,
    seed: Annotated[int, typer.Option(help="Of filters and topics: the same seed gives the same results.")] = 1,
    trials: Annotated[int, typer.Option(min=1, help="Of each set-up and value.")] = 10,
    spark: Annotated[
        str | None,
        typer.Option(metavar="MASTER", help="As a Spark job: local[*], spark://host:port or sc://host:port."),
    ] = None,
    broker: Annotated[
        bool, typer.Option("--broker", help="Instead, what it costs a broker to ask for every PUBLISH (figure 7).")
    ] = False,
    seconds: Annotated[float, typer.Option(min=0.1, help="Of each measurement with --broker.")] = 10.0,
) -> None:
    """Wildcard filters in Bloom filters: how much is asked for one topic, by all methods."""
    if broker:
        raise typer.Exit(_broker_cost(1.0 if quick else seconds, json, out))
    from headwater.pipeline.java import NoJava
    from headwater.pipeline.session import NoSpark
    from headwater_lab.reproduce.interest.experiment import run
    from headwater_lab.sweep import PointFailed

    try:
        status = run(quick, json, out, seed, trials, spark)
    except (PointFailed, NoSpark, NoJava, OSError) as error:
        fail("reproduce interest", str(error))
    except KeyboardInterrupt:
        fail("reproduce interest", "stopped.", 130)
    raise typer.Exit(status)


def _broker_cost(seconds: float, json: Path | None, out: Path | None) -> int:
    from headwater.fleet.process import BrokerError
    from headwater_lab.load import LoadError
    from headwater_lab.reproduce.interest.broker_cost import run

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end as by Ctrl-C, with all processes that we started
    try:
        return run(seconds, json, out)
    except (BrokerError, LoadError, OSError) as error:
        fail("reproduce interest --broker", str(error))
    except KeyboardInterrupt:
        fail("reproduce interest --broker", "stopped.", 130)


@reproduce.command()
def edge(
    quick: Quick = False,
    json: Json = None,
    out: Out = None,
    seed: Annotated[int | None, typer.Option(help="Of the values that are measured; else chosen at random.")] = None,
) -> None:
    """One edge node: CPU and latency while devices send, equality of what MQTT and REST bring, a cloud that is late."""
    from headwater.fleet.process import BrokerError
    from headwater.store.reader import StoreError
    from headwater_lab.reproduce.edge.experiment import ExperimentError, run
    from headwater_lab.reproduce.process import ProcessError

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end as by Ctrl-C, with all processes that we started
    try:
        status = run(quick, json, out, seed)
    except (BrokerError, ProcessError, ExperimentError, StoreError, OSError) as error:
        fail("reproduce edge", str(error))
    except KeyboardInterrupt:
        fail("reproduce edge", "stopped.", 130)
    raise typer.Exit(status)
