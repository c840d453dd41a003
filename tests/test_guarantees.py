"""Promises are shown: each row of docs/guarantees.md names tests that exist, and settings that exist."""

from __future__ import annotations

import re
from pathlib import Path

from headwater.node.config import Config
from headwater.node.settings import leaves
from tests.test_limits import cells, names_of_tests

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "guarantees.md"
COLUMNS = ["what", "promised", "the setting that trades it", "test"]


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    found = [cells(line) for line in lines if not re.fullmatch(r"[|\s:-]+", line)]
    assert all(len(row) == len(COLUMNS) for row in found)
    return [row for row in found if row != COLUMNS]


def test_every_promise_names_tests_that_exist() -> None:
    wrong = []
    assert len(rows()) > 20
    for what, _, _, tests in rows():
        named = re.findall(r"`(tests/[\w/]+\.py)::([\w:]+)`", tests)
        assert named, what
        wrong += [f"{path}::{name}" for path, name in named if name not in names_in(ROOT / path)]
    assert wrong == []


def names_in(path: Path) -> set[str]:
    """Those of a file, with state machines of Hypothesis, whose test is not written down."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    machines = re.findall(r"^(\w+) = \w+\.TestCase", text, re.MULTILINE)
    return names_of_tests(path) | {f"{name}::runTest" for name in machines} if text else set()


def test_every_setting_exists() -> None:
    known = {*Config.model_fields, *dict(leaves(Config))}
    named = [name for row in rows() for name in re.findall(r"`([\w.]+)`", row[2])]
    assert [name for name in named if name not in known] == []
