"""The walk of one message in ARCHITECTURE.md: every stop is there, in its file."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "headwater"
STOP = re.compile(r"^ +(\d+) +[│├]─? +(\S+\.py) +([\w.]+) ", re.MULTILINE)


def stops() -> list[tuple[int, str, str]]:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    walk = text.partition("## The walk of one message")[2].partition("\n## ")[0]
    return [(int(number), file, name) for number, file, name in STOP.findall(walk)]


def names_in(path: Path) -> set[str]:
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return found


def test_the_walk_says_how_long_it_is() -> None:
    found = stops()
    assert [number for number, _, _ in found] == list(range(1, len(found) + 1))
    said = f"{len(found)} stops in {len({file for _, file, _ in found})} files"
    assert said in (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("number", "file", "name"), stops())
def test_each_stop_is_there(number: int, file: str, name: str) -> None:
    assert name in names_in(PACKAGE / file)
