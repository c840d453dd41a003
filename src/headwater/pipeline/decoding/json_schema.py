"""The fields that a JSON Schema declares, as `fields` of a rule has them.

Theory. A schema that others keep says more than columns can hold. Taken from it is what a column can be: properties of
one scalar type, in objects up to DEEPEST in each other, which are columns by their path; `required` of a property and
of all objects around it is `not null`. The rest (lists, unions of types, conditions, ranges) is left away: `data` has
the whole document, and expectations say more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from headwater.pipeline.decoding.fields import DEEPEST_FIELD, NOT_NULL

TYPES: Final = {"number": "double", "integer": "bigint", "boolean": "boolean", "string": "string"}
LONGEST: Final = 4 << 20
"""Bytes of a schema."""
MOST_REFERENCES: Final = 100
"""That lead to each other."""


class SchemaError(ValueError):
    """A schema that cannot be used; says why."""


def declared_fields(file: Path) -> dict[str, str]:
    """Path → type, such as {"meta.site": "string not null"}. Raises SchemaError."""
    try:
        text = file.read_bytes()
    except OSError as error:
        raise SchemaError(f"schema {file}: {error.strerror}") from None
    if len(text) > LONGEST:
        raise SchemaError(f"schema {file}: it has {len(text)} bytes, and {LONGEST} are allowed")
    try:
        schema = json.loads(text)
        found = dict(_fields(schema, schema, (), True)) if isinstance(schema, Mapping) else {}
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"schema {file}: {error}") from None
    if not found:
        raise SchemaError(f"schema {file}: it declares no property of one scalar type")
    return found


def _fields(root: Any, schema: Any, above: tuple[str, ...], is_required: bool) -> Iterator[tuple[str, str]]:
    schema = _resolved(root, schema)
    properties = schema.get("properties")
    required = schema.get("required")
    needed = set(required) if isinstance(required, list) else set()
    for name, said in properties.items() if isinstance(properties, Mapping) else ():
        if "." in name or not name or not isinstance(said, Mapping):
            continue
        each, path = _resolved(root, said), (*above, name)
        kinds = each.get("type")
        types = {kinds} if isinstance(kinds, str) else set(kinds) if isinstance(kinds, list) else set()
        has_to_be = is_required and name in needed and "null" not in types
        types.discard("null")
        if types == {"object"} or ("properties" in each and not types):
            if len(path) < DEEPEST_FIELD:
                yield from _fields(root, each, path, has_to_be)
        elif len(types) == 1 and (type := TYPES.get(types.pop())) is not None:
            is_time = type == "string" and each.get("format") == "date-time"
            yield ".".join(path), ("timestamp" if is_time else type) + (NOT_NULL if has_to_be else "")


def _resolved(root: Any, schema: Any) -> Mapping[str, Any]:
    """What a `$ref` within the file leads to."""
    for _ in range(MOST_REFERENCES):
        reference = schema.get("$ref")
        if reference is None:
            found: Mapping[str, Any] = schema
            return found
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise SchemaError(f"$ref {reference!r} leads out of the file")
        schema = root
        for name in reference[1:].split("/")[1:]:
            plain = name.replace("~1", "/").replace("~0", "~")
            if not isinstance(schema, Mapping) or plain not in schema:
                raise SchemaError(f"$ref {reference!r} leads nowhere")
            schema = schema[plain]
        if not isinstance(schema, Mapping):
            raise SchemaError(f"$ref {reference!r} leads to no schema")
    raise SchemaError("$ref leads to itself")


def with_schema(rule: Any, folder: Path) -> Any:
    """A rule as settings say it, with the fields of its `schema`, a file in this folder unless its path is absolute.
    What commits note of the rule are the fields: another content of the file is another rule. Raises SchemaError."""
    if not isinstance(rule, Mapping) or "schema" not in rule:
        return rule
    if not isinstance(rule["schema"], str) or not rule["schema"]:
        raise SchemaError(f"schema is the path of a file, not {rule['schema']!r}")
    if "fields" in rule or rule.get("mode", "declared") != "declared":
        raise SchemaError("a rule with a schema is declared by it: leave `fields` and `mode` away")
    rest = {name: value for name, value in rule.items() if name != "schema"}
    return {**rest, "fields": declared_fields(folder / rule["schema"])}
