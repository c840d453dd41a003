"""Which package may import which: the layers of ARCHITECTURE.md, checked against the imports that are really there.

Every import statement counts, wherever it stands: inside functions and under TYPE_CHECKING too.
"""

from __future__ import annotations

import ast
import runpy
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "headwater"

BELOW_NODE = [
    *("metric", "prometheus"),
    *("message", "suggestion", "disk", "wire", "session", "routing", "interest", "overlay", "peering", "sdn", "web"),
    *("objects", "store", "edge"),
]
BELOW_COMMANDS = [*BELOW_NODE, "node", "client", "pipeline", "fleet", "build_info"]

MAY_IMPORT: dict[str, list[str]] = {
    "message": [],
    "suggestion": [],
    "metric": [],
    "prometheus": ["metric"],
    "disk": [],
    "wire": [],
    "session": ["message", "wire"],
    "routing": ["message"],
    "interest": ["message", "routing.topics"],
    "overlay": [],
    "peering": ["message", "wire", "routing", "interest", "overlay"],
    "sdn": ["message"],
    "web": [],
    "objects": [],
    "store": ["message", "suggestion", "routing.topics", "routing.conditions", "disk", "web", "objects"],
    "edge": ["message", "disk", "routing", "store", "peering", "client"],
    "client": ["message", "wire", "session"],
    "node": [*BELOW_NODE, "client", "build_info"],
    "pipeline": [
        *("message", "routing.topics", "disk.crash_points", "store.columns", "store.arrow_schema", "store.reader"),
        *("store.asking", "store.direct", "store.directory", "store.vector"),
        *("client", "suggestion", "objects", "metric", "prometheus", "web"),
    ],
    "fleet": ["wire", "routing.topics", "store.entry", "client"],
    "dashboard": BELOW_COMMANDS,
    # The command line and what belongs to it.
    "__init__": [],
    "build_info": [],
    "live": ["node", "metric"],
    "cli": [*BELOW_COMMANDS, "dashboard", "live"],
    "__main__": ["cli"],
}
"""What a package (or a module beside the packages) may import, besides itself and the standard library."""

INSIDE_NODE: dict[str, str] = {
    "settings": """config settings web_settings condition_settings edge_settings toml_text hooks
        access.settings access.errors access.filters advice.settings bridge.settings forwarding.settings links.settings
        links.view delivery.settings delivery.history_settings delivery.rest_settings transports.settings mosquitto
        mosquitto.* proxy.settings""",
    "sockets and turns": """plane plane.* destinations destinations.destination transports transports.direct
        transports.sockets transports.tls transports.upgrade transports.websocket transports.proxy_protocol
        transports.contexts transports.listener""",
    "keeping": """persistence persistence.journal persistence.changes persistence.batch persistence.records
        persistence.backend persistence.memory persistence.notes persistence.rocks persistence.schema
        persistence.folder persistence.export persistence.exchange persistence.importing persistence.mosquitto_db
        persistence.repairing persistence.backup delivery delivery.coordinator delivery.figures
        delivery.properties delivery.storing delivery.known_properties""",
    "protocol": """protocol protocol.* access access.access access.limits access.logins access.passwords access.quotas
        access.rights_book access.rules access.publish_rights access.tokens access.verifier access.verifying
        destinations.conditional destinations.fanouts destinations.groups destinations.local destinations.members
        destinations.recipients
        advice advice.advising advice.document advice.figures advice.weights bridge bridge.inside bridge.path
        bridge.bridge bridge.bridges bridge.converting bridge.mapping bridge.orphans bridge.preparing bridge.pump
        bridge.using bridge.view forwarding forwarding.forwards forwarding.preparing forwarding.converting
        forwarding.using forwarding.view persistence.committing persistence.recovery persistence.persistence
        delivery.trimming delivery.history delivery.history_child delivery.handing_over delivery.opening
        persistence.storage transports.accepting transports.handshakes links links.* proxy proxy.*""",
    "operations": """ broker run operations operations.* delivery.gate
        delivery.caller delivery.credentials delivery.desk delivery.listening delivery.peers delivery.serving admin
        admin.* http http.* workers workers.*""",
}
"""The layers inside `node`, from below: a module imports none of a layer above its own."""

LARGEST_CYCLE = 3
"""Modules that may import each other, type-checking imports counted."""

WITHOUT_IO_OR_CLOCK = ["message", "wire", "session", "routing", "interest", "overlay", "peering"]
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


@cache
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


def layer_inside_node(module: str) -> int:
    """The number of its layer; -1: it has none."""
    for number, names in enumerate(INSIDE_NODE.values()):
        listed = names.split()
        if module in listed or f"{module.partition('.')[0]}.*" in listed:
            return number
    return -1


def inside_node(module: str) -> str | None:
    """The name below `headwater.node`; None: it is not there, or is the package itself."""
    return module.removeprefix("headwater.node.") if module.startswith("headwater.node.") else None


def test_every_module_of_the_node_has_a_layer() -> None:
    modules = [inside_node(module_name(path)) for path in sorted((PACKAGE / "node").rglob("*.py"))]
    assert [each for each in modules if each and layer_inside_node(each) < 0] == []


def test_modules_of_the_node_import_none_of_a_layer_above() -> None:
    wrong = []
    for found in all_imports():
        here, there = inside_node(module_name(found.path)), inside_node(found.target)
        if here and there and layer_inside_node(there) > layer_inside_node(here):
            wrong.append(str(found))
    assert wrong == []


def cycles() -> list[set[str]]:
    """Sets of modules that import each other, directly or not."""
    modules = {module_name(path) for path in PACKAGE.rglob("*.py")}
    targets: dict[str, set[str]] = {module: set() for module in modules}
    for found in all_imports():
        if found.target in modules:
            targets[module_name(found.path)].add(found.target)
    reached: dict[str, set[str]] = {}
    for module in modules:
        seen: set[str] = set()
        waiting = [module]
        while waiting:
            for target in targets[waiting.pop()] - seen:
                seen.add(target)
                waiting.append(target)
        reached[module] = seen
    tied = [module for module in modules if module in reached[module]]
    return [{other for other in tied if other in reached[module] and module in reached[other]} for module in tied]


def test_no_large_cycle_of_imports() -> None:
    large = {frozenset(cycle) for cycle in cycles() if len(cycle) > LARGEST_CYCLE}
    assert [sorted(cycle) for cycle in large] == []


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
