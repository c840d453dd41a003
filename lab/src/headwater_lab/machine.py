"""What a result depends on besides the code: machine, versions, date."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
from pathlib import Path

from headwater import __version__, build_info


def describe(command: str, mosquitto: bool = True) -> dict[str, str]:
    """Machine and versions; `command` is what was run, such as the broker's command line. Mosquitto's version is for
    comparisons with it."""
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": _first_match(Path("/proc/cpuinfo"), r"model name\s*:\s*(.+)") or platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": _memory(),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "headwater": f"{__version__} ({build_info.describe(build_info.module_states().values())})",
        "commit": _commit(),
        **({"mosquitto": _mosquitto_version()} if mosquitto else {}),
        "command": command,
    }


def _first_match(file: Path, pattern: str) -> str | None:
    try:
        found = re.search(pattern, file.read_text())
    except OSError:
        return None
    return found.group(1).strip() if found else None


def _memory() -> str:
    kilobytes = _first_match(Path("/proc/meminfo"), r"MemTotal:\s*(\d+)")
    return f"{int(kilobytes) / 2**20:.1f} GiB" if kilobytes else "unknown"


def _output(*words: str) -> str:
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def _commit() -> str:
    folder = str(Path(__file__).parent)
    commit = _output("git", "-C", folder, "rev-parse", "--short=12", "HEAD")
    if not re.fullmatch("[0-9a-f]{12}", commit):
        return "unknown"
    changed = _output("git", "-C", folder, "status", "--porcelain", "--untracked-files=no")
    return f"{commit} with local changes" if changed else commit


def _mosquitto_version() -> str:
    for program in ("mosquitto", "/usr/sbin/mosquitto"):
        found = re.search(r"mosquitto version (\S+)", _output(program, "-h"))
        if found:
            return found.group(1)
    return "unknown"
