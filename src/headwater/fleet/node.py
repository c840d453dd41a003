"""A node (broker, store and REST) in a process of its own, for experiments and demonstrations."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headwater.fleet.process import RunningBroker, free_port

KEEP_ALL: Final = ("--set", "store.keep_for=0", "--set", "store.keep_bytes=0")
"""For a folder that was filled with messages of another time: a node would remove what is older than a week."""


def node_command(port: int, rest_port: int, folder: Path, log_level: str) -> list[str]:
    words = [sys.executable, "-m", "headwater", "node", "--port", str(port), "--rest-port", str(rest_port)]
    return [*words, "--data-dir", str(folder), "--log-level", log_level]


class RunningNode(RunningBroker):
    """Started when both MQTT and REST are served, on loopback. Messages are in `folder`/data, its log beside it.

    `own_group`: Ctrl-C on a terminal does not reach it. `options`: more of `headwater node`."""

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        rest_port: int | None = None,
        own_group: bool = False,
        log_level: str = "info",
        options: Sequence[str] = (),
    ) -> None:
        self.rest_port = rest_port or free_port()
        self.data = folder / "data"
        self.data.mkdir(parents=True, exist_ok=True)
        port = port or free_port()
        words = node_command(port, self.rest_port, self.data, log_level)
        super().__init__([*words, *options], port, folder / "node.log", own_group=own_group)
        try:
            self.wait_for_listener(self.rest_port)
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.rest_port}"

    def __enter__(self) -> RunningNode:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
