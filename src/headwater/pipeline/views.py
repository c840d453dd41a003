"""The tables of a lake as views for SQL, each as it is at one moment, and answers as Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headwater.pipeline.as_of import AS_OF, needed, select
from headwater.pipeline.tables import DEVICES, SILVER

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headwater.pipeline.lake.folder import Lake
    from headwater.pipeline.lake.snapshot import Snapshot

DOCUMENT: Final = "document"
"""The column of silver's view with the whole document as a VARIANT; where payloads bring a column of this name, theirs
is there instead."""


def register_views(spark: SparkSession, lake: Lake, broken: dict[str, str] | None = None) -> list[str]:
    """A view of its name for each table that there is; their names. They show the tables as they are now: to see what
    has come since, register them again. With `broken`, tables whose files are not there are put into it, with what
    Spark says, and do not hinder the others; without, PySparkException is raised."""
    from pyspark.errors import PySparkException

    views = []
    for name, snapshot in lake.existing().items():
        try:
            _rows(spark, name, snapshot).createOrReplaceTempView(name)
        except PySparkException as error:
            if broken is None:
                raise
            spark.catalog.dropTempView(name)
            broken[name] = str(error)
        else:
            views.append(name)
    for name in AS_OF:
        if set(needed(name)) <= set(views):
            columns = lake.existing()[DEVICES.name].schema.names
            spark.sql(select(name, columns)).createOrReplaceTempView(name)
            views.append(name)
    return views


def _rows(spark: SparkSession, name: str, snapshot: Snapshot) -> DataFrame:
    from pyspark.sql import functions as F

    rows = snapshot.read(spark)
    if name == SILVER.name and DOCUMENT not in rows.columns:
        return rows.withColumn(DOCUMENT, F.try_parse_json("data"))
    return rows


def answer(spark: SparkSession, sql: str, most: int | None = None) -> pa.Table:
    """All rows, or so many; a VARIANT as JSON. Raises PySparkException."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import VariantType

    rows = spark.sql(sql)
    for field in rows.schema:
        if isinstance(field.dataType, VariantType):
            rows = rows.withColumn(field.name, F.to_json(F.col(f"`{field.name}`")))
    return (rows if most is None else rows.limit(most)).toArrow()
