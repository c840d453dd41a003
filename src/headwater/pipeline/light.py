"""Answers without Spark: DuckDB over the files that the logs of the tables name, in this process and within a second.

Tables are opened only if a question names them, and files are read only where their bounds and the columns asked for
say so. The engine can read the tables and nothing else: neither
files, nor the network, nor variables of this program.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pyarrow as pa

from headwater.pipeline.as_of import AS_OF, needed, select
from headwater.pipeline.lake.dataset import dataset
from headwater.pipeline.lake.log import Log
from headwater.pipeline.sql import MACROS, NeedsSpark, Question, Refused
from headwater.pipeline.tables import DEVICES, SILVER

if TYPE_CHECKING:
    from headwater.pipeline.lake.folder import Lake

DOCUMENT: Final = "document"
"""As in headwater.pipeline.views."""
FENCED: Final = ("SET enable_external_access = false", "SET lock_configuration = true")
OFFLINE: Final = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
NO_FILE: Final = "No such file or directory"


class Broken(Exception):
    """Files of a table are not there."""


Views = dict[str, Callable[[], pa.Table]]
"""Further tables, made if they are asked for."""


@contextlib.contextmanager
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty DuckDB in memory, in UTC."""
    with tempfile.TemporaryDirectory(prefix="headwater-query-") as folder:
        found = duckdb.connect(":memory:", config={**OFFLINE, "temp_directory": folder})
        try:
            found.execute("SET TimeZone = 'UTC'")
            found.execute("SET python_enable_replacements = false")
            yield found
        finally:
            found.close()


def answer(lake: Lake, question: Question, most: int | None = None, views: Views | None = None) -> pa.Table:
    """All rows, or so many. Raises Refused, NeedsSpark, Broken."""
    sql = question.for_duckdb()
    there = {table.name: table for table in lake.tables()}
    further = views or {}
    joined = {name for name in AS_OF if set(needed(name)) <= there.keys()}
    unknown = question.tables - there.keys() - further.keys() - joined
    if unknown and not question.is_about_tables:
        raise Refused(
            f"there is no table {', '.join(sorted(unknown))}. There are {', '.join([*there, *further, *joined])}"
        )
    asked = set((*there, *further) if question.is_about_tables else question.tables)
    views_asked = [name for name in AS_OF if name in asked and set(needed(name)) <= there.keys()]
    asked |= {table for name in views_asked for table in needed(name)}
    with connection() as duck:
        for macro in MACROS:
            duck.execute(macro)
        for name in asked:
            if name in there:
                add_table(duck, name, lake.reading(there[name]))
            elif name in further:
                duck.register(name, further[name]())
        for name in views_asked:
            columns = dataset(lake.reading(there[DEVICES.name])).schema.names
            duck.execute(f"CREATE VIEW {name} AS " + select(name, columns).replace("`", '"'))
        for words in FENCED:
            duck.execute(words)
        return _plain(_ask(duck, sql, most))


def add_table(duck: duckdb.DuckDBPyConnection, name: str, log: Log) -> None:
    """A view of its name, as the table is now; `silver` has its documents as JSON."""
    rows = dataset(log)
    if name != SILVER.name or DOCUMENT in rows.schema.names:
        duck.register(name, rows)
        return
    duck.register(f"{name} rows", rows)
    duck.execute(f'CREATE VIEW "{name}" AS SELECT *, TRY_CAST(data AS JSON) AS {DOCUMENT} FROM "{name} rows"')


def _ask(duck: duckdb.DuckDBPyConnection, sql: str, most: int | None) -> pa.Table:
    try:
        rows = duck.sql(sql)
        return (rows if most is None else rows.limit(most)).to_arrow_table()
    except FileNotFoundError as error:
        raise Broken(str(error)) from None
    except duckdb.Error as error:
        if NO_FILE in str(error):
            raise Broken(str(error)) from None
        text = _words(error)
        missing = isinstance(error, duckdb.CatalogException | duckdb.ParserException | duckdb.NotImplementedException)
        raise (NeedsSpark(text) if missing or "No function matches" in text else Refused(text)) from None


def _words(error: duckdb.Error) -> str:
    """One sentence: the first line, without its class."""
    line = str(error).strip().splitlines()[0]
    return line.partition(" Error: ")[2].rstrip(".! ") or line


# ---- as Spark would say it ---------------------------------------------------------------------------------------


def _plain(found: pa.Table) -> pa.Table:
    """Sums as whole numbers, spans of time as such."""
    for number, field in enumerate(found.schema):
        column = found.column(number)
        if pa.types.is_decimal(field.type) and field.type.scale == 0:
            with contextlib.suppress(pa.ArrowInvalid):
                found = found.set_column(number, field.name, column.cast(pa.int64()))
        elif pa.types.is_interval(field.type):
            spans = [_span(each) for each in column.to_pylist()]
            found = found.set_column(number, field.name, pa.array(spans))
    return found


def _span(value: Any) -> timedelta | str | None:
    if value is None:
        return None
    months, days, nanoseconds = value
    if months:
        return str(value)
    return timedelta(days=days, microseconds=nanoseconds // 1000)
