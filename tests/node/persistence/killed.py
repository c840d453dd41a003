"""A copy of a folder that is in use, as it would be found if its process had been killed now."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path


def copy_as_killed(folder: Path, to: Path) -> Path:
    """RocksDB deletes what it has done with in the background: such a file may be gone before it is copied."""

    def copy(source: str, target: str) -> str:
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(source, target)
        return target

    shutil.copytree(folder, to, copy_function=copy)
    return to
