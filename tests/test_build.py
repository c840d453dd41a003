"""What was installed is what was meant to be tested, and a build without a compiler still gives a working package."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import headwater
from headwater import build_info
from tests.broker.conftest import OwnBroker

ROOT = Path(__file__).parent.parent
PACKAGE = Path(headwater.__file__).parent
EXPECTED = os.environ.get("HEADWATER_EXPECT", "")
WORDS = {"pure": "interpreted", "compiled": "compiled"}


@pytest.mark.skipif(not EXPECTED, reason="HEADWATER_EXPECT is not set; scripts/test sets it to pure or compiled")
def test_the_modules_are_as_expected() -> None:
    states = build_info.module_states()
    assert "headwater.message" in states
    assert build_info.describe(states.values()) == WORDS[EXPECTED], states


@pytest.mark.skipif(not EXPECTED, reason="HEADWATER_EXPECT is not set; scripts/test sets it to pure or compiled")
def test_processes_started_by_tests_get_the_same_modules() -> None:
    said = subprocess.run([sys.executable, "-m", "headwater", "version"], capture_output=True, text=True, check=True)
    assert f"({WORDS[EXPECTED]}, Python" in said.stdout


@pytest.mark.skipif(not EXPECTED, reason="HEADWATER_EXPECT is not set; scripts/test sets it to pure or compiled")
def test_the_broker_of_the_wire_scenarios_has_the_same_modules(tmp_path: Path) -> None:
    broker = OwnBroker(tmp_path)
    broker.stop()
    assert f"({WORDS[EXPECTED]}, Python" in broker.log.read_text()


@pytest.mark.skipif(not EXPECTED, reason="HEADWATER_EXPECT is not set; scripts/test sets it to pure or compiled")
@pytest.mark.parametrize("name", ["headwater.node.plane.events", "headwater.node.transports.openssl"])
def test_what_is_written_in_c_is_there_where_the_rest_is_compiled(name: str) -> None:
    assert (importlib.util.find_spec(name) is not None) == (EXPECTED == "compiled")


def test_no_name_of_a_compiled_function_is_for_errors_of_two_types() -> None:
    """mypyc gives a name the type that it has first: `except A as error` and then `except B as error` raises TypeError
    where B was meant to be caught."""
    found: list[str] = []
    for path in build_info.compiled_sources(ROOT / "src" / "headwater"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                types: dict[str, set[str]] = {}
                for each in ast.walk(function):
                    if isinstance(each, ast.ExceptHandler) and each.name and each.type is not None:
                        types.setdefault(each.name, set()).add(ast.unparse(each.type))
                found += [f"{path.name}: {function.name}: {name}" for name, kinds in types.items() if len(kinds) > 1]
    assert found == []


def test_the_sources_hold_no_binaries() -> None:
    suffixes = tuple(importlib.machinery.EXTENSION_SUFFIXES)
    assert [path for path in (ROOT / "src").rglob("*") if path.name.endswith(suffixes)] == []


def test_every_compiled_module_has_its_source_beside_it() -> None:
    for name, compiled in build_info.module_states().items():
        source = PACKAGE.parent.joinpath(*name.split(".")).with_suffix(".py")
        assert source.is_file()
        assert compiled == any(source.with_suffix(s).is_file() for s in importlib.machinery.EXTENSION_SUFFIXES)


def test_a_package_means_all_its_modules_but_not_its_init(tmp_path: Path) -> None:
    names = ["wire/__init__.py", "wire/b.py", "wire/deep/a.py", "message.py", "node/config.py", "node/plane/loop.py"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = [str(path.relative_to(tmp_path)) for path in build_info.compiled_sources(tmp_path)]
    assert found == ["message.py", "wire/b.py", "wire/deep/a.py", "node/plane/loop.py"]


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ([], "interpreted"),
        ([False, False], "interpreted"),
        ([True, True], "compiled"),
        ([True, False, False], "mixed: 1 of 3 modules compiled"),
    ],
)
def test_a_mixed_state_says_so(states: list[bool], words: str) -> None:
    assert build_info.describe(states) == words


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "said"),
    [({"CC": "/bin/false"}, "the C compiler failed"), ({"HEADWATER_PURE": "1"}, "HEADWATER_PURE is set")],
    ids=["broken compiler", "asked for"],
)
def test_without_a_compiler_the_wheel_holds_plain_python(variables: dict[str, str], said: str, tmp_path: Path) -> None:
    for name in ("src", "pyproject.toml", "setup.py", "LICENSE", "README.md"):
        source, copy = ROOT / name, tmp_path / name
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        elif source.exists():
            shutil.copy(source, copy)
    with (tmp_path / "src/headwater/build_info.py").open("a") as listed:
        listed.write('COMPILED = ("message",)  # one module fails as all do, and sooner\n')
    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "dist", tmp_path],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert f"headwater build: {said}" in built.stdout + built.stderr
    [wheel] = (tmp_path / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith("headwater/wire/packets.py") for name in names)
    assert [name for name in names if name.endswith(".so")] == []
