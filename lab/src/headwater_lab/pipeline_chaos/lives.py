"""A driver's lives, and all processes that belong to one: its Python, Java, and the Pythons that Java has started."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from headwater_lab.pipeline_chaos.orders import Orders
from headwater_lab.pipeline_chaos.storage import Storage

PATIENCE: Final = 600.0
"""Seconds in which a driver that lives has something to tell."""


class Stuck(Exception):
    """A driver tells nothing any more."""


def descendants(pid: int) -> list[int]:
    """Of a process, without itself; those that have gone meanwhile are left out."""
    found = [pid]
    for each in found:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += map(int, children.read_text().split())
    return found[1:]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def kill(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Life:
    """A driver that was started."""

    def __init__(
        self,
        folder: Path,
        storage: Storage,
        urls: Sequence[str],
        master: str,
        sink: str,
        orders: Orders,
        examined: Sequence[str] | None = None,
        iceberg: bool = False,
    ) -> None:
        """`examined`: stores that the tables are compared with, if they are more than those that are given. `iceberg`:
        tables are told to a catalog, too."""
        self._reader, writer = os.pipe()
        given: dict[str, Any] = {"lake": storage.url, "lake_options": dict(storage.options), "urls": list(urls)}
        given |= {"master": master, "sink": sink, "tell": writer}
        given |= {"examined": list(urls if examined is None else examined), "iceberg": str(folder) if iceberg else ""}
        words = [sys.executable, "-m", "headwater_lab.pipeline_chaos.driver", json.dumps(given)]
        with (folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[writer],
                env={**storage.environment, **orders.environment},
            )
        os.close(writer)
        self.pid = self._process.pid
        self.java: int | None = None
        self.rounds = 0
        self.rows = 0
        """Of bronze, after the last round."""
        self.failures: list[str] = []
        self.found: dict[str, Any] | None = None
        self.began = time.monotonic()
        self._heard = self.began
        self._rest = b""

    def is_over(self) -> bool:
        return self._process.poll() is not None

    @property
    def code(self) -> int | None:
        return self._process.poll()

    def listen(self, seconds: float) -> None:
        """To what it tells, for so long at most. Raises Stuck."""
        ready, _, _ = select.select([self._reader], [], [], seconds)
        if ready and (told := os.read(self._reader, 1 << 20)):
            self._heard = time.monotonic()
            *lines, self._rest = (self._rest + told).split(b"\n")
            for line in lines:
                self._hear(json.loads(line))
        elif ready:
            time.sleep(min(seconds, 0.02))  # it has closed its end: it is ending
        if time.monotonic() - self._heard > PATIENCE and not self.is_over():
            raise Stuck(f"the driver has told nothing for {PATIENCE:g} s")

    def last_words(self) -> dict[str, Any] | None:
        """Of one that has ended: what it found, if it came to that."""
        self.listen(0.0)
        return self.found

    def _hear(self, told: dict[str, Any]) -> None:
        self.java = told.get("java", self.java)
        if "round" in told:
            self.rounds += 1
            self.rows = told["round"]["rows"]
        self.found = told.get("found", self.found)
        if "failed" in told:
            self.failures.append(told["failed"])

    def drain(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(b"drain\n")
            self._process.stdin.flush()

    def processes(self) -> list[int]:
        """All that Java has started."""
        return [] if self.java is None else descendants(self.java)

    def end(self) -> list[int]:
        """Kill it, not what it has started; those that are left."""
        left = [] if self.java is None else [self.java, *descendants(self.java)]
        kill(self.pid)
        self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        os.close(self._reader)
        return left
