"""Where a grid is computed, and how far it is: for all experiments that are pure functions of their points."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headwater_lab.reproduce.reporter import Reporter
from headwater_lab.sweep import Watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def session(master: str | None, name: str, folder: Path | None) -> Iterator[SparkSession | None]:
    """None without a master. What Java says goes into the folder, if there is one. Raises NoSpark, NoJava."""
    if master is None:
        yield None
        return
    from headwater.pipeline.session import end_session, make_session, ship

    made = make_session(master, name=name, log=None if folder is None else folder / "spark.log")
    ship(made, master, "headwater_lab")
    try:
        yield made
    finally:
        end_session(made)


@contextmanager
def progress(reporter: Reporter, count: int) -> Iterator[Watch]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("trials"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=reporter.console, refresh_per_second=4) as shown:
        task = shown.add_task("trials", total=count)
        yield lambda done, _: shown.update(task, completed=done)
