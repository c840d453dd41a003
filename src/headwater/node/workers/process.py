"""One worker as the supervisor has it: a process that is started, started again when it ends, asked, and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from headwater.node.config import Config
from headwater.node.http.link import Link
from headwater.node.workers.parts import name_of

log = logging.getLogger("headwater.workers")

PROGRAM: Final = "from headwater.node.workers.worker import main; main()"
LARGEST: Final = 256 << 20
"""Bytes of an answer of a worker, which is trusted."""
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 10.0
STEADY: Final = 30.0
"""Seconds after which a worker that dies is started again as if it were the first time."""
FAREWELL: Final = 15.0
"""Seconds for a worker to end when it is told to; then it is killed."""


class WorkerProcess:
    """`count`: of workers. `packed` makes text of settings that the process can read; `changed` is called when it comes
    up and when it has gone."""

    def __init__(
        self,
        number: int,
        count: int,
        config: Config,
        unix: Mapping[str, int],
        packed: Callable[[Config], str],
        changed: Callable[[WorkerProcess], None],
    ) -> None:
        self.number = number
        self.config = config
        self.restarts = 0
        self.process = 0
        """Its id for the system; 0: there is none."""
        self.link: Link | None = None
        """Where it is asked, while it takes clients."""
        self.begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done when it takes clients for the first time ("") or has ended before that: why."""
        self._count = count
        self._unix = dict(unix)
        self._packed = packed
        self._changed = changed
        self._connection: Link | None = None
        self._popen: subprocess.Popen[bytes] | None = None
        self._failure = ""
        self._stopped = asyncio.Event()
        self._supervising: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._supervising = asyncio.get_running_loop().create_task(self._supervise())

    def tell(self, name: str, /, **arguments: Any) -> None:
        if self.link is not None:
            self.link.tell(name, **arguments)

    def use(self, config: Config) -> None:
        """From now on, and for processes to come."""
        self.config = config
        self.tell("settings", settings=self._packed(config))

    async def stop(self) -> None:
        self._stopped.set()
        if self._connection is not None:
            self._connection.tell("stop")
        if self._supervising is not None:
            try:
                await asyncio.wait_for(asyncio.shield(self._supervising), FAREWELL)
            except TimeoutError:
                log.warning("%s does not end, and is killed", name_of(self.number))
                if self._popen is not None:
                    self._popen.kill()
                await self._supervising

    async def _supervise(self) -> None:
        pause = FIRST_PAUSE
        while not self._stopped.is_set():
            began = time.monotonic()
            why = await self._live()
            if not self.begun.done():
                self.begun.set_result(self._failure or f"{name_of(self.number)} ended: {why}")
                return
            if self._stopped.is_set():
                return
            pause = FIRST_PAUSE if time.monotonic() - began > STEADY else pause
            self.restarts += 1
            why = self._failure or why
            log.error("%s ended (%s); it is started again in %g s", name_of(self.number), why, pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _live(self) -> str:
        """A process from its beginning to its end; returns why it has ended."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        self._failure = ""
        lost: asyncio.Future[str] = loop.create_future()
        with theirs:
            try:
                self._popen = popen = _spawn(theirs.fileno(), list(self._unix.values()))
            except OSError as error:
                ours.close()
                return f"it could not be started: {error}"
        self.process = popen.pid
        link = self._connection = Link({}, self._told, lost.set_result, LARGEST)
        await loop.create_unix_connection(lambda: link, sock=ours)
        settings = self._packed(self.config)
        link.tell("begin", number=self.number, count=self._count, settings=settings, unix=self._unix)
        if self._stopped.is_set():
            link.tell("stop")
        why = await lost
        was_up, self.link, self._connection = self.link is not None, None, None
        ended = await asyncio.to_thread(_reaped, popen)
        self.process, self._popen = 0, None
        if was_up:
            self._changed(self)
        return ended or why

    def _told(self, name: str, said: dict[str, Any]) -> None:
        if name == "ready":
            self.link = self._connection
            if not self.begun.done():
                self.begun.set_result("")
            self._changed(self)
        elif name == "failed":
            self._failure = str(said["text"])


def _spawn(link: int, sockets: list[int]) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(each for each in sys.path if each)
    return subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM, str(link)],
        stdin=subprocess.DEVNULL,
        pass_fds=[link, *sockets],
        env={**os.environ, "PYTHONPATH": path},
    )


def _reaped(process: subprocess.Popen[bytes]) -> str:
    """Wait for its end, which is near: its link has gone."""
    try:
        code = process.wait(FAREWELL)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
