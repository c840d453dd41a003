"""Which Java a process has started: the command line and the demo leave none behind."""

from __future__ import annotations

from pathlib import Path


def java_of(process: int) -> list[int]:
    """Those that descend from a process."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            except (FileNotFoundError, ProcessLookupError):  # it has just ended
                continue
            parents[int(folder.name)] = int(rest.split()[1])
            names[int(folder.name)] = name
    return [each for each, name in names.items() if name == "java" and process in _line(each, parents)]


def _line(process: int, parents: dict[int, int]) -> list[int]:
    """Its ancestors."""
    found = []
    while process in parents:
        process = parents[process]
        found.append(process)
    return found
