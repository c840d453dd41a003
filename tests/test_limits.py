"""Promises are shown: each row of docs/limits.md names a test that exists, and each setting is documented."""

from __future__ import annotations

import ast
import inspect
import re
import runpy
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from headwater.interest.methods import make
from headwater.interest.sharing import Announcer
from headwater.node.config import Config
from headwater.node.settings import leaves, rows_of
from headwater.pipeline.jobs.settings import Settings as PipelineSettings
from headwater.pipeline.lake.asked import OPTIONS as READER_OPTIONS
from headwater.pipeline.lake.sink import OPTIONS as SINK_OPTIONS
from headwater.pipeline.lake.upkeep_settings import UpkeepSettings
from headwater.pipeline.monitoring.settings import Settings as Monitoring
from headwater.pipeline.mqtt.options import ReadOptions
from headwater.pipeline.source.settings import OPTIONS as SOURCE_OPTIONS

ROOT = Path(__file__).parent.parent
LIMITS = ROOT / "docs" / "limits.md"
CONFIGURATION = ROOT / "docs" / "configuration.md"
LEAVES = dict(leaves(Config))
COLUMNS = ["what", "default", "setting", "what happens", "test"]


class Row(NamedTuple):
    what: str
    default: str
    setting: str
    what_happens: str
    test: str


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def rows() -> list[Row]:
    """The rows of all tables on the page; a table with other columns, or a ragged row, is an error."""
    found: list[Row] = []
    in_table = False
    for line in LIMITS.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            in_table = False
        elif not in_table:
            assert [cell.lower() for cell in cells(line)] == COLUMNS
            in_table = True
        elif not re.fullmatch(r"[|\s:-]+", line):
            assert len(cells(line)) == len(COLUMNS), f"a row of docs/limits.md has too few or too many cells: {line}"
            found.append(Row(*cells(line)))
    return found


@cache
def names_of_tests(path: Path) -> set[str]:
    """Names as pytest writes them: `test_x`, `TestClass::test_x`."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            members = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            names |= {f"{node.name}::{each.name}" for each in members if each.name.startswith("test")}
    return names


def test_there_are_limits() -> None:
    assert len(rows()) > 10


def test_every_limit_names_a_test_that_exists() -> None:
    wrong = []
    for row in rows():
        named = re.findall(r"`(tests/[\w/]+\.py)?::([\w:]+)`", row.test)
        if not named:
            wrong.append(f"{row.what}: names no test")
        file = ""
        for other_file, name in named:
            file = other_file or file
            if not (ROOT / file).is_file() or name not in names_of_tests(ROOT / file):
                wrong.append(f"{row.what}: {file}::{name} does not exist")
    assert wrong == []


def test_every_setting_that_a_limit_names_exists() -> None:
    named = [(row.what, name) for row in rows() for name in re.findall(r"`([\w.]+)`", row.setting)]
    of_the_pipeline = {each.name for each in fields(PipelineSettings)}
    of_the_pipeline |= {f"upkeep.{each.name}" for each in fields(UpkeepSettings)}
    of_the_pipeline |= {f"monitoring.{each.name}" for each in fields(Monitoring)}
    options = {
        *SOURCE_OPTIONS,
        *SINK_OPTIONS,
        *READER_OPTIONS,
        *(each.metadata["name"] for each in fields(ReadOptions)),
    }
    of_interest = {*inspect.signature(make).parameters, *inspect.signature(Announcer).parameters}
    known = {*Config.model_fields, *LEAVES, *of_the_pipeline, *options, *of_interest}
    assert [f"{what}: {name}" for what, name in named if name not in known] == []


@pytest.mark.parametrize("name", {**Config.model_fields, **LEAVES})
def test_every_setting_is_described(name: str) -> None:
    field = LEAVES.get(name) or Config.model_fields[name]
    assert field.description
    assert f"`{name}`" in CONFIGURATION.read_text(encoding="utf-8")
    row = rows_of(field.annotation)
    for each in {} if row is None else row.model_fields:
        assert f"`{name}.{each}`" in CONFIGURATION.read_text(encoding="utf-8")
        assert row is not None and row.model_fields[each].description


def test_the_page_of_settings_is_up_to_date() -> None:
    page = runpy.run_path(str(ROOT / "scripts" / "configuration_page.py"))["page"]()
    assert CONFIGURATION.read_text(encoding="utf-8") == page, "run scripts/configuration_page.py"
