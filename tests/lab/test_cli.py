"""What the lab adds to the command `headwater`."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headwater
from headwater.cli.plugins import OF_THE_LAB
from headwater_lab.cli.bench import bench, benchmarks

ROOT = Path(__file__).parent.parent.parent
LAB = tomllib.loads((ROOT / "lab/pyproject.toml").read_text())["project"]


def headwater_command(*words: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "headwater", *words]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)


def test_the_product_knows_what_the_lab_adds() -> None:
    assert sorted(LAB["entry-points"]["headwater.commands"]) == sorted(OF_THE_LAB)


def test_it_is_for_the_product_beside_it() -> None:
    assert LAB["version"] == headwater.__version__
    assert f"headwater[admin,store]=={headwater.__version__}" in LAB["dependencies"]


@pytest.mark.parametrize("name", OF_THE_LAB)
def test_the_installed_command_has_it(name: str) -> None:
    done = headwater_command(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Usage: headwater {name}" in done.stdout


def test_benchmarks_are_listed_with_what_they_do() -> None:
    known = benchmarks()
    assert known["broker"] == "Compare a broker with Mosquitto"
    assert known["store-chaos"].startswith("Kill the delivery store")
    assert "pipeline-subscriber" not in known
    listed = CliRunner().invoke(bench, []).output
    assert [line.split()[0] for line in listed.splitlines()] == list(known)


def test_a_benchmark_gets_its_own_options() -> None:
    done = headwater_command("bench", "store-chaos", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--keep" in done.stdout


def test_one_that_does_not_exist_is_told_in_a_sentence() -> None:
    done = CliRunner().invoke(bench, ["nonsense"])
    assert done.exit_code == 1
    assert done.output.startswith("headwater bench: there is no benchmark nonsense; there are ")
