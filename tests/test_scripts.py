"""The scripts explain themselves, and install what is asked of them needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted(path.name for path in (ROOT / "scripts").iterdir() if os.access(path, os.X_OK) and path.is_file())
PAGES = sorted(path.name for path in (ROOT / "scripts").glob("*.py"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy in which there is no environment, and no Python to make one with."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    shutil.copytree(ROOT / "lab", tmp_path / "lab")
    (tmp_path / "src").mkdir()
    for name in ("pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def script(project: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = ["bash", str(project / "scripts" / name), *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=environment())


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHON": "/bin/false", "CC": "cc"}


def installed(project: Path, what: str) -> None:
    """As if an environment with these extras, and maybe the lab, were there; what is run in it says its arguments."""
    binaries = project / ".venv/bin"
    binaries.mkdir(parents=True)
    for name in ("python", "headwater"):
        (binaries / name).write_text('#!/bin/sh\necho "headwater $*"\n')
        (binaries / name).chmod(0o755)
    command = f'. "{project}/scripts/environment.sh"; sources_hash {what}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, env=environment())
    (project / ".venv/stamp").write_text(done.stdout)


@pytest.mark.parametrize("name", [each for each in SCRIPTS if each not in ("run", *PAGES)])
def test_help_needs_no_environment(project: Path, name: str) -> None:
    for word in ("--help", "-h"):
        done = script(project, name, word)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"usage: ./scripts/{name}")
        assert len(done.stdout.splitlines()) > 3
    assert not list(project.glob(".venv*"))


def test_help_of_run_has_the_commands_too(project: Path) -> None:
    installed(project, "[admin,store]")
    done = script(project, "run", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ./scripts/run [arguments of headwater]\n")
    assert done.stdout.endswith("The commands:\n\nheadwater --help\n")


def test_the_benchmarks_are_listed_with_what_they_do(project: Path) -> None:
    done = script(project, "bench", "--help")
    assert "  broker             Compare a broker with Mosquitto\n" in done.stdout
    assert "  store-chaos        Kill the delivery store" in done.stdout
    assert "pipeline-subscriber" not in done.stdout
    assert script(project, "bench").returncode == 2
    assert "./scripts/bench --help lists them" in script(project, "bench", "nix").stderr


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["broker"], "[admin,store]"),
        (["--no-spark"], "[admin,store]"),
        (["reproduce", "balance"], "[admin,store,plot] lab"),
        (["bench", "broker", "--quick"], "[admin,store,plot] lab"),
    ],
)
def test_what_a_command_needs_is_installed(project: Path, arguments: list[str], what: str) -> None:
    installed(project, what)
    done = script(project, "run", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f"{' '.join(arguments)}\n")


@pytest.mark.parametrize("name", PAGES)
def test_pages_explain_themselves_and_write_nothing_then(project: Path, name: str) -> None:
    words = [sys.executable, str(project / "scripts" / name), "--help"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT / "lab/src", ROOT)))}
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=env)
    assert (done.returncode, done.stdout.startswith("usage: ")) == (0, True), done.stderr
    assert not (project / "docs").exists()
