"""The tables of a lake as views for SQL, each as it is at one moment, and answers as Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headwater.pipeline.tables import SILVER

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from headwater.pipeline.lake.folder import Lake

DOCUMENT: Final = "document"
"""The column of silver's view with the whole document as a VARIANT; where payloads bring a column of this name, theirs
is there instead."""


def register_views(spark: SparkSession, lake: Lake) -> list[str]:
    """A view of its name for each table that there is; their names. They show the tables as they are now: to see what
    has come since, register them again."""
    from pyspark.sql import functions as F

    found = lake.existing()
    for name, snapshot in found.items():
        rows = snapshot.read(spark)
        if name == SILVER.name and DOCUMENT not in rows.columns:
            rows = rows.withColumn(DOCUMENT, F.try_parse_json("data"))
        rows.createOrReplaceTempView(name)
    return list(found)


def answer(spark: SparkSession, sql: str, most: int | None = None) -> pa.Table:
    """All rows, or so many; a VARIANT as JSON. Raises PySparkException."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import VariantType

    rows = spark.sql(sql)
    for field in rows.schema:
        if isinstance(field.dataType, VariantType):
            rows = rows.withColumn(field.name, F.to_json(F.col(f"`{field.name}`")))
    return (rows if most is None else rows.limit(most)).toArrow()
