"""A node on one core, and what has to be seen of it from outside."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from headwater.fleet.node import KEEP_ALL, RunningNode
from headwater.fleet.process import BrokerError, free_port

HOST: Final = "127.0.0.1"
PATIENCE: Final = 120.0
"""Seconds in which something has to be so."""


def cores() -> tuple[int, int]:
    """The core of what is measured, and that of who measures; the same one if there is no other."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[-1]


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    """This thread, and the processes and threads that it starts meanwhile, run there."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Node(RunningNode):
    """Its data is in `folder`/data."""

    def __init__(self, folder: Path) -> None:
        self._admin_port = free_port()
        admin = {"enabled": "true", "port": self._admin_port, "open_metrics": "true", "token": secrets.token_hex(16)}
        options = [word for name, value in admin.items() for word in ("--set", f"admin.{name}={value}")]
        super().__init__(folder, log_level="error", options=[*options, *KEEP_ALL])
        try:
            self.wait_for_listener(self._admin_port)
            self.commits()  # when the process that answers is there: its start is not what is measured
        except BaseException:
            self.stop()
            raise

    def commits(self) -> float:
        """How many times it has synced."""
        connection = http.client.HTTPConnection(HOST, self._admin_port, timeout=PATIENCE)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        found = re.search(r"^headwater_commits_total (\S+)$", text, re.MULTILINE)
        if found is None:
            raise BrokerError("the node does not say how many commits it has made")
        return float(found[1])

    def wait(self, is_so: Callable[[], bool], what: str, pause: float) -> None:
        """BrokerError: it is not so in time, or the node has ended."""
        deadline = time.monotonic() + PATIENCE
        while not is_so():
            self.check_alive()
            if time.monotonic() > deadline:
                raise BrokerError(f"{what} did not happen within {PATIENCE:.0f} s")
            time.sleep(pause)


@contextlib.contextmanager
def running_node(folder: Path, core: int) -> Iterator[Node]:
    """On a core of its own; stopped at the end."""
    with on_core(core):
        node = Node(folder)
    with node:
        yield node
