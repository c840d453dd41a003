"""A child process of an experiment, with a pipe to it.

Children are forked from one server process that has imported everything before (multiprocessing's forkserver), so that
starting sixteen of them takes a fraction of a second. Each holds one end of a pipe: when the other end closes,
for whatever reason, it ends by itself, so nothing is left behind even if this process is killed.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from typing import Any, Final

STOP_LIMIT: Final = 5.0

_forkserver = multiprocessing.get_context("forkserver")


class ProcessError(Exception):
    """A process did not do its part."""


class Process:
    """Does `work(*args, pipe)`, with the other end of `pipe`; stopped on leaving."""

    def __init__(self, name: str, work: Callable[..., None], *args: object) -> None:
        self.name = name
        self.pipe, theirs = _forkserver.Pipe()
        self._process: BaseProcess = _forkserver.Process(target=work, args=(*args, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.pipe.close()
        self._process.join(STOP_LIMIT)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()

    def receive(self, limit: float) -> Any:
        try:
            if self.pipe.poll(limit):
                return self.pipe.recv()
        except EOFError:
            raise ProcessError(f"the {self.name} ended without an answer") from None
        raise ProcessError(f"the {self.name} did not answer within {limit:g} seconds")


def preload(modules: Sequence[str]) -> None:
    """Let the server of processes import what they need, once."""
    _forkserver.set_forkserver_preload(list(modules))
