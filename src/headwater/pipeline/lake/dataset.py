"""A table as a dataset of Arrow: files are skipped by the bounds that the log has of them.

deltalake's own `to_pyarrow_dataset` takes a bound that a file does not have for one that nothing fulfils. Tables say in
a property which columns have bounds (`lake.log`), but those of older versions do not until a pipeline has started on
them. So the dataset is made here.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from headwater.objects import Place
from headwater.objects.arrow import filesystem
from headwater.pipeline.lake.log import Log, View

ROUNDED: Final = timedelta(milliseconds=1)
"""By which a bound of a time may be off."""


def dataset(log: Log) -> ds.FileSystemDataset:
    """As the table is now. Columns that a file does not have are null in it."""
    return dataset_of(log.look(), log.place)


def dataset_of(view: View, place: Place) -> ds.FileSystemDataset:
    """The same, as the table was at one version. Nothing is opened."""
    schema, files = view.schema, view.files.to_pylist()
    format, files_at = ds.ParquetFileFormat(), filesystem(place)
    fragments = [
        format.make_fragment(each["path"], files_at, partition_expression=_known(each, schema)) for each in files
    ]
    return ds.FileSystemDataset(fragments, schema, format, files_at)


def _known(file: dict[str, Any], schema: pa.Schema) -> ds.Expression | None:
    """What holds for all rows of a file."""
    found: list[ds.Expression] = []
    for name, value in file.items():
        if name.startswith("partition.") and value is not None:
            column = name.removeprefix("partition.")
            found.append(ds.field(column) == pa.scalar(value, schema.field(column).type))
    for column in _bounded(file, schema):
        low, high = file[f"min.{column}"], file[f"max.{column}"]
        if isinstance(low, datetime):
            low, high = low - ROUNDED, high + ROUNDED
        type = schema.field(column).type
        found.append((ds.field(column) >= pa.scalar(low, type)) & (ds.field(column) <= pa.scalar(high, type)))
    return reduce(lambda one, other: one & other, found) if found else None


def _bounded(file: dict[str, Any], schema: pa.Schema) -> list[str]:
    """Columns that are known to have a value in every row of the file, and between which."""
    return [
        each.name
        for each in schema
        if file.get(f"min.{each.name}") is not None
        and file.get(f"max.{each.name}") is not None
        and (not each.nullable or file.get(f"null_count.{each.name}") == 0)
        and not pa.types.is_floating(each.type)
    ]
