"""Settings as TOML text: for the documentation, for a file to begin with, and to show what is in force."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from headwater.node.settings import is_secret, rows_of, table_of

BARE = re.compile(r"[A-Za-z0-9_-]+")
WIDTH = 110


def toml_value(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, Mapping):
        stated = [(key, each) for key, each in value.items() if each is not None]  # TOML has no word for nothing
        return "{" + ", ".join(f"{toml_key(key)} = {toml_value(each)}" for key, each in stated) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(each) for each in value) + "]"
    if isinstance(value, Path):
        value = str(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_setting(name: str, value: Any) -> str:
    """The value of a setting, rights of files (`unix_mode`) as people write them."""
    return f"0o{value:o}" if name.endswith("_mode") and isinstance(value, int) else toml_value(value)


def toml_key(key: str) -> str:
    return key if BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def default_of(field: FieldInfo) -> Any:
    return field.get_default(call_default_factory=True)


def template(model: type[BaseModel]) -> str:
    """A file of all settings with their defaults, each explained and commented out."""
    return "\n".join(_template(model, "", False))


def _template(model: type[BaseModel], prefix: str, in_rows: bool) -> list[str]:
    lines: list[str] = []
    tables: list[str] = []
    for name, field in model.model_fields.items():
        table = table_of(field.annotation)
        row = rows_of(field.annotation)
        inner = table or row
        if inner is None:
            lines += [*_comment(field.description or ""), _commented(name, field), ""]
            continue
        # An empty table means its defaults; an empty row of a list would be one more of what it lists.
        heading = f"[{prefix}{name}]" if row is None else f"[[{prefix}{name}]]"
        commented = in_rows or row is not None or default_of(field) is None
        tables += [*_comment(field.description or ""), "# " * commented + heading, ""]
        tables += _template(inner, f"{prefix}{name}.", commented)
    return lines + tables


def _comment(text: str) -> list[str]:
    return [f"## {line}" for line in textwrap.wrap(text, WIDTH)]


def _commented(name: str, field: FieldInfo) -> str:
    default = default_of(field)
    if field.is_required() or default is None or (isinstance(default, SecretStr) and not default):
        return f"# {name} ="
    return f"# {name} = {toml_setting(name, default)}"


def effective(settings: BaseModel, origins: Mapping[str, str]) -> str:
    """All settings as they are, each with where it came from. Secrets are not shown."""
    return "\n".join(_effective(settings, origins, "")) + "\n"


def _effective(settings: BaseModel, origins: Mapping[str, str], prefix: str, row_from: str = "") -> list[str]:
    """`row_from`: where the row of a list came from that this is; the list is one setting, of one origin."""
    lines: list[str] = []
    tables: list[str] = []
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        origin = origins.get(prefix + name, "default")
        if row_from and name in settings.model_fields_set:
            origin = row_from
        inner = f"{prefix}{name}"
        if isinstance(value, BaseModel):
            tables += ["", f"[{inner}]", *_effective(value, origins, f"{inner}.", row_from)]
        elif isinstance(value, list) and value and rows_of(field.annotation):
            for row in value:
                tables += ["", f"[[{inner}]]", *_effective(row, origins, f"{inner}.", origin)]
        elif value is None:
            lines.append(f"# {name} is unset")
        elif is_secret(field):
            lines.append(f"# {name} is {'set, and not shown' if value else 'unset'}  # {origin}")
        else:
            lines.append(f"{name} = {toml_setting(name, value)}  # {origin}")
    return lines + tables
