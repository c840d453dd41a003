"""Promises are shown: for each row of docs/guarantees.md there are tests below its table, and its settings exist."""

from __future__ import annotations

import re
from pathlib import Path

from headwater.node.config import Config
from headwater.node.settings import leaves
from tests.test_limits import cells, names_of_tests

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "guarantees.md"
COLUMNS = ["what", "promised", "the setting that trades it"]
LONGEST = 200
"""Characters of a row."""


def sections() -> list[str]:
    """Those that have a table."""
    return [each for each in PAGE.read_text(encoding="utf-8").split("\n## ") if "\n|" in each]


def rows(page: str) -> list[list[str]]:
    lines = [line for line in page.splitlines() if line.startswith("|")]
    found = [cells(line) for line in lines if not re.fullmatch(r"[|\s:-]+", line)]
    assert all(len(row) == len(COLUMNS) for row in found) and max(map(len, lines)) <= LONGEST
    return [row for row in found if row != COLUMNS]


def test_every_promise_has_tests_that_exist() -> None:
    assert sum(len(rows(section)) for section in sections()) > 20
    for section in sections():
        shown = section.split("\nShown by:\n")[1]
        tests: dict[str, str] = dict(re.findall(r"^- ([^:]+):\s((?:.|\n  )*)", shown, re.MULTILINE))
        assert list(tests) == [row[0] for row in rows(section)]
        for what, found in tests.items():
            named = re.findall(r"`(tests/[\w/]+\.py)::([\w:]+)`", found)
            assert named, what
            assert [f"{path}::{name}" for path, name in named if name not in names_in(ROOT / path)] == []


def names_in(path: Path) -> set[str]:
    """Those of a file, with state machines of Hypothesis, whose test is not written down."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    machines = re.findall(r"^(\w+) = \w+\.TestCase", text, re.MULTILINE)
    return names_of_tests(path) | {f"{name}::runTest" for name in machines} if text else set()


def test_every_setting_exists() -> None:
    known = {*Config.model_fields, *dict(leaves(Config))}
    every = [row for section in sections() for row in rows(section)]
    named = [name for row in every for name in re.findall(r"`([\w.]+)`", row[2])]
    assert [name for name in named if name not in known] == []
