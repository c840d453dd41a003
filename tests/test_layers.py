"""Which package may import which: the layers of ARCHITECTURE.md, checked against the imports that are really there.

Every import statement counts, wherever it stands: inside functions and under TYPE_CHECKING too.
"""

from __future__ import annotations

import ast
import runpy
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "headwater"

BELOW_NODE = [
    *("message", "suggestion", "disk", "wire", "session", "routing", "interest", "overlay", "peering", "sdn", "web"),
    *("store", "edge"),
]
BELOW_COMMANDS = [*BELOW_NODE, "node", "client", "pipeline", "fleet", "build_info"]

MAY_IMPORT: dict[str, list[str]] = {
    "message": [],
    "suggestion": [],
    "disk": [],
    "wire": [],
    "session": ["message", "wire"],
    "routing": ["message"],
    "interest": ["message", "routing.topics"],
    "overlay": [],
    "peering": ["message", "wire", "routing", "interest", "overlay"],
    "sdn": ["message"],
    "web": [],
    "store": ["message", "suggestion", "routing.topics", "disk", "web"],
    "edge": ["message", "disk", "routing", "store", "peering", "client"],
    "client": ["message", "wire", "session"],
    "node": [*BELOW_NODE, "client", "build_info"],
    "pipeline": [
        *("message", "routing.topics", "disk.crash_points", "store.columns", "store.arrow_schema", "store.reader"),
        *("client", "suggestion"),
    ],
    "fleet": ["wire", "routing.topics", "store.entry", "client"],
    "dashboard": BELOW_COMMANDS,
    # The command line and what belongs to it.
    "__init__": [],
    "build_info": [],
    "live": [],
    "cli": [*BELOW_COMMANDS, "dashboard", "live"],
    "__main__": ["cli"],
}
"""What a package (or a module beside the packages) may import, besides itself and the standard library."""

WITHOUT_IO_OR_CLOCK = ["message", "wire", "session", "routing", "interest", "overlay"]
IO_AND_CLOCKS = {
    *("asyncio", "concurrent", "datetime", "io", "logging", "multiprocessing", "os", "pathlib", "queue", "sched"),
    *("select", "selectors", "shutil", "signal", "socket", "socketserver", "ssl", "subprocess", "tempfile"),
    *("threading", "time"),
}


class Import(NamedTuple):
    path: Path
    line: int
    target: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(PACKAGE.parent)}:{self.line} imports {self.target}"


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def is_ours(name: str) -> bool:
    """Whether the name is of a module or package of ours, not of something in one."""
    path = PACKAGE.parent.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def imports_of(path: Path) -> Iterator[Import]:
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(path, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                parts = path.relative_to(PACKAGE.parent).parts
                source = ".".join([*parts[: len(parts) - node.level], *source.split(".")]).strip(".")
            for alias in node.names:
                name = f"{source}.{alias.name}"
                yield Import(path, node.lineno, name if source.startswith("headwater") and is_ours(name) else source)


def all_imports() -> list[Import]:
    return [found for path in sorted(PACKAGE.rglob("*.py")) for found in imports_of(path)]


def allowed(found: Import) -> bool:
    target = found.target.removeprefix("headwater").removeprefix(".")
    if not target:  # `from headwater import __version__`
        return True
    layer = layer_of(found.path)
    permitted = [layer, *MAY_IMPORT[layer]]
    return any(target == name or target.startswith(f"{name}.") for name in permitted)


def test_every_package_is_in_the_table() -> None:
    assert {layer_of(path) for path in PACKAGE.rglob("*.py")} - MAY_IMPORT.keys() == set()


def test_packages_import_only_what_is_below_them() -> None:
    found = [each for each in all_imports() if each.target.split(".")[0] == "headwater"]
    assert found
    assert [str(each) for each in found if not allowed(each)] == []


def test_the_product_does_not_know_the_lab() -> None:
    """It is another distribution, which may import all of this one; the command finds it by its entry points."""
    assert [str(each) for each in all_imports() if each.target.split(".")[0] == "headwater_lab"] == []


def test_modules_of_the_store_do_not_import_each_other_in_circles() -> None:
    imported: dict[str, set[str]] = {}
    for each in all_imports():
        imported.setdefault(module_name(each.path), set()).add(each.target)
    modules = [name for name in imported if name.startswith("headwater.store.")]
    assert modules
    assert [name for name in modules if name in reached(name, imported)] == []


def reached(name: str, imported: dict[str, set[str]]) -> set[str]:
    """All that a module imports, and what that imports, and so on."""
    found: set[str] = set()
    new = {name}
    while new:
        new = set().union(*(imported.get(each, set()) for each in new)) - found
        found |= new
    return found


def test_the_protocol_has_no_io_and_no_clock() -> None:
    found = [each for each in all_imports() if layer_of(each.path) in WITHOUT_IO_OR_CLOCK]
    assert found
    assert [str(each) for each in found if each.target.split(".")[0] in IO_AND_CLOCKS] == []


def test_compiled_modules_need_only_what_is_there_while_building() -> None:
    """mypyc reads what they import."""
    sources = runpy.run_path(str(PACKAGE / "build_info.py"))["compiled_sources"](PACKAGE)
    project = tomllib.loads((PACKAGE.parent.parent / "pyproject.toml").read_text())
    required = [each.split(">=")[0] for each in project["build-system"]["requires"]]
    known = {*sys.stdlib_module_names, "headwater", "mypy_extensions", *required}
    found = [each for path in sources for each in imports_of(path)]
    assert found
    assert [str(each) for each in found if each.target.split(".")[0] not in known] == []


@pytest.mark.parametrize(
    ("module", "line", "fine"),
    [
        ("wire/decode.py", "from headwater.message import Message", False),
        ("wire/decode.py", "from .packets import Packet", True),
        ("wire/decode.py", "from ..session import connection", False),
        ("wire/decode.py", "from .. import session", False),
        ("wire/decode.py", "import headwater.session.connection", False),
        ("store/reader.py", "from headwater.routing import topics", True),
        ("store/reader.py", "from headwater.routing.topics import matches", True),
        ("store/reader.py", "from headwater.routing.topicsy import matches", False),
        ("client/client.py", "def f():\n    from headwater.node import broker", False),
        ("session/connection.py", "if TYPE_CHECKING:\n    import headwater.routing.router", False),
        ("cli.py", "from headwater import __version__", True),
    ],
)
def test_the_reader_of_imports(module: str, line: str, fine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda self: line)
    monkeypatch.setattr(Path, "is_dir", lambda self: self.name in ("session", "node"))
    monkeypatch.setattr(Path, "is_file", lambda self: self.stem == "topics")
    [found] = imports_of(PACKAGE / module)
    assert allowed(found) is fine
