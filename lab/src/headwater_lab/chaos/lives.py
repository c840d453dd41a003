"""The broker as a process that is killed: its lives on one data folder.

A life begins with `fork` of this process, in which the broker's modules are loaded already, so that thousands of them
are a matter of minutes; or with a command, such as that of another broker. It ends with SIGKILL, by us or by itself
at a crash point (disk/crash_points.py).
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from headwater.disk import crash_points
from headwater.fleet.process import free_port

LISTEN_LIMIT: Final = 30.0
ATTEMPTS: Final = 5
PORT_TAKEN: Final = b"in use"
KEPT: Final = 3
LARGEST_DESCRIPTOR: Final = 4096
PR_SET_PDEATHSIG: Final = 1

Settings = dict[str, Any]

Serve = Callable[[int, Path, Settings], int]
"""Runs a broker on a port and a data folder, with some settings, until it is told to stop; returns its exit code."""


class BrokerFailed(Exception):
    """A broker ended though nobody killed it, or did not start."""


class Process:
    """A child, by its id. `code` is how it ended: negative for a signal, None while it lives."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.code: int | None = None

    def poll(self) -> int | None:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
            self.code = os.waitstatus_to_exitcode(status)

    def terminate(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)


class Lives:
    """Starts brokers on one data folder. `command` has `{port}` and `{data}` in it, perhaps `{rest_port}`; without one,
    `serve` is forked."""

    def __init__(self, folder: Path, serve: Serve | None, command: str = "") -> None:
        self.settings: Settings = {}
        self.data = folder / "data"
        self.data.mkdir(parents=True, exist_ok=True)
        self.log = folder / "broker.log"
        self.serve = serve
        self.command = command
        self.process: Process | None = None
        self.port = 0
        self.rest_port = 0
        """Where REST is to listen, if it does."""
        self.seconds_to_listen = 0.0

    def start(self, crash_at: str = "") -> bool:
        """Returns when it listens; False if it died at the crash point before that. Another process may take a port
        before the broker has it, which takes a second to load from the command line: then another port is tried."""
        for _ in range(ATTEMPTS - 1):
            before = self.log.stat().st_size if self.log.exists() else 0
            try:
                return self._start(crash_at)
            except BrokerFailed:
                with self.log.open("rb") as log:
                    log.seek(before)
                    if PORT_TAKEN not in log.read():
                        raise
        return self._start(crash_at)

    def _start(self, crash_at: str) -> bool:
        self.port = free_port()
        self.rest_port = free_port()
        begun = time.monotonic()
        self.process = self._fork(crash_at) if self.serve is not None else self._spawn(crash_at)
        while time.monotonic() < begun + LISTEN_LIMIT:
            if self.died():
                return False
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                self.seconds_to_listen = time.monotonic() - begun
                return True
            time.sleep(0.002)
        self.kill()
        raise BrokerFailed(f"the broker does not listen; {self._last_words()}")

    def died(self) -> bool:
        """Whether it was killed; raises if it ended in any other way."""
        assert self.process is not None
        code = self.process.poll()
        if code is None:
            return False
        if code != -signal.SIGKILL:
            raise BrokerFailed(f"the broker ended with {code}; {self._last_words()}")
        return True

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def stop(self) -> None:
        """As an operator would; `stopped` says when it has."""
        assert self.process is not None
        self.process.terminate()

    def stopped(self) -> bool:
        """Raises if it did not end well."""
        assert self.process is not None
        code = self.process.poll()
        if code not in (None, 0):
            raise BrokerFailed(f"the broker was to stop, and ended with {code}; {self._last_words()}")
        return code == 0

    def _last_words(self) -> str:
        return f"its log ends with: {self.log.read_text(errors='replace')[-2000:]}"

    def _spawn(self, crash_at: str) -> Process:
        words = shlex.split(
            self.command.format(port=self.port, data=shlex.quote(str(self.data)), rest_port=self.rest_port)
        )
        with self.log.open("ab") as log:
            environment = {**os.environ, crash_points.VARIABLE: crash_at}
            started = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        process = Process(started.pid)
        started.returncode = 0  # it is waited for here, and not there
        return process

    def _fork(self, crash_at: str) -> Process:
        assert self.serve is not None
        settings = {**self.settings, "rest.port": self.rest_port}
        return fork(partial(self.serve, self.port, self.data, settings), self.log, crash_at)


def fork(run: Callable[[], int], log: Path, crash_at: str = "", keep: int | None = None) -> Process:
    """A process that does this, and returns its exit code. What it prints goes to the log. Of the files that are open
    here it has only `keep`, under the number KEPT."""
    pid = os.fork()
    if pid == 0:
        _be(run, log, crash_at, keep)
    return Process(pid)


def _be(run: Callable[[], int], log: Path, crash_at: str, keep: int | None) -> NoReturn:
    code = 70
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        if keep is not None:
            os.dup2(keep, KEPT)
        os.closerange(KEPT + (keep is not None), LARGEST_DESCRIPTOR)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # do not outlive the driver
        os.environ[crash_points.VARIABLE] = crash_at
        importlib.reload(crash_points)
        code = run()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)
