"""`headwater pipeline run`: everything that nodes store, into the tables, until told to stop."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.failure import fail
from headwater.cli.lakes import LOCAL, Master, StoresOptions, failing, spark_session, with_stores_options

if TYPE_CHECKING:
    from headwater.cli.pipeline_view import PipelineView
    from headwater.pipeline.jobs.pipeline import Pipeline
    from headwater.pipeline.jobs.settings import Settings
    from headwater.pipeline.jobs.status import Status


@with_stores_options
def run(
    of: StoresOptions,
    master: Master = LOCAL,
    once: Annotated[bool, typer.Option("--once", help="Leave when all is in the tables that is stored now.")] = False,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0.0, help="Leave after so many seconds.")] = None,
    live: Annotated[
        str | None, typer.Option("--live", metavar="mqtt://…", help="Compare with what comes by MQTT from there.")
    ] = None,
    starting: Annotated[
        str | None, typer.Option("--starting", help="Where a new lake begins: earliest, latest or a time.")
    ] = None,
    trigger: Annotated[float | None, typer.Option("--trigger", min=0.01, help="Seconds between two batches.")] = None,
    without: Annotated[
        list[str] | None, typer.Option("--without", metavar="STORE", help="Windows do not wait for this store; repeat.")
    ] = None,
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="HOST:PORT", help="Serve /metrics and /healthz there.")
    ] = None,
    lineage: Annotated[
        str | None, typer.Option("--lineage", metavar="URL", help="Send events of OpenLineage there: http, or file.")
    ] = None,
) -> None:
    """Bring everything into the tables, until told to stop (SIGINT, SIGTERM); the next run goes on where this one
    stopped, however it did."""
    command = "pipeline run"
    further = {"live_broker": live, "starting": starting, "trigger": trigger, "without": tuple(without or ())}
    settings = watched(of.settings(command, **further), metrics, lineage)
    lake = of.lake_at(command, settings)
    with failing(command):
        _check_stores(command, settings, once)
        lake.check_free()  # before Java has started
    with spark_session(command, lake, master, short=once, settings=settings.spark) as spark, failing(command):
        from headwater.cli.pipeline_view import PipelineView
        from headwater.pipeline.catalogs.registrar import Beside, Registrar
        from headwater.pipeline.jobs.pipeline import Pipeline, drain
        from headwater.pipeline.jobs.settings import read_file
        from headwater.pipeline.monitoring.monitor import Monitor

        reread = None if of.config is None else partial(read_file, of.config)
        pipeline = Pipeline(spark, lake, settings, reread=reread)
        view = PipelineView(lake, settings.source())
        monitor = Monitor(lake, settings.monitoring, settings.stored_filters)
        catalogs = Beside(lake, Registrar(lake, settings.catalog, settings.iceberg))
        pipeline.watchers += [catalogs.saw, monitor.saw]
        with monitor, catalogs, pipeline, stopping(pipeline, view, seconds), view.watching():
            if once:
                drain(pipeline)
            else:
                pipeline.run()
    _say_where(view.look(), stopped=not once or pipeline.stopped.is_set())


def watched(settings: Settings, metrics: str | None, lineage: str | None) -> Settings:
    """With what is given here, which goes before what the file says; secrets come from the environment as well."""
    given = settings.monitoring
    chosen = dataclasses.replace(
        given,
        metrics=metrics or given.metrics,
        metrics_token=os.environ.get("HEADWATER_METRICS_TOKEN") or given.metrics_token,
        lineage=lineage or given.lineage,
        lineage_key=os.environ.get("HEADWATER_LINEAGE_KEY") or given.lineage_key,
    )
    return dataclasses.replace(settings, monitoring=chosen)


def _check_stores(command: str, settings: Settings, once: bool) -> None:
    """There are addresses; and of those that are to be drained, what does not answer now would be waited for."""
    from headwater.pipeline.jobs.clocks import ask
    from headwater.pipeline.source.addresses import Addresses

    addresses = Addresses(settings.source())
    addresses.now()
    silent: dict[str, str] = {}
    if once:
        ask(addresses, silent)
    for url, why in silent.items():
        fail(command, f"cannot ask {why}; is a node running at {url}? Check --url, and --token, or -u and -P.")


@contextmanager
def stopping(pipeline: Pipeline, view: PipelineView, seconds: float | None) -> Iterator[None]:
    """The first signal lets the step end that is under way; the second ends at once what can be ended so at any
    moment: a table has a commit, or it has it not."""
    asked: list[int] = []

    def stop(number: int, _: object) -> None:
        asked.append(number)
        if len(asked) > 1:
            _kill_java()
            os._exit(128 + number)
        view.note = "stopping after this step; once more stops at once"
        if not view.console.is_terminal:
            os.write(sys.stderr.fileno(), f"{view.note}\n".encode())  # print may be at work already
        pipeline.stopped.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    timer = None if seconds is None else threading.Timer(seconds, pipeline.stopped.set)
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def _kill_java() -> None:
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        SparkContext._gateway.proc.kill()


def _say_where(status: Status, stopped: bool) -> None:
    reached = ", ".join(f"{each.store}:{each.landed}" for each in status.stores) or "nothing yet"
    how = "stopped; the same command goes on behind it" if stopped else "all of it is in the tables"
    print(f"{status.rows:,} messages in {status.lake}, up to {reached}: {how}.")
