"""What `headwater pipeline forget` asks for before it does anything."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from headwater.cli.app import app
from headwater.cli.pipeline_forget import _stores, _wanted
from headwater.pipeline.jobs.settings import make_settings
from tests.pipeline.source.conftest import one, servers
from tests.store.rest.served import EVERYTHING, Served

__all__ = ["one", "servers"]


@pytest.mark.parametrize("given", [[], ["--topic", "a", "--where", "true"], ["--topic", "a/#/b"]])
def test_it_has_to_be_said_what(given: list[str], tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["pipeline", "forget", "--lake", str(tmp_path), *given])
    assert found.exit_code == 2
    assert "--topic" in found.output


def test_names_of_publishers_are_quoted() -> None:
    assert _wanted(None, ["a", "o'hara\\"], None).where == r"publisher in ('a', 'o\'hara\\')"
    assert _wanted(["a/#"], None, None).filters == ("a/#",)


def test_all_stores_have_to_answer(one: Served, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"token": EVERYTHING, "wait_for_store": 0.0}
    assert set(_stores("forget", make_settings({**given, "urls": [one.url]}))) == {"s1"}
    with pytest.raises((SystemExit, typer.Exit)):
        _stores("forget", make_settings({**given, "urls": [one.url, "http://127.0.0.1:9"]}))
    assert "Nothing was done" in capsys.readouterr().err
