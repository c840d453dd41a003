"""Who writes to a lake: told to whoever comes second, and to people who ask."""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

STARTED: Final = 19
"""The field of /proc/PID/stat, behind the name, that says when a process started."""


@dataclass(frozen=True)
class Holder:
    """`what` is the command, `since` is in seconds since 1970, by the clock of `host`. `machine` says which processes
    its ids are among, `started` tells a process from a later one of the same id."""

    what: str
    host: str
    process: int
    since: float
    machine: str = ""
    started: str = ""

    @classmethod
    def me(cls, what: str) -> Holder:
        process = os.getpid()
        return cls(what, socket.gethostname(), process, time.time(), machine(), started(process) or "")

    @classmethod
    def read(cls, data: bytes) -> Holder | None:
        """None: nobody is named there, or not so that we could read it."""
        try:
            said = json.loads(data)
            if isinstance(said, int):  # of versions that wrote no more than the process
                return cls("pipeline", socket.gethostname(), said, 0.0, machine(), started(said) or "")
            return cls(**said)
        except (ValueError, TypeError):
            return None

    def written(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @property
    def is_here(self) -> bool:
        """Whether it is, or was, among the processes that this one sees."""
        return bool(self.machine) and self.machine == machine()

    @property
    def is_gone(self) -> bool:
        """Known for certain: it was here, and there is no such process any more."""
        return self.is_here and (started(self.process) or "gone") != self.started

    def __str__(self) -> str:
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.since)) if self.since else "some time ago"
        return f"{self.what} on {self.host} (process {self.process}) since {when}"


def machine() -> str:
    """This boot of this machine, and which of its processes one sees: containers have their own ids."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    return ""


def started(process: int) -> str | None:
    """When it did, in ticks; None: there is no such process, or one that has ended and was not waited for."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[STARTED]
