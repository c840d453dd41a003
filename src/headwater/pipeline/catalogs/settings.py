"""Catalogs of a lake: `[iceberg]` and `[[catalog]]` of the pipeline's settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from headwater.pipeline.tables import BY_NAME, table_of
from headwater.suggestion import unknown

KINDS: Final = ("glue", "hive", "unity")
NAME: Final = re.compile(r"[A-Za-z0-9_]+")
TABLES: Final = ("silver", "gold", "latest")


@dataclass(frozen=True)
class Iceberg:
    """`tables` are told to the Iceberg catalog that `catalog` describes, in PyIceberg's words (type, uri, warehouse …),
    as NAMESPACE.TABLE; every so many seconds at most."""

    catalog: Mapping[str, str] = field(default_factory=dict, repr=False)
    namespace: str = "headwater"
    tables: tuple[str, ...] = TABLES
    every: float = 30.0

    @classmethod
    def from_settings(cls, given: Mapping[str, Any]) -> Iceberg:
        """Raises ValueError, which says what is wrong."""
        values = _checked("iceberg", cls, given)
        catalog = values.get("catalog", {})
        if not isinstance(catalog, dict) or not all(isinstance(each, str) for each in catalog.values()):
            raise ValueError('iceberg.catalog has to be a table of texts, such as {type = "rest", uri = "http://…"}')
        if not catalog:
            raise ValueError('iceberg.catalog says which catalog, such as {type = "rest", uri = "http://…"}')
        return cls(**values)


@dataclass(frozen=True)
class Catalog:
    """One in which Delta tables are registered. `name` is where: of unity CATALOG.SCHEMA, else a database. `url` is the
    server's; of glue it may be left out, and credentials come from the environment. `token` is for unity."""

    kind: str
    name: str
    url: str | None = None
    token: str | None = field(default=None, repr=False)
    region: str | None = None
    tables: tuple[str, ...] = TABLES

    @classmethod
    def from_settings(cls, given: Mapping[str, Any]) -> Catalog:
        """Raises ValueError, which says what is wrong."""
        values = _checked("catalog", cls, given)
        if values.get("kind") not in KINDS:
            raise ValueError(
                f"catalog.kind is {values.get('kind')!r}; it has to be {', '.join(KINDS[:-1])} or {KINDS[-1]}"
            )
        parts = 2 if values["kind"] == "unity" else 1
        names = str(values.get("name", "")).split(".")
        if len(names) != parts or not all(NAME.fullmatch(each) for each in names):
            wanted = "CATALOG.SCHEMA" if parts == 2 else "a database"
            raise ValueError(f"catalog.name is {values.get('name')!r}; of {values['kind']} it has to be {wanted}")
        if values["kind"] != "glue" and not values.get("url"):
            raise ValueError(f"catalog.url says where {values['kind']} is")
        return cls(**values)


def catalogs_from(given: Sequence[Mapping[str, Any]]) -> tuple[Catalog, ...]:
    return tuple(Catalog.from_settings(each) for each in given)


def _checked(where: str, kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    known = [each.name for each in fields(kind)]
    for name in given:
        if name not in known:
            raise ValueError(unknown(f"setting of [{where}]", name, known))
    values = dict(given)
    if "tables" in values:
        values["tables"] = tuple(values["tables"])
        for name in values["tables"]:
            if table_of(name) is None:
                raise ValueError(unknown("table", name, list(BY_NAME)))
    if "every" in values and (isinstance(values["every"], bool) or not isinstance(values["every"], int | float)):
        raise ValueError(f"{where}.every is {values['every']!r}; it has to be seconds")
    return values
