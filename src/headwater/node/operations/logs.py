"""Log lines: how they look, where they go, and that they never hold up a client.

Whoever reads our lines may stop reading: a full pipe, a paused terminal, a stuck disk. A write would then block, and
with it all clients; so lines wait in a bounded queue for a thread of their own, and when that is full, further ones are
counted and left out. So are lines of one kind above some number in a second: who can make the broker write a line with
every packet would fill the disk, and each line takes its time.

The thread is there only while lines come and a little longer. A process with a second thread, though it sleeps, pays
for it with every system call, since descriptors are shared then: 3 % of a broker that forwards single messages.
"""

from __future__ import annotations

import copy
import json
import logging
import logging.handlers
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TextIO

from headwater.node.settings import ConfigError

MAX_WAITING: Final = 10_000
LONGEST: Final = 1024
"""Characters of one value in a line; more is cut off."""
LINGER: Final = 1.0
"""Seconds that the thread waits for another line."""
MAX_ALIKE: Final = 20
"""Lines of one kind in a second; not of those that tell of failures, nor of what is only logged on demand (`debug`)."""
FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
UNDATED: Final = "%(name)s: %(message)s"
"""For those who note time and severity themselves."""
SYSLOG: Final = "/dev/log"
JOURNALD: Final = "/run/systemd/journal/socket"
LARGEST_DATAGRAM: Final = 48 * 1024
SEVERITIES: Final = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))


def make_small_records() -> None:
    """From now on records have what our lines have: not where in the program they were made, in which thread and by
    which process. Finding that out took most of the 20 µs of a line, those that are left out in the end included."""
    logging._srcfile = None
    logging.logThreads = False
    logging.logProcesses = False
    logging.logMultiprocessing = False


class JsonFormatter(logging.Formatter):
    """One object per line: time (UTC), level, logger, message and, after a failure, exception."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        said: dict[str, object] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


class Sink(Protocol):
    """Where lines go. Called by the log's thread only; what it raises (OSError, ValueError) costs that line."""

    dated: bool
    """Whether lines must say when, and how bad it is."""

    def write(self, line: str, level: int) -> None: ...
    def reopen(self) -> None: ...
    def close(self) -> None: ...


class StreamSink:
    dated = True

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, line: str, level: int) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()

    def reopen(self) -> None:
        pass

    def close(self) -> None:
        pass  # it is not ours


class FileSink:
    """A file that may be moved away: `reopen` begins it anew."""

    dated = True

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = self._open()

    def _open(self) -> TextIO:
        return Path(self._path).open("a", encoding="utf-8", errors="backslashreplace")

    def write(self, line: str, level: int) -> None:
        self._file.write(line + "\n")
        self._file.flush()

    def reopen(self) -> None:
        """OSError: it goes on where it was."""
        fresh = self._open()
        self._file.close()
        self._file = fresh

    def close(self) -> None:
        self._file.close()


class SyslogSink:
    dated = False

    def __init__(self, address: str) -> None:
        os.stat(address)  # SysLogHandler itself would pass over its absence
        facility = logging.handlers.SysLogHandler.LOG_DAEMON
        self._handler = logging.handlers.SysLogHandler(address, facility)
        self._handler.ident = f"headwater[{os.getpid()}]: "
        self._handler.append_nul = False

    def write(self, line: str, level: int) -> None:
        name = logging.getLevelName(level)
        self._handler.emit(logging.makeLogRecord({"msg": line, "levelno": level, "levelname": name}))

    def reopen(self) -> None:
        pass

    def close(self) -> None:
        self._handler.close()


class JournaldSink:
    """The journal's own protocol: a datagram of `NAME=value` lines, or the length and then the value."""

    dated = False

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            self._socket.connect(address)
        except OSError:
            self._socket.close()
            raise

    def write(self, line: str, level: int) -> None:
        severity = next((number for least, number in SEVERITIES if level >= least), 7)
        message = line.encode("utf-8", "backslashreplace")[:LARGEST_DATAGRAM]
        size = len(message).to_bytes(8, "little")
        self._socket.send(
            b"PRIORITY=%d\nSYSLOG_IDENTIFIER=headwater\nMESSAGE\n%b%b\n" % (severity, size, message),
        )

    def reopen(self) -> None:
        pass

    def close(self) -> None:
        self._socket.close()


