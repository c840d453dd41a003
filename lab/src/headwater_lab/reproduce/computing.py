"""Where a grid is computed, and how far an experiment is: by points of a grid, or by seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headwater_lab.reproduce.reporter import Reporter
from headwater_lab.sweep import Watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console


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


@contextmanager
def stages(console: Console, total: float) -> Iterator[Callable[[str, float], Callable[[float], None]]]:
    """Of an experiment in real time that takes `total` seconds: a stage begins with words and its seconds, and
    gets whom to tell how many of them have passed."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    gone = 0.0
    # A few times a second is enough, and leaves the machine to those who are measured.
    with Progress(*columns, console=console, refresh_per_second=2) as shown:
        task = shown.add_task("all", total=total)

        def begin(words: str, seconds: float) -> Callable[[float], None]:
            nonlocal gone
            before, gone = gone, gone + seconds
            return lambda passed: shown.update(task, completed=before + passed, description=words)

        yield begin
        shown.update(task, completed=total)
