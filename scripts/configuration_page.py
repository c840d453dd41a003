"""Writes docs/configuration.md from the model of the settings: PYTHONPATH=src python scripts/configuration_page.py"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from headwater.node.config import Config

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"

HEAD = """\
# Configuration
`headwater broker --config file.toml` reads settings from a TOML file; flags of the command line win over the file. All
settings stand at the top of the file, as in

```toml
port = 1884
max_connections = 5000
queue_full = "drop_oldest"
```

A setting that does not exist or does not fit is refused with an explanation. What happens at each limit is in
[limits.md](limits.md). This page is made from the source by `scripts/configuration_page.py`.

| setting | default | values | meaning |
|---|---|---|---|
"""


def values(annotation: Any, constraints: list[Any]) -> str:
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{_toml(value)}`" for value in get_args(annotation))
    name = str(getattr(annotation, "__name__", annotation)) if get_origin(annotation) is None else str(annotation)
    bounds = []
    for each in constraints:
        for attribute, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<")):
            if (bound := getattr(each, attribute, None)) is not None:
                bounds.append(f"{sign} {bound}")
    boolean = "true, false"
    words = {"str": "text", "int": "whole number", "float": "number", "bool": boolean, "bool | None": boolean}
    words["dict[str, int]"] = "table of whole numbers"
    return ", ".join([words.get(name, name), *bounds])


def _toml(value: Any) -> str:
    return json.dumps(value)


def page() -> str:
    rows = []
    for name, field in Config.model_fields.items():
        default = "unset" if field.default is None else f"`{_toml(field.default)}`"
        meaning = (field.description or "").replace("|", "\\|")
        rows.append(f"| `{name}` | {default} | {values(field.annotation, field.metadata)} | {meaning} |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
