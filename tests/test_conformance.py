"""docs/conformance.md tells of every normative statement who shows it, and what it names exists."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest

from headwater_lab.clauses import shown_by
from tests.test_limits import names_of_tests

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "conformance.md"
IDS = (ROOT / "tests" / "broker" / "normative_ids.txt").read_text(encoding="utf-8").split()
CLAUSES: dict[str, dict[str, str]] = tomllib.loads(
    (ROOT / "tests" / "broker" / "clauses.toml").read_text(encoding="utf-8")
)
SHOWN = shown_by(ROOT)


def test_the_list_is_that_of_the_standard() -> None:
    assert len(IDS) == len(set(IDS)) == 246
    assert all(re.fullmatch(r"MQTT-\d+\.\d+\.\d+-\d+", each) for each in IDS)


def test_every_statement_has_words_and_binds_somebody() -> None:
    described = [id for whom in ("both", "server", "client") for id in CLAUSES[whom]]
    assert sorted(described) == sorted(IDS)


@pytest.mark.parametrize("id", IDS)
def test_every_statement_is_shown_or_has_a_reason(id: str) -> None:
    reason = CLAUSES["not_the_servers"].get(id)
    assert (id in SHOWN) != (reason is not None), "neither shown nor explained, or both"
    assert reason is None or id in CLAUSES["client"], "only what binds the client alone is not the server's"


def test_marks_name_statements_that_exist() -> None:
    assert SHOWN.keys() <= set(IDS)
    assert CLAUSES["not_the_servers"].keys() <= set(IDS)
    assert shown_by(ROOT, "clause311").keys() == CLAUSES["mqtt311"].keys()


def test_the_page_has_a_row_for_every_statement() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## MQTT 3.1.1")[0]
    assert re.findall(r"^\| (MQTT-\S+) \|", table, re.MULTILINE) == IDS


def test_the_page_names_tests_that_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE.read_text(encoding="utf-8"))
    known = {file: names_of_tests(ROOT / file) for file in {file for file, _ in named}}
    assert len(named) > len(IDS)
    assert [f"{file}::{name}" for file, name in named if name not in known[file]] == []


def test_the_page_is_up_to_date() -> None:
    page = runpy.run_path(str(ROOT / "scripts" / "conformance_page.py"))["page"]()
    assert PAGE.read_text(encoding="utf-8") == page, "run scripts/conformance_page.py"
