"""Writes examples/lakehouse.ipynb from the cells of examples/lakehouse.py: python scripts/notebook.py"""

from __future__ import annotations

import argparse
import ast
import json
import re
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parent.parent / "examples"
SCRIPT, NOTEBOOK = EXAMPLES / "lakehouse.py", EXAMPLES / "lakehouse.ipynb"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def notebook(source: str) -> str:
    """`# %% Title` begins a cell: its title is a cell of text, as is the docstring of the script."""
    before, *parts = re.split(r"^# %%(.*)\n", source, flags=re.MULTILINE)
    about = ast.literal_eval(before.strip()).strip()
    words, commands, settings = about.split("\n\n")
    cells = [_cell("markdown", f"# A lakehouse\n{words}\n```sh\n{commands}\n```\n{settings}")]
    for title, code in zip(parts[::2], parts[1::2], strict=True):
        cells += [_cell("markdown", title.strip()), _cell("code", code.strip())]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    made = {"cells": cells, "metadata": {"kernelspec": KERNEL}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def _cell(kind: str, text: str) -> dict[str, Any]:
    code = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, "source": text.splitlines(keepends=True), **code}


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    NOTEBOOK.write_text(notebook(SCRIPT.read_text(encoding="utf-8")), encoding="utf-8")
