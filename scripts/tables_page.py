"""Writes docs/tables.md from the declarations of the tables: PYTHONPATH=src python scripts/tables_page.py"""

from __future__ import annotations

import argparse
from pathlib import Path

from headwater.pipeline.tables import TABLES, Table

PAGE = Path(__file__).parent.parent / "docs" / "tables.md"

HEAD = """\
# Tables
The tables that [the pipeline](pipeline.md) makes, each a Delta table in `tables/` of the lake. A message is named by
(`store`, `position`), for ever; times are in UTC and have microseconds.

This page is made from the source by `scripts/tables_page.py`; `headwater pipeline tables` prints the same.
"""


def page() -> str:
    return HEAD + "".join(map(section, TABLES))


def section(table: Table) -> str:
    laid_out = "" if table.partition is None else f" Files are laid out by `{table.partition}`."
    grows = " Payloads may bring further columns." if table.evolves else ""
    keys = ", ".join(f"`{name}`" for name in table.keys)
    lines = [f"\n## {table.name}", f"{table.doc}{grows}", "", f"A row is named by {keys}. {final(table)}{laid_out}", ""]
    lines += ["| column | type | |", "|---|---|---|"]
    for column in table.columns:
        kind = column.type + ("" if column.nullable else ", never null")
        lines.append(f"| `{column.name}` | {kind} | {column.doc} |".replace("|  |", "| |"))
    return "\n".join(lines) + "\n"


def final(table: Table) -> str:
    words = table.watermark
    return f"{words[:1].upper()}{words[1:]}."


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(page(), encoding="utf-8")
