"""`headwater pipeline query`: SQL over the tables, as a table, CSV, JSON or a plot."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headwater.cli.failure import complain, fail
from headwater.cli.lakes import (
    FOLDER,
    LOCAL,
    LakeOptions,
    LakePlace,
    lake_options,
    open_lake,
    plain_words,
    spark_session,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from headwater.pipeline.lake.folder import Lake
    from headwater.pipeline.sql import Question

ROWS: Final = 100
"""Of a table for people, if they do not say how many."""
UNKNOWN_TABLE: Final = "TABLE_OR_VIEW_NOT_FOUND"
NOT_INSTALLED: Final = "pip install 'headwater[query]', or ask with --engine spark"


class Form(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class Engine(StrEnum):
    DUCKDB = "duckdb"
    SPARK = "spark"


def query(
    sql: Annotated[str, typer.Argument(help="What to ask; - reads it from the standard input.", show_default=False)],
    lake: LakePlace = FOLDER,
    lake_option: LakeOptions = None,
    engine: Annotated[
        Engine | None,
        typer.Option(
            "--engine",
            help="Who answers: DuckDB at once, or Spark, which takes a while to start and knows all "
            "of its SQL.  [default: duckdb]",
            show_default=False,
        ),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            "--master", help=f"Where Spark runs, as `pipeline run` has it; implies --engine spark.  [{LOCAL}]"
        ),
    ] = None,
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
    """Ask the tables in Spark's SQL; it only reads. Each table is a view of its name, as it is now; `silver` has the
    whole document too: document:battery::double. The view `windows` is gold (final) and what is known of the windows
    that are still open (not final)."""
    command = "pipeline query"
    found = open_lake(command, lake, lake_options(lake_option))
    drawing = plot is not None or plot_file is not None
    text = sys.stdin.read() if sql == "-" else sql
    most = limit if limit is not None else ROWS + 1 if form == Form.TABLE and not drawing else None
    question = _question(command, text)
    if (engine or (Engine.SPARK if master else Engine.DUCKDB)) == Engine.SPARK:
        answer = _ask_spark(command, found, master or LOCAL, text, question, most)
    else:
        answer = _ask_duckdb(command, found, text, question, most)
    if answer.num_rows == 0 and (drawing or form == Form.TABLE):
        _say_why_empty(command, found, question, drawing)
    if drawing:
        _plot(command, answer, plot, plot_file)
    else:
        _print_answer(answer, form, limit)


def _question(command: str, sql: str) -> Question | None:
    """None: only Spark can read it."""
    try:
        from headwater.pipeline.sql import Refused, check_reads
    except ImportError as error:
        fail(command, f"{error.name or error} is needed: pip install 'headwater[query]'")
    try:
        return check_reads(sql)
    except Refused as error:
        fail(command, f"{error}.")


# ---- who answers -------------------------------------------------------------------------------------------------


@contextmanager
def _waiting(text: str) -> Iterator[None]:
    """A sign of life on the terminal, which goes when the answer comes."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(text):
        yield


def _ask_duckdb(command: str, lake: Lake, sql: str, question: Question | None, most: int | None) -> pa.Table:
    try:
        from headwater.pipeline.light import Broken, answer
        from headwater.pipeline.provisional import WINDOWS, remembered, windows
        from headwater.pipeline.sql import NeedsSpark, Question, Refused
    except ImportError as error:
        fail(command, f"{error.name or error} is needed: {NOT_INSTALLED}")
    try:
        with _waiting("asking the tables …"):
            asked = Question(sql) if question is None else question
            return answer(lake, asked, most, {WINDOWS: lambda: windows(lake, remembered(lake))})
    except NeedsSpark as error:
        fail(command, f"{error}; Spark may know it: --engine spark.")
    except Refused as error:
        fail(command, f"{error}.")
    except Broken as error:
        fail(command, f"{_broken(str(error))}.")


def _ask_spark(
    command: str, lake: Lake, master: str, sql: str, question: Question | None, most: int | None
) -> pa.Table:
    with _waiting("Spark is starting …"), spark_session(command, lake, master, short=True) as spark:
        return _answer(command, spark, lake, sql, question, most)


def _answer(
    command: str, spark: SparkSession, lake: Lake, sql: str, question: Question | None, most: int | None
) -> pa.Table:
    from pyspark.errors import PySparkException

    from headwater.pipeline.views import answer, register_views

    broken: dict[str, str] = {}
    tables = register_views(spark, lake, broken)
    for name, why in broken.items():
        complain(command, f"{name} cannot be read: {_broken(plain_words(why))}.")
    with suppress(ImportError):  # open windows are computed by DuckDB
        from headwater.pipeline.provisional import WINDOWS, remembered, windows

        if question is None or WINDOWS in question.tables:
            spark.createDataFrame(windows(lake, remembered(lake))).createOrReplaceTempView(WINDOWS)
        tables.append(WINDOWS)
    try:
        return answer(spark, sql, most)
    except PySparkException as error:
        hint = f". There are {', '.join(tables)}" if error.getCondition() == UNKNOWN_TABLE else ""
        fail(command, f"{plain_words(error)}{hint}.")


def _broken(why: str) -> str:
    return f"{why.rstrip('.')}; `headwater pipeline backfill` fetches what was in bronze, `remake` makes others again"


# ---- what is shown -----------------------------------------------------------------------------------------------


def _say_why_empty(command: str, lake: Lake, question: Question | None, drawing: bool) -> None:
    why = ""
    with suppress(ImportError):  # DuckDB
        why = _why_empty(lake, set() if question is None else question.tables)
    if drawing:
        fail(command, f"there are no rows{why}.")
    complain(command, f"there are no rows{why}.")


def _why_empty(lake: Lake, asked: set[str]) -> str:
    """Gold is empty for as long as its first window takes to be final."""
    from headwater.pipeline.provisional import WINDOWS, final_until, first_expected, remembered
    from headwater.pipeline.tables import GOLD

    about = asked & {GOLD.name, WINDOWS}
    if not about:
        return ""
    settings = remembered(lake)
    expected = first_expected(lake, settings)
    if expected is None and final_until(lake) is None:
        return ": no reading with a number has come yet"
    if expected is None or about != {GOLD.name} or lake.snapshot(GOLD).rows:
        return ""
    return (
        f" yet: a window takes {settings.window} s and is final {settings.lateness:g} s (lateness) later, the first at "
        f"{expected:%H:%M:%S}Z. `{WINDOWS}` has those that are still open"
    )


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
        fail(command, f"a plot in a file needs {error.name}: pip install 'headwater[plot]'")
    except OSError as error:
        fail(command, f"cannot write {file}: {error.strerror or error}.")
    from rich.console import Console

    console = Console()
    console.print(draw(lines, min(console.width, 120)))
