"""`headwater reproduce NAME`: the experiments of the papers that Headwater builds on, run again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def _told(what: str, *errors: type[Exception]) -> Iterator[None]:
    """Errors are told in a sentence. They and Ctrl-C end the command."""
    try:
        yield
    except errors as error:
        fail(f"reproduce {what}", str(error))
    except KeyboardInterrupt:
        fail(f"reproduce {what}", "stopped.", 130)


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
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Instead, scenario 2 with its members at three nodes of a cluster.")
    ] = False,
) -> None:
    """Shared subscriptions with members of unequal speed, in real time, by all dispatchers."""
    if cluster:
        raise typer.Exit(_across(quick, json, out, seed))
    if sweep or spark is not None:
        raise typer.Exit(_swept(quick, json, out, 1 if seed is None else seed, seeds, spark))
    from headwater_lab.reproduce.balance.experiment import ExperimentError, run
    from headwater_lab.reproduce.process import ProcessError

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end as by Ctrl-C, with all processes that we started
    with _told("balance", ProcessError, ExperimentError, OSError):
        raise typer.Exit(run(quick, json, out, seed))


def _across(quick: bool, json: Path | None, out: Path | None, seed: int | None) -> int:
    from headwater.fleet.process import BrokerError
    from headwater_lab.reproduce.balance.across import run
    from headwater_lab.reproduce.process import ProcessError

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end as by Ctrl-C, with all processes that we started
    with _told("balance --cluster", ProcessError, BrokerError, OSError):
        return run(quick, json, out, seed)


def _swept(quick: bool, json: Path | None, out: Path | None, seed: int, seeds: int, spark: str | None) -> int:
    from headwater.pipeline.java import NoJava
    from headwater.pipeline.session import NoSpark
    from headwater_lab.reproduce.balance.swept import run
    from headwater_lab.sweep import PointFailed

    with _told("balance --sweep", PointFailed, NoSpark, NoJava, OSError):
        return run(quick, json, out, seed, seeds, spark)


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

    with _told("interest", PointFailed, NoSpark, NoJava, OSError):
        raise typer.Exit(run(quick, json, out, seed, trials, spark))


def _broker_cost(seconds: float, json: Path | None, out: Path | None) -> int:
    from headwater.fleet.process import BrokerError
    from headwater_lab.load import LoadError
    from headwater_lab.reproduce.interest.broker_cost import run

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end as by Ctrl-C, with all processes that we started
    with _told("interest --broker", BrokerError, LoadError, OSError):
        return run(seconds, json, out)


@reproduce.command()
def edge(
    quick: Quick = False,
    json: Json = None,
    out: Out = None,
    seed: Annotated[int | None, typer.Option(help="Of the values that are measured; else chosen at random.")] = None,
) -> None:
    """Edges of one node and of tiers: CPU, latency, equality of what MQTT and REST bring, a cloud that is late."""
    from headwater.fleet.process import BrokerError
    from headwater.store.reader import StoreError
    from headwater_lab.reproduce.edge.experiment import ExperimentError, run
    from headwater_lab.reproduce.process import ProcessError

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end as by Ctrl-C, with all processes that we started
    with _told("edge", BrokerError, ProcessError, ExperimentError, StoreError, OSError):
        raise typer.Exit(run(quick, json, out, seed))


@reproduce.command()
def coordination(
    quick: Quick = False,
    json: Json = None,
    out: Out = None,
    seconds: Annotated[float, typer.Option(min=1.0, help="Of each run at the limit; the paper has 60.")] = 60.0,
    setup: Annotated[list[str] | None, typer.Option(help="This set-up only; may be repeated.")] = None,
) -> None:
    """Brokers that become one, by proxies or as a cluster: throughput, latency, loss, CPU; the limit of each set-up."""
    from headwater.fleet.process import BrokerError
    from headwater_lab.load import LoadError
    from headwater_lab.reproduce.coordination.experiment import ExperimentError, run

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end as by Ctrl-C, with all processes that we started
    with _told("coordination", BrokerError, ExperimentError, LoadError, OSError):
        raise typer.Exit(run(quick, json, out, seconds, setup or ()))
