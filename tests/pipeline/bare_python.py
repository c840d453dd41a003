"""A Python that has everything but our package, as machines of a cluster have it."""

from __future__ import annotations

import site
import sys
import sysconfig
import venv
from pathlib import Path


def make_bare_python(folder: Path) -> Path:
    """An environment in the folder with links to all that is installed here, and neither `headwater` nor the `.pth`
    files by which it could come back. Returns its interpreter."""
    venv.create(folder, symlinks=True, with_pip=False)
    [packages] = folder.glob("lib/python*/site-packages")
    for here in _folders_of_packages():
        for each in here.iterdir():
            link = packages / each.name
            if not _is_ours(each) and each.suffix != ".pth" and not link.exists():
                link.symlink_to(each)
    return folder / "bin" / "python"


def _folders_of_packages() -> list[Path]:
    paths = sysconfig.get_paths()
    named = [paths["purelib"], paths["platlib"], *site.getsitepackages(), site.getusersitepackages()]
    return [Path(each) for each in dict.fromkeys(named) if each in sys.path]


def _is_ours(path: Path) -> bool:
    return "headwater" in path.name
