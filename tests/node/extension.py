"""Extensions in C, built for a test, so that they are tested wherever there is a C compiler."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import shlex
import subprocess
import sysconfig
from pathlib import Path
from types import ModuleType


def built(source: Path, folder: Path) -> ModuleType:
    """Of the sources that are tested; a warning is an error."""
    name = source.stem
    library = folder / f"{name}{importlib.machinery.EXTENSION_SUFFIXES[0]}"
    words = [*shlex.split(sysconfig.get_config_var("CC") or "cc"), "-O2", "-Wall", "-Wextra", "-Werror"]
    words += ["-shared", "-fPIC", f"-I{sysconfig.get_path('include')}", str(source), "-o", str(library), "-ldl"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    spec = importlib.util.spec_from_file_location(name, library)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
