"""Commands of other packages: found by their entry points, and only when they are asked for."""

from __future__ import annotations

import sys
import types
from importlib.metadata import EntryPoint

import pytest
import typer
from typer.testing import CliRunner

from headwater.cli import plugins
from headwater.cli.app import app

other = typer.Typer()


@other.command()
def greet(name: str) -> None:
    """Say hello."""
    print(f"hello {name}")


@pytest.fixture(autouse=True)
def another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("another_package")
    module.greet = other  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "another_package", module)
    entries = [EntryPoint(name, "another_package:greet", plugins.GROUP) for name in ("greet", "version")]
    monkeypatch.setattr(plugins, "installed", lambda: entries)


def test_a_command_of_another_package_runs() -> None:
    done = CliRunner().invoke(app, ["greet", "you"])
    assert (done.exit_code, done.output) == (0, "hello you\n")


def test_help_lists_it_behind_our_own() -> None:
    said = CliRunner().invoke(app, ["--help"]).output
    assert said.index("  pub ") < said.index("  greet ")
    assert said.count("  version ") == 1


def test_our_own_cannot_be_replaced() -> None:
    assert CliRunner().invoke(app, ["version"]).output.startswith("headwater ")


def test_an_unknown_command_is_told_as_such() -> None:
    done = CliRunner().invoke(app, ["nonsense"])
    assert (done.exit_code, "No such command" in done.output) == (2, True)


@pytest.mark.parametrize("name", plugins.OF_THE_LAB)
def test_without_the_lab_a_sentence_says_how_to_install_it(name: str) -> None:
    done = CliRunner().invoke(app, [name, "anything"])
    assert done.exit_code == 1
    assert done.output.startswith(f"headwater {name}: it is in the package headwater-lab: pip install headwater-lab ")
    assert done.output.count("\n") == 1


def test_our_own_commands_do_not_look_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker would start later."""
    looks: list[bool] = []
    monkeypatch.setattr(plugins, "installed", lambda: looks.append(True))
    assert CliRunner().invoke(app, ["broker", "--help"]).exit_code == 0
    assert CliRunner().invoke(app, ["version"]).exit_code == 0
    assert looks == []
