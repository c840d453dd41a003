"""A table as it is at one moment, read by Spark from the Parquet files that its log names: natively from a folder, by
Arrow from elsewhere (`reading`).

Which files are read is decided by the bounds in the log: what cannot hold a row that is asked for is not opened.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.objects import Place
from headwater.objects.arrow import source
from headwater.pipeline.lake.files import MEASURED, WrittenFile
from headwater.pipeline.lake.log import Log, Positions
from headwater.pipeline.lake.reading import FILE, Files
from headwater.pipeline.lake.types import ddl_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WILD: Final = re.compile(r"[\[\]{}*?\\]")
"""What Spark takes for wildcards in a path."""
Ranges = Mapping[str, tuple[int, int]]
"""Of each store: after < position ≤ last."""
ROUNDED: Final = timedelta(milliseconds=1)
"""By which a bound of a time may be off."""


class Snapshot:
    def __init__(self, log: Log) -> None:
        self.log = log
        self.view = log.look()
        self.version = self.view.version
        self.schema = self.view.schema
        self._files = self.view.files  # now: it is asked for in any case, and cheaper before the next commit
        self._columns: dict[str, list[Any]] = {}

    def positions(self, job: str) -> Positions:
        return self.view.positions(job)

    def note(self, name: str) -> int | None:
        return self.view.note(name)

    @property
    def rows(self) -> int:
        return sum(self._column("num_records"))

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(self._column("size_bytes"))

    @property
    def files(self) -> list[str]:
        """Relative to the table's folder."""
        return list(self._column("path"))

    def written(self) -> list[WrittenFile]:
        """The files as their writers have told of them, for another commit that names them."""
        made = self._files.column("modification_time").to_pylist()
        sizes, rows = self._files.column("size_bytes").to_pylist(), self._files.column("num_records").to_pylist()
        by = self.log.partition
        days = self._column(f"partition.{by}")
        bounds = {name: (*self._bounds(name), self._column(f"null_count.{name}")) for name in MEASURED}
        schema = self.schema.serialize().to_pybytes()
        found = []
        for at, path in enumerate(self.files):
            low = {name: each[0][at] for name, each in bounds.items() if each[0][at] is not None}
            high = {name: each[1][at] for name, each in bounds.items() if each[1][at] is not None}
            nulls = {name: each[2][at] for name, each in bounds.items() if each[2][at] is not None}
            partition = {} if by is None else {by: str(days[at])}
            milliseconds = int(made[at].timestamp() * 1000) if isinstance(made[at], datetime) else int(made[at])
            found.append(WrittenFile(path, sizes[at], rows[at], partition, low, high, schema, {}, milliseconds, nulls))
        return found

    # ---- which files -------------------------------------------------------------------------------------------

    def files_with(self, ranges: Ranges) -> list[str]:
        """Those that may have rows of these positions."""
        low_store, high_store = self._bounds("store")
        low, high = self._bounds("position")
        chosen = []
        for path, *bounds in zip(self.files, low_store, high_store, low, high, strict=True):
            if any(_meets(store, after + 1, last, bounds) for store, (after, last) in ranges.items()):
                chosen.append(path)
        return chosen

    def files_between(self, column: str, start: datetime, end: datetime) -> list[str]:
        """Those that may have rows with start ≤ column < end."""
        found = []
        for path, least, greatest in zip(self.files, *self._bounds(column), strict=True):
            low, high = _moment(least), _moment(greatest)
            if (low is None or low < end) and (high is None or high + ROUNDED >= start):
                found.append(path)
        return found

    def lows(self, column: str) -> list[datetime | None]:
        """Of each file the least time in the column, as the log has it."""
        return [_moment(each) for each in self._bounds(column)[0]]

    def highs(self, column: str) -> list[datetime | None]:
        """Of each file the greatest time in the column, as the log has it."""
        return [_moment(each) for each in self._bounds(column)[1]]

    def rows_of(self, files: list[str]) -> int:
        wanted = set(files)
        counts = zip(self.files, self._column("num_records"), strict=True)
        return sum(count for path, count in counts if path in wanted)

    def known_of(self, files: list[str]) -> list[tuple[str, int, dict[str, Any]]]:
        """Of each its name, its rows, and the value that all of them have in the column it is laid out by."""
        wanted, by = set(files), self.log.partition
        values = zip(self.files, self._column("num_records"), self._column(f"partition.{by}"), strict=True)
        return [(path, count, {} if by is None else {by: value}) for path, count, value in values if path in wanted]

    def _bounds(self, column: str) -> tuple[list[Any], list[Any]]:
        return self._column(f"min.{column}"), self._column(f"max.{column}")

    def _column(self, name: str) -> list[Any]:
        if name not in self._columns:
            known = name in self._files.column_names
            self._columns[name] = self._files.column(name).to_pylist() if known else [None] * self._files.num_rows
        return self._columns[name]

    # ---- rows --------------------------------------------------------------------------------------------------

    def read(self, spark: SparkSession, files: list[str] | None = None, *, names: bool = False) -> DataFrame:
        """All rows of these files; without them, of all. With `names`, each row has the name of its file (`FILE`)."""
        return self._read(spark, self.files if files is None else files, None, names)

    def _read(
        self, spark: SparkSession, files: list[str], where: pc.Expression | None, names: bool = False
    ) -> DataFrame:
        """What `where` excludes is not read, if that is known without reading it."""
        from pyspark.sql import functions as F

        if self.log.place.folder is None:
            return self._elsewhere(files).read(spark, where, names=names)
        ddl = ddl_of(self.schema)
        if not files:
            return spark.createDataFrame([], ddl + (f", {FILE} string" if names else ""))
        root = f"file://{self.log.place.folder}"  # as it is: Spark takes nothing for an escape but that of wildcards
        paths = (WILD.sub(r"\\\g<0>", f"{root}/{name}") for name in files)
        rows = spark.read.schema(ddl).option("basePath", root).parquet(*paths)
        return rows.withColumn(FILE, F.col("_metadata.file_name")) if names else rows

    def _elsewhere(self, files: list[str]) -> Files:
        wanted = set(files)
        by = self.log.partition
        values = self._column(f"partition.{by}")
        known = zip(self.files, self._column("size_bytes"), values, strict=True)
        return Files(self.log.place, self.schema, by, [each for each in known if each[0] in wanted])

    def read_positions(self, spark: SparkSession, ranges: Ranges) -> DataFrame:
        """The rows of these positions, no others."""
        from pyspark.sql import functions as F

        position = pc.field("position")
        among = [
            (pc.field("store") == store) & (position > after) & (position <= last)
            for store, (after, last) in ranges.items()
        ]
        where = reduce(lambda one, other: one | other, among) if among else None
        rows = self._read(spark, self.files_with(ranges), where)
        wanted = [
            (F.col("store") == store) & (F.col("position") > after) & (F.col("position") <= last)
            for store, (after, last) in ranges.items()
        ]
        return rows.where(reduce(lambda one, other: one | other, wanted, F.lit(False)))

    def read_between(self, spark: SparkSession, column: str, start: datetime, end: datetime) -> DataFrame:
        """The rows with start ≤ column < end."""
        from pyspark.sql import functions as F

        type = self.schema.field(column).type
        where = (pc.field(column) >= pa.scalar(start, type)) & (pc.field(column) < pa.scalar(end, type))
        rows = self._read(spark, self.files_between(column, start, end), where)
        return rows.where((F.col(column) >= F.lit(start)) & (F.col(column) < F.lit(end)))

    def arrival_of(self, store: str, position: int) -> datetime | None:
        """When the message at this position arrived, or, if the table has it not, the last one before it that it has;
        None if there is none. Read here, without Spark."""
        highs = dict(zip(self.files, self._bounds("position")[1], strict=True))
        last, arrival = 0, None
        for name in sorted(self.files_with({store: (0, position)}), key=lambda name: -(highs[name] or position)):
            if highs[name] is not None and highs[name] <= last:
                break
            found = _read_positions(self.log.place, name, last + 1, position)
            stores = found["store"].cast(pa.string())  # other writers have other kinds of text
            rows = found.drop_columns("store").filter(pc.equal(stores, store))
            rows = rows.filter(pc.and_(pc.less_equal(rows["position"], position), pc.greater(rows["position"], last)))
            if rows.num_rows:
                at = pc.index(rows["position"], pc.max(rows["position"])).as_py()
                last, arrival = rows["position"][at].as_py(), rows["arrival"][at].as_py()
        return _moment(arrival)


def _meets(store: str, first: int, last: int, bounds: list[Any]) -> bool:
    low_store, high_store, low, high = bounds
    if low_store is not None and not low_store <= store <= high_store:
        return False
    return low is None or (low <= last and high >= first)


def _read_positions(place: Place, name: str, first: int, last: int) -> pa.Table:
    """Of the row groups that may have such positions: a file may be large."""
    with pq.ParquetFile(source(place, name)) as file:
        index = file.schema_arrow.get_field_index("position")
        groups = []
        for number in range(file.num_row_groups):
            known = file.metadata.row_group(number).column(index).statistics
            if known is None or not known.has_min_max or (known.min <= last and known.max >= first):
                groups.append(number)
        return file.read_row_groups(groups, columns=["store", "position", "arrival"])


def _moment(found: Any) -> datetime | None:
    if isinstance(found, datetime):
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    return None
