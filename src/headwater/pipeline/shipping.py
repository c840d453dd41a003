"""The package for machines that do not have it: a zip of its Python files.

What executors do needs pure Python here and pyarrow there; the compiled modules stay at home, as their files would fit
only machines like ours.
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parent.parent
BESIDE: Final = ("mypy_extensions",)
"""Modules of one file that ours import."""
NO_TIME: Final = (2020, 1, 1, 0, 0, 0)
"""Of every file in it: the same sources make the same zip."""


def make_zip(folder: Path) -> Path:
    """Written as headwater.zip in the folder."""
    path = folder / "headwater.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in sorted(PACKAGE.rglob("*.py")):
            _add(archive, f"headwater/{source.relative_to(PACKAGE).as_posix()}", source)
        for name in BESIDE:
            found = importlib.util.find_spec(name)
            if found is not None and found.origin is not None:
                _add(archive, f"{name}.py", Path(found.origin))
    return path


def _add(archive: zipfile.ZipFile, name: str, source: Path) -> None:
    archive.writestr(zipfile.ZipInfo(name, NO_TIME), source.read_bytes(), zipfile.ZIP_DEFLATED)
