"""`headwater pipeline query`: SQL over the tables, as a table, CSV, JSON or a plot."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headwater.cli.failure import complain, fail
from headwater.cli.lakes import FOLDER, LOCAL, LakeFolder, Master, open_lake, plain_words, spark_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from headwater.pipeline.lake.folder import Lake

ROWS: Final = 100
"""Of a table for people, if they do not say how many."""
UNKNOWN_TABLE: Final = "TABLE_OR_VIEW_NOT_FOUND"


class Form(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def query(
    sql: Annotated[str, typer.Argument(help="What to ask; - reads it from the standard input.", show_default=False)],
    lake: LakeFolder = FOLDER,
    master: Master = LOCAL,
    form: Annotated[Form, typer.Option("-f", "--format", help="json: an object a line.")] = Form.TABLE,
    limit: Annotated[
        int | None, typer.Option("-n", "--limit", min=1, help=f"Most rows.  [default: all; of a table {ROWS}]")
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option("--plot", metavar="X,Y[,…]", help="Draw these columns: time or number, numbers, text."),
    ] = None,
    plot_file: Annotated[
        Path | None, typer.Option("--plot-file", help="Draw into this file (.svg, .png, .pdf), not in the terminal.")
    ] = None,
) -> None:
    """Ask the tables in SQL. Each is a view of its name, as it is now; `silver` has the whole document as a VARIANT
    too: document:battery::double."""
    command = "pipeline query"
    found = open_lake(command, lake)
    drawing = plot is not None or plot_file is not None
    text = sys.stdin.read() if sql == "-" else sql
    with spark_session(command, found, master, short=True) as spark:
        most = limit if limit is not None else ROWS + 1 if form == Form.TABLE and not drawing else None
        answer = _answer(command, spark, found, text, most)
    if drawing:
        _plot(command, answer, plot, plot_file)
    else:
        _print_answer(answer, form, limit)


def _answer(command: str, spark: SparkSession, lake: Lake, sql: str, most: int | None) -> pa.Table:
    from pyspark.errors import PySparkException

    from headwater.pipeline.tables import BRONZE
    from headwater.pipeline.views import answer, register_views

    broken: dict[str, str] = {}
    tables = register_views(spark, lake, broken)
    for name, why in broken.items():
        hint = "; `headwater pipeline backfill` fetches what was in it" if name == BRONZE.name else ""
        complain(command, f"{name} cannot be read: {plain_words(why)}{hint}.")
    try:
        return answer(spark, sql, most)
    except PySparkException as error:
        hint = f". There are {', '.join(tables)}" if error.getCondition() == UNKNOWN_TABLE else ""
        fail(command, f"{plain_words(error)}{hint}.")


def _print_answer(answer: pa.Table, form: Form, limit: int | None) -> None:
    from headwater.cli.answers import print_csv, print_json, print_rows, rows_of

    names = answer.column_names
    if form == Form.CSV:
        print_csv(names, rows_of(answer))
    elif form == Form.JSON:
        print_json(rows_of(answer))
    else:
        rows = list(rows_of(answer))
        print_rows(names, rows if limit is not None else rows[:ROWS])
        if limit is None and len(rows) > ROWS:
            print(f"the first {ROWS}; more with --limit, all with --format csv or json", file=sys.stderr)


def _plot(command: str, answer: pa.Table, columns: str | None, file: Path | None) -> None:
    from headwater.cli.plotting import PlotError, draw, lines_of, save

    try:
        lines = lines_of(answer, [each.strip() for each in (columns or "").split(",") if each.strip()])
        if file is not None:
            save(lines, file)
            print(f"{file} is drawn: {sum(map(len, lines.points.values())):,} points")
            return
    except PlotError as error:
        fail(command, f"{error}.")
    except ImportError as error:
        fail(command, f"a plot in a file needs {error.name}: pip install matplotlib")
    except OSError as error:
        fail(command, f"cannot write {file}: {error.strerror or error}.")
    from rich.console import Console

    console = Console()
    console.print(draw(lines, min(console.width, 120)))
