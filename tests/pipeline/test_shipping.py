"""The package as a zip."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from headwater.pipeline.shipping import files, make_zip

IMPORTS = """
import headwater.pipeline.lake.sink, headwater.pipeline.source, headwater.routing.shared, sys
print(headwater.__file__, any(name.endswith("__mypyc") for name in sys.modules), sep="|")
"""


def test_the_same_sources_make_the_same_zip(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    assert make_zip(tmp_path / "first").read_bytes() == make_zip(tmp_path / "second").read_bytes()


def test_executors_can_do_their_work_with_it(tmp_path: Path) -> None:
    """From the zip alone, in front of what is installed: pure Python, compiled modules stay at home."""
    archive = make_zip(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(archive)!r})\n{IMPORTS}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == f"{archive}/headwater/__init__.py|False", done.stderr


def test_it_has_every_python_file(tmp_path: Path) -> None:
    names = zipfile.ZipFile(make_zip(tmp_path)).namelist()
    ours = {each.removeprefix("headwater/") for each in names if each.startswith("headwater/")}
    assert ours == {each.relative_to(files()).as_posix() for each in files().rglob("*.py")}
    assert "mypy_extensions.py" in names
