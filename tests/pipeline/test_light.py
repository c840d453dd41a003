"""What executors import is light: pyarrow and the standard library, of us only what they need."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from headwater.pipeline.shipping import make_zip

HEAVY = {"fastapi", "rocksdict", "typer", "pydantic", "uvicorn", "httpx", "deltalake", "pandas", "starlette", "duckdb"}
NOT_OURS = ("headwater.node", "headwater.edge", "headwater.store.rest", "headwater.store.disk_store", "headwater_lab")
LOOK = """
import importlib, json, sys
sys.path[:0] = json.loads(sys.argv[1])
before = set(sys.modules)
importlib.import_module(sys.argv[2])
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def imported(module: str, *paths: Path) -> list[str]:
    """What comes with a module, in a Python that knows of nothing but these paths; neither its environment nor `.pth`
    files have a say."""
    words = [sys.executable, "-I", "-S", "-c", LOOK, json.dumps([str(each) for each in paths]), module]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The zip, and a folder with pyarrow, PySpark and what these need."""
    folder = tmp_path_factory.mktemp("light")
    installed = folder / "installed"
    installed.mkdir()
    for name in ("pyarrow", "pyspark", "py4j", "numpy"):
        module = __import__(name)
        home = Path(module.__file__ or "").parent
        (installed / name).symlink_to(home)
        libraries = home.parent / f"{name}.libs"
        if libraries.exists():
            (installed / libraries.name).symlink_to(libraries)
    return make_zip(folder), installed


@pytest.mark.parametrize(
    "module",
    ["headwater.pipeline.source.reading", "headwater.pipeline.lake.files", "headwater.pipeline.source.datasource"],
)
def test_executors_import_little(module: str, paths: tuple[Path, Path]) -> None:
    found = imported(module, *paths)
    assert module in found
    assert not {name.partition(".")[0] for name in found} & HEAVY
    assert [name for name in found if name.startswith(NOT_OURS)] == []


def test_files_are_written_without_spark(paths: tuple[Path, Path]) -> None:
    assert "pyspark" not in imported("headwater.pipeline.lake.files", *paths)


def test_nothing_compiled_travels(paths: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(paths[0]) as archive:
        assert {Path(name).suffix for name in archive.namelist()} == {".py"}
