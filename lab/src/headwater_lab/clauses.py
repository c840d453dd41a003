"""Which scenario shows which clause of the standard: the marks in tests/broker, read from the source of the tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SCENARIOS: Final = Path("tests/broker")


def shown_by(project: Path, mark: str = "clause") -> dict[str, list[str]]:
    """Clause id -> tests as `tests/broker/test_x.py::test_y`, in order. `mark` is "clause", or "clause311"."""
    found: dict[str, list[str]] = {}
    for file in sorted((project / SCENARIOS).glob("test_*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for clause in _marked(node, mark):
                    found.setdefault(clause, []).append(f"{SCENARIOS}/{file.name}::{node.name}")
    return found


def _marked(test: ast.FunctionDef, mark: str) -> Iterator[str]:
    for decorator in test.decorator_list:
        if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name) and decorator.func.id == mark:
            for argument in decorator.args:
                if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                    raise ValueError(f"{test.name}: the ids of @{mark} have to be spelled out")
                yield argument.value
