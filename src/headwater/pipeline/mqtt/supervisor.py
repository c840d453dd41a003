"""The driver's side of a spooler: find the one of the folder, or start it, and see that it lives.

Theory. The source's runner is a process that Spark starts and kills as it likes. The spooler outlives it: whoever comes
next finds its address in the spool folder. While a query runs, a thread here asks the spooler every second, which keeps
it from ending, and starts another one if it was killed. That one has the same port and token, so executors that are
reading go on.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from headwater.pipeline.mqtt.options import ReadOptions
from headwater.pipeline.mqtt.remote import CUT, Address, Remote, SpoolerError
from headwater.pipeline.mqtt.service import LEASE
from headwater.pipeline.mqtt.spooler import LOCKED, former_address

START_TIME: Final = 30.0
"""Seconds that a spooler may take to start, or another query to give up the folder."""
PAUSE: Final = 0.05
WATCH: Final = 1.0
LOG: Final = "spooler.log"
LOG_TAIL: Final = 1500
LOG_BYTES: Final = 4 << 20

_launched: Final[list[subprocess.Popen[bytes]]] = []
"""They outlive their supervisors."""


def reap() -> None:
    """Forget those that have ended."""
    _launched[:] = [each for each in _launched if each.poll() is None]


def send_away(folder: Path) -> None:
    """The spooler of this folder, if there is one: the query is over, and nothing is lost, as the broker keeps what was
    not committed. It would leave by itself when its `linger` is over."""
    address = former_address(folder)
    if not address:
        return
    remote = Remote(Address(address["host"], address["port"], address["token"]), timeout=1.0)
    with contextlib.suppress(SpoolerError, *CUT):
        remote.post("/leave")
    remote.close()


class SpoolerFailed(Exception):
    """There is no spooler, or it cannot get messages; the text says why."""


class SpoolerSupervisor:
    """One query's hold on the spooler of its folder; for any number of threads."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._owner = secrets.token_hex(8)
        self._asking = threading.Lock()
        self._remote: Remote | None = None
        self._is_known = False
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = threading.Event()
        self._watcher: threading.Thread | None = None

    @property
    def address(self) -> Address:
        """For executors."""
        with self._asking:
            return self._found().address

    def advance(
        self, released: dict[str, Any] | None = None, beyond: int | None = None, wait: float = 0.0
    ) -> dict[str, Any]:
        """Tell up to which offset Spark has committed, and hear how things are; raises SpoolerFailed."""
        with self._asking:
            status = self._ask(released=released, beyond=beyond, wait=wait)
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, daemon=True)
            self._watcher.start()
        if status["error"]:
            raise SpoolerFailed(f"no messages can be had from {self._options.address[0]}: {status['error']}")
        return status

    def close(self) -> None:
        """The spooler goes on for its `linger`."""
        self._is_over.set()
        with self._asking:
            if self._remote is not None:
                self._remote.close()

    def _watch(self) -> None:
        while not self._is_over.wait(min(WATCH, self._options.linger / 3)):
            try:
                with self._asking:
                    if not self._is_over.is_set():
                        self._ask()
            except (SpoolerFailed, SpoolerError):
                continue  # the query hears of it when it asks itself

    def _ask(self, **asked: Any) -> dict[str, Any]:
        began = time.monotonic()
        while True:
            try:
                remote = self._found()
                status = remote.post("/advance", owner=self._owner, **asked)
                if self._suits(status):
                    return status
                self._send_away(remote)
            except SpoolerError as error:
                if error.error != "used" or time.monotonic() - began > 2 * LEASE:
                    raise SpoolerFailed(str(error)) from error
                time.sleep(PAUSE)
            except CUT as error:
                self._remote = None  # closed by the cut
                if time.monotonic() - began > START_TIME:
                    raise SpoolerFailed(f"the spooler does not answer: {error!r}{self._log_tail()}") from error

    def _suits(self, status: dict[str, Any]) -> bool:
        """Not one with other options, nor one that had failed before we came."""
        if status["options"] != self._options.digest() or (status["error"] and not self._is_known):
            return False
        self._is_known = True
        return True

    def _send_away(self, remote: Remote) -> None:
        """Until it is gone, which is a cut."""
        remote.post("/leave")
        until = time.monotonic() + START_TIME
        while time.monotonic() < until:
            remote.post("/advance", owner=self._owner)
            time.sleep(PAUSE)

    def _found(self) -> Remote:
        if self._remote is None:
            self._remote = self._find()
            self._is_known = self._remote is None  # one that we start may fail before we ask it for the first time
            self._remote = self._remote or self._start()
        return self._remote

    def _find(self) -> Remote | None:
        """The spooler that is there, whatever it is like."""
        address = former_address(self._options.folder)
        if not address:
            return None
        remote = Remote(Address(address["host"], address["port"], address["token"]))
        try:
            remote.post("/advance", owner=self._owner)
        except SpoolerError as error:
            if error.error == "used":
                return remote
        except CUT:
            pass
        else:
            return remote
        remote.close()
        return None

    def _start(self) -> Remote:
        until = time.monotonic() + START_TIME
        self._launch()
        while time.monotonic() < until:
            found = self._find()
            if found is not None:
                return found
            assert self._process is not None
            status = self._process.poll()
            if status is not None and (status == LOCKED or status < 0):  # another one was quicker; or it was killed
                self._launch()
            elif status is not None:
                raise SpoolerFailed(f"the spooler could not start{self._log_tail()}")
            time.sleep(PAUSE)
        raise SpoolerFailed(f"the spooler has not started within {START_TIME:g} seconds{self._log_tail()}")

    def _launch(self) -> None:
        """In a session of its own: what ends the driver does not end it."""
        reap()
        folder = self._options.folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / LOG
        mode = "wb" if path.exists() and path.stat().st_size > LOG_BYTES else "ab"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
        with path.open(mode) as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headwater.pipeline.mqtt.spooler"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
        _launched.append(self._process)
        assert self._process.stdin is not None
        with self._process.stdin as stdin:
            stdin.write(self._options.as_json().encode())

    def _log_tail(self) -> str:
        try:
            text = (self._options.folder / LOG).read_bytes()[-LOG_TAIL:].decode("utf-8", "replace")
        except OSError:
            return ""
        return f"; the end of {self._options.folder / LOG}:\n{text}"
