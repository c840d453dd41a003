"""A package for machines that do not have it, ours or one that builds on it: a zip of its Python files.

What executors do needs pure Python here and pyarrow there; the compiled modules stay at home, as their files would fit
only machines like ours.
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from typing import Final

OURS: Final = "headwater"
BESIDE: Final = ("mypy_extensions",)
"""Modules of one file that ours import."""
NO_TIME: Final = (2020, 1, 1, 0, 0, 0)
"""Of every file in it: the same sources make the same zip."""


def make_zip(folder: Path, package: str = OURS) -> Path:
    """Written into the folder, as headwater.zip by default. The package can be imported here."""
    path = folder / f"{package}.zip"
    sources = files(package)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in sorted(sources.rglob("*.py")):
            _add(archive, f"{package}/{source.relative_to(sources).as_posix()}", source)
        for name in BESIDE if package == OURS else ():
            found = importlib.util.find_spec(name)
            if found is not None and found.origin is not None:
                _add(archive, f"{name}.py", Path(found.origin))
    return path


def files(package: str = OURS) -> Path:
    """Its folder."""
    found = importlib.util.find_spec(package)
    assert found is not None and found.origin is not None
    return Path(found.origin).parent


def _add(archive: zipfile.ZipFile, name: str, source: Path) -> None:
    archive.writestr(zipfile.ZipInfo(name, NO_TIME), source.read_bytes(), zipfile.ZIP_DEFLATED)
