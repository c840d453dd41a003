"""Writes docs/configuration.md from the model of the settings: PYTHONPATH=src python scripts/configuration_page.py"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from headwater.node.config import Config
from headwater.node.operations.reloading import is_reloadable
from headwater.node.settings import is_secret, rows_of, table_of
from headwater.node.toml_text import default_of, toml_setting, toml_value

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"

HEAD = """\
# Configuration
Settings come from three places, later ones winning: a TOML file (`headwater broker --config file.toml`), the
environment and flags of the command line.

```toml
port = 1884
queue_full = "drop_oldest"

[admin]
enabled = true
token_file = "/etc/headwater/token"
```

The same by environment: `HEADWATER_PORT=1884 HEADWATER_QUEUE_FULL=drop_oldest HEADWATER_ADMIN__ENABLED=true` (two
underscores for a table's dot; lists and tables are written as in TOML). By flags: `--port 1884 --set
queue_full=drop_oldest --set admin.enabled=true`. A setting that does not exist or does not fit is refused with an
explanation.

`headwater config init` writes a file of all settings with their defaults, `config check FILE` says what is wrong with
one, `config show` prints what is in force and where each value comes from, and `config from-mosquitto mosquitto.conf`
makes a file of Mosquitto's settings ([operations.md](operations.md)).

On SIGHUP the file is read again; settings with ⟳ are taken over by the running broker, a change of any other is named
in the log and waits for a restart. What happens at each limit is in [limits.md](limits.md). This page is made from the
source by `scripts/configuration_page.py`.

"""
TABLE = """\
| setting | default | values | meaning |
|---|---|---|---|
"""


def values(annotation: Any, constraints: list[Any]) -> str:
    inside = [each for each in get_args(annotation) if each is not type(None)]
    if len(inside) == 1 and get_origin(inside[0]) is Literal:  # or unset
        annotation = inside[0]
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{toml_value(value)}`" for value in get_args(annotation))
    name = str(getattr(annotation, "__name__", annotation)) if get_origin(annotation) is None else str(annotation)
    bounds = []
    for each in constraints:
        for attribute, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<")):
            if (bound := getattr(each, attribute, None)) is not None:
                bounds.append(f"{sign} {bound}")
    boolean = "true, false"
    words = {"str": "text", "int": "whole number", "float": "number", "bool": boolean, "bool | None": boolean}
    words |= {"dict[str, int]": "table of whole numbers", "dict[str, str]": "table of texts", "SecretStr": "text"}
    words["dict[str, pydantic.types.SecretStr]"] = "table of texts"
    words |= {"list[str]": "list of texts", "str | None": "text", "int | None": "whole number"}
    return ", ".join([words.get(name, name), *bounds])


def row(name: str, field: FieldInfo) -> str:
    default = None if field.is_required() else default_of(field)
    shown = "unset" if default is None or (is_secret(field) and not default) else f"`{toml_setting(name, default)}`"
    kind = "tables" if rows_of(field.annotation) else values(field.annotation, field.metadata).replace("|", "\\|")
    meaning = (field.description or "").replace("|", "\\|")
    reload = " ⟳" if is_reloadable(name) else ""
    return f"| `{name}` | {shown} | {kind} | {meaning}{reload} |\n"


def page() -> str:
    rows, sections = tables(Config, "")
    return HEAD + TABLE + rows + sections


def tables(model: type[BaseModel], prefix: str) -> tuple[str, str]:
    """The rows of a table's plain settings, and a section for each table in it."""
    rows = sections = ""
    for key, field in model.model_fields.items():
        name = prefix + key
        several = rows_of(field.annotation)
        inner = table_of(field.annotation) or several
        if inner is None or several is not None:
            rows += row(name, field)
        if inner is not None:
            heading = f"`[{name}]`" if several is None else f"`[[{name}]]`"
            inside, below = tables(inner, f"{name}.")
            sections += f"\n## {heading}\n`{name}`: {field.description}\n\n{TABLE}{inside}{below}"
    return rows, sections


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(page(), encoding="utf-8")
