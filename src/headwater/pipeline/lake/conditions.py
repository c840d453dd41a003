"""Conditions of a query of Spark as Arrow's expressions, where both mean the same.

Floating-point columns are left to Spark, for which NaN is equal to itself and greater than all; so is what compares
with null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

COMPARED: Final[dict[type[Filter], Callable[[pc.Expression, pa.Scalar], pc.Expression]]] = {
    EqualTo: lambda column, value: column == value,
    GreaterThan: lambda column, value: column > value,
    GreaterThanOrEqual: lambda column, value: column >= value,
    LessThan: lambda column, value: column < value,
    LessThanOrEqual: lambda column, value: column <= value,
}
MATCHED: Final[dict[type[Filter], Callable[..., pc.Expression]]] = {
    StringStartsWith: pc.starts_with,
    StringEndsWith: pc.ends_with,
    StringContains: pc.match_substring,
}
PLAIN: Final = (
    pa.types.is_string,
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_date,
    pa.types.is_timestamp,
)


def expression(condition: Filter, schema: pa.Schema) -> pc.Expression | None:
    """None: Spark has to look at it. The schema is that of the rows."""
    if isinstance(condition, Not) and not isinstance(condition.child, Not | IsNull | IsNotNull):
        inner = expression(condition.child, schema)
        # `is_valid`: for Arrow, null is in no list; for Spark that is not known, and the opposite neither.
        return None if inner is None else ~inner & pc.field(_name(condition.child)).is_valid()
    name = _name(condition)
    if name not in schema.names:
        return None
    column, type = pc.field(name), schema.field(name).type
    if isinstance(condition, IsNull):
        return column.is_null()
    if isinstance(condition, IsNotNull):
        return column.is_valid()
    return _of_values(condition, column, type) if any(each(type) for each in PLAIN) else None


def _name(condition: Filter) -> str:
    """Of its column; a part of a struct has a name that no column has."""
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    return attribute[0] if len(attribute) == 1 else ""


def _of_values(condition: Filter, column: pc.Expression, type: pa.DataType) -> pc.Expression | None:
    try:
        if isinstance(condition, In):
            values = [_fitted(each, type) for each in condition.value]
            return None if None in values else column.isin(pa.array(values, type))
        value = _fitted(getattr(condition, "value", None), type)
        if value is None:
            return None
        if (compared := COMPARED.get(condition.__class__)) is not None:
            return compared(column, pa.scalar(value, type))
        if (matched := MATCHED.get(condition.__class__)) is not None and pa.types.is_string(type):
            return matched(column, value)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):  # not a value of the column's type
        pass
    return None


def _fitted(value: Any, type: pa.DataType) -> Any:
    """Spark gives times without a zone in UTC."""
    if isinstance(value, datetime) and pa.types.is_timestamp(type) and type.tz is not None and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value


def all_of(conditions: Iterable[pc.Expression | None]) -> pc.Expression | None:
    given = [each for each in conditions if each is not None]
    return reduce(lambda one, other: one & other, given) if given else None