def open_sinks(destinations: Sequence[str]) -> list[Sink]:
    """What the setting `log_to` names; raises ConfigError."""
    sinks: list[Sink] = []
    for each in destinations:
        kind, _, path = each.partition(":")
        try:
            if kind == "file":
                sinks.append(FileSink(path))
            elif kind == "syslog":
                sinks.append(SyslogSink(SYSLOG))
            elif kind == "journald":
                sinks.append(JournaldSink(JOURNALD))
            else:
                sinks.append(StreamSink(sys.stderr))
        except OSError as error:
            place = {"syslog": f" ({SYSLOG})", "journald": f" ({JOURNALD})"}.get(kind, "")
            raise ConfigError(f"cannot log to {each}{place}: {error.strerror or error}") from error
    return sinks


def _cut(record: logging.LogRecord) -> logging.LogRecord:
    """The record without most of what is very long in it: names that strangers chose wait here for a slow reader."""
    if not isinstance(record.args, tuple) or not any(
        isinstance(arg, str) and len(arg) > LONGEST for arg in record.args
    ):
        return record
    record = copy.copy(record)
    assert isinstance(record.args, tuple)
    record.args = tuple(
        f"{arg[:LONGEST]}… ({len(arg)} characters)" if isinstance(arg, str) and len(arg) > LONGEST else arg
        for arg in record.args
    )
    return record


class _Line(NamedTuple):
    dated: str
    undated: str
    level: int


_REOPEN: Final = _Line("", "", -1)


class BackgroundHandler(logging.Handler):
    """Hands formatted lines to a thread that writes them."""

    def __init__(self, sinks: Sequence[Sink], format: str = "text") -> None:
        super().__init__()
        self._sinks = sinks
        self._json = format == "json"
        self.setFormatter(JsonFormatter() if self._json else logging.Formatter(FORMAT))
        self._undated = self.formatter if self._json else logging.Formatter(UNDATED)
        self._wants_undated = any(not sink.dated for sink in sinks)
        self._lines: queue.Queue[_Line | None] = queue.Queue(MAX_WAITING)
        self._left_out = 0
        self._second = 0
        self._kinds: dict[str, int] = {}
        """How many lines there have been of each kind in this second."""
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def _queue(self, line: _Line | None, timeout: float = 0.0) -> threading.Thread:
        """Raises queue.Full; returns the thread that writes it."""
        self._lines.put(line, timeout > 0, timeout)
        with self._guard:
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="log", daemon=True)
                self._thread.start()
            return self._thread

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if logging.INFO <= record.levelno < logging.ERROR and self._is_too_many(record):
                return
            if self._left_out and self._lines.qsize() < MAX_WAITING // 2:
                left_out, self._left_out = self._left_out, 0
                text = f"{left_out} log lines were left out: nobody read them"
                self._warn(text)
            self._put(record)
        except queue.Full:
            self._left_out += 1
        except Exception:
            self.handleError(record)

    def _is_too_many(self, record: logging.LogRecord) -> bool:
        if int(record.created) != self._second:
            self._second = int(record.created)
            self._tell_of_many()
        count = self._kinds[record.msg] = self._kinds.get(record.msg, 0) + 1
        return count > MAX_ALIKE

    def _tell_of_many(self) -> None:
        kinds, self._kinds = self._kinds, {}
        for kind, count in kinds.items():
            if count > MAX_ALIKE:
                self._warn(f"{count - MAX_ALIKE} more lines in one second were left out: {kind}")

    def _warn(self, text: str) -> None:
        self._put(logging.makeLogRecord({"msg": text, "levelno": logging.WARNING, "levelname": "WARNING"}))

    def _put(self, record: logging.LogRecord) -> None:
        record = _cut(record)
        dated = self.format(record)
        undated = self._undated.format(record) if self._wants_undated and self._undated is not None else dated
        self._queue(_Line(dated, undated, record.levelno))

    def reopen(self) -> None:
        """Begin files anew, after the lines that wait: somebody has moved them away."""
        try:
            self._queue(_REOPEN)
        except queue.Full:
            self._left_out += 1

    def finish(self, patience: float = 1.0) -> None:
        """Wait until all lines are written, but not for ever."""
        try:
            self._tell_of_many()
            thread = self._queue(None, patience)
        except queue.Full:
            return
        thread.join(patience)

    def _next(self) -> _Line | None:
        """Raises queue.Empty when the thread is to end, and is none any more."""
        while True:
            try:
                return self._lines.get(timeout=LINGER)
            except queue.Empty:
                with self._guard:
                    if self._lines.empty():
                        self._thread = None
                        raise

    def _write(self) -> None:
        while True:
            try:
                line = self._next()
            except queue.Empty:
                return
            if line is None:
                break
            for sink in self._sinks:
                try:
                    if line is _REOPEN:
                        sink.reopen()
                    else:
                        sink.write(line.dated if sink.dated else line.undated, line.level)
                except (OSError, ValueError):
                    pass  # nobody can be told
        for sink in self._sinks:
            sink.close()
