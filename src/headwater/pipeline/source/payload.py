"""Columns beside those of a stored message: declared ones of its JSON payload, and headers.

Theory. Spark reads the declaration (DDL) and hands us types; a payload is parsed once, and each declared name looked
up in its object. A payload is what a device sends, so what does not fit stops nothing: a field that is not of its type
is null, as it is for Spark's `from_json`, and `_corrupt_record`, if it is declared as a string, has the payload then.

Needs pyarrow alone: executors import it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from typing import Any, Final

import pyarrow as pa

from headwater.pipeline.decoding.json_text import NotJson, parse

CORRUPT: Final = "_corrupt_record"
HEADERS: Final = "headers"
HEADERS_DDL: Final = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""As Kafka's source has them."""
Fit = Callable[[Any], Any]
"""A value of JSON as one of Arrow. Raises Misfit."""


class Misfit(ValueError):
    """A value is not of the declared type."""


class Undeclarable(ValueError):
    """A type that is in no JSON; the text says which there are."""


def fit(type: pa.DataType) -> Fit:
    """For a type. Raises Undeclarable."""
    children = [type.field(at) for at in range(type.num_fields)] if pa.types.is_struct(type) else []
    children += [type.value_field] if pa.types.is_list(type) else []
    children += [type.item_field] if pa.types.is_map(type) else []
    for each in children:
        _check_nullable(each)
    for is_one, make in MAKERS:
        if is_one(type):
            return make(type)
    raise Undeclarable(
        f"{type} is no type of a payload's columns; there are string, boolean, whole numbers, float, double, "
        "timestamp, date, binary (base64), struct, array and map<string, …>"
    )


def _check_nullable(field: pa.Field) -> None:
    if not field.nullable:
        raise Undeclarable(f"{field.name} is NOT NULL, and what a payload does not have is null")


def _text(_: pa.DataType) -> Fit:
    def as_text(value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)

    return as_text


def _whole(type: pa.DataType) -> Fit:
    most = (1 << (type.bit_width - 1)) - 1

    def as_whole(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not -most - 1 <= value <= most:
            raise Misfit
        return value

    return as_whole


def _number(_: pa.DataType) -> Fit:
    def as_number(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Misfit
        return float(value)

    return as_number


def _truth(_: pa.DataType) -> Fit:
    def as_truth(value: Any) -> bool:
        if not isinstance(value, bool):
            raise Misfit
        return value

    return as_truth


def _time(type: pa.DataType) -> Fit:
    """ISO 8601; without a zone it is in UTC."""

    def as_time(value: Any) -> datetime:
        moment = datetime.fromisoformat(_string(value))
        if type.tz is None:
            return moment.replace(tzinfo=None)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

    return as_time


def _date(_: pa.DataType) -> Fit:
    return lambda value: date.fromisoformat(_string(value))


def _bytes(_: pa.DataType) -> Fit:
    return lambda value: base64.b64decode(_string(value), validate=True)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise Misfit
    return value


def _struct(type: pa.DataType) -> Fit:
    fits = {each.name: fit(each.type) for each in type}

    def as_struct(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Misfit
        return {name: _maybe(one, value.get(name)) for name, one in fits.items()}

    return as_struct


def _list(type: pa.DataType) -> Fit:
    one = fit(type.value_type)

    def as_list(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise Misfit
        return [_maybe(one, each) for each in value]

    return as_list


def _map(type: pa.DataType) -> Fit:
    if not pa.types.is_string(type.key_type):
        raise Undeclarable(f"{type} has keys that are no strings, which JSON has not")
    one = fit(type.item_type)

    def as_map(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise Misfit
        return [(name, _maybe(one, each)) for name, each in value.items()]

    return as_map


def _maybe(one: Fit, value: Any) -> Any:
    return None if value is None else one(value)


MAKERS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], Fit]], ...]] = (
    (pa.types.is_string, _text),
    (pa.types.is_signed_integer, _whole),
    (pa.types.is_floating, _number),
    (pa.types.is_boolean, _truth),
    (pa.types.is_timestamp, _time),
    (pa.types.is_date, _date),
    (pa.types.is_binary, _bytes),
    (pa.types.is_struct, _struct),
    (pa.types.is_map, _map),
    (pa.types.is_list, _list),
)


class PayloadColumns:
    """`schema` has the declared columns. Raises Undeclarable."""

    def __init__(self, schema: pa.Schema) -> None:
        for each in schema:
            _check_nullable(each)
        self._schema = schema
        self._fits = {each.name: fit(each.type) for each in schema if each.name != CORRUPT}
        self._tells = CORRUPT in schema.names

    def of(self, payloads: pa.Array) -> list[pa.Array]:
        """A column of payloads as the declared columns."""
        columns: dict[str, list[Any]] = {name: [] for name in self._schema.names}
        for payload in payloads.to_pylist():
            is_whole = self._read(payload, columns)
            if self._tells:
                columns[CORRUPT].append(None if is_whole else payload.decode(errors="replace"))
        return [pa.array(columns[each.name], each.type) for each in self._schema]

    def _read(self, payload: bytes, columns: Mapping[str, list[Any]]) -> bool:
        """One row more; whether all of it was as declared."""
        try:
            document = parse(payload)
        except NotJson:
            document = None
        is_whole = isinstance(document, dict)
        fields: Mapping[str, Any] = document if isinstance(document, dict) else {}
        for name, one in self._fits.items():
            found = fields.get(name)
            try:
                columns[name].append(None if found is None else one(found))
            except ValueError:  # Misfit, or no time, date or base64
                columns[name].append(None)
                is_whole = False
        return is_whole


def headers(properties: Iterable[str | None]) -> pa.Array:
    """User properties, in the order in which they came; null if there are none."""
    return pa.array([_headers(each) for each in properties], HEADERS_TYPE)


def _headers(properties: str | None) -> list[dict[str, Any]] | None:
    if not properties or '"user"' not in properties:
        return None
    pairs = json.loads(properties).get("user") or ()
    return [{"key": name, "value": value.encode()} for name, value in pairs] or None
