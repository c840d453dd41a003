"""Log lines: how they look and where they go."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import sys
from pathlib import Path

import pytest

from headwater.node.operations import logs
from headwater.node.operations.logs import (
    BackgroundHandler,
    FileSink,
    JournaldSink,
    Sink,
    StreamSink,
    SyslogSink,
    open_sinks,
)
from headwater.node.settings import ConfigError
from tests.brokers import PATIENCE


def record(text: str, level: int = logging.INFO, failure: bool = False) -> logging.LogRecord:
    info = None
    if failure:
        try:
            raise KeyError("why")
        except KeyError:
            info = sys.exc_info()
    return logging.LogRecord("headwater.part", level, "", 0, "%s happened", (text,), info)


def written(sinks: list[Sink], *records: logging.LogRecord, format: str = "text") -> None:
    handler = BackgroundHandler(sinks, format)
    for each in records:
        handler.emit(each)
    handler.finish(PATIENCE)


def test_lines_for_people(tmp_path: Path) -> None:
    path = tmp_path / "log"
    written([FileSink(str(path))], record("this"), record("that", logging.WARNING))
    first, second = path.read_text().splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO    headwater.part: this happened", first)
    assert second.endswith("WARNING headwater.part: that happened")


def test_lines_for_programs(tmp_path: Path) -> None:
    path = tmp_path / "log"
    written([FileSink(str(path))], record('line\nend "é"'), record("x", logging.ERROR, True), format="json")
    first, second = map(json.loads, path.read_text().splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    assert first == {"level": "info", "logger": "headwater.part", "message": 'line\nend "é" happened'}
    assert (second["level"], "KeyError: 'why'" in second["exception"]) == ("error", True)


@pytest.mark.parametrize("format", ["text", "json"])
def test_long_values_are_cut(tmp_path: Path, format: str) -> None:
    """Client ids have up to 64 KiB, and lines wait for who reads them."""
    path = tmp_path / "log"
    long = record("x" * 60_000)
    written([FileSink(str(path))], long, format=format)
    line = path.read_text()
    assert len(line) < 1300 and "… (60000 characters) happened" in line.replace("\\u2026", "…")
    assert long.args == ("x" * 60_000,), "others may still want it"


def test_a_file_is_begun_anew_after_it_was_moved_away(tmp_path: Path) -> None:
    path, moved = tmp_path / "log", tmp_path / "log.1"
    handler = BackgroundHandler([FileSink(str(path))])
    handler.emit(record("before"))
    handler.reopen()
    handler.finish(PATIENCE)
    path.rename(moved)
    handler = BackgroundHandler([sink := FileSink(str(moved))])
    sink._path = str(path)
    handler.emit(record("still"))
    handler.reopen()
    handler.emit(record("after"))
    handler.finish(PATIENCE)
    assert [line.split(": ")[1] for line in moved.read_text().splitlines()] == ["before happened", "still happened"]
    assert [line.split(": ")[1] for line in path.read_text().splitlines()] == ["after happened"]


def test_a_file_that_cannot_be_begun_anew_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    sink = FileSink(str(path))
    sink._path = str(tmp_path / "none" / "log")
    handler = BackgroundHandler([sink])
    handler.reopen()
    handler.emit(record("after"))
    handler.finish(PATIENCE)
    assert "after happened" in path.read_text()


def test_the_thread_is_there_only_while_lines_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LINGER", 0.01)
    path = tmp_path / "log"
    handler = BackgroundHandler([FileSink(str(path))])
    assert handler._thread is None
    seen = []
    for number in range(20):
        handler.emit(record(f"{number}", logging.ERROR))
        handler.emit(record(f"{number} again", logging.ERROR))
        thread = handler._thread
        if thread is not None:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        seen.append(thread)
    assert len(set(seen)) > 10, "each pair of lines has had its own"
    handler.finish(PATIENCE)
    assert len(path.read_text().splitlines()) == 40


@pytest.fixture
def listening(tmp_path: Path) -> socket.socket:
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(str(tmp_path / "socket"))
    receiver.settimeout(PATIENCE)
    return receiver


def test_syslog(listening: socket.socket) -> None:
    with listening:
        written([SyslogSink(listening.getsockname())], record("this", logging.WARNING))
        assert listening.recv(1000) == f"<28>headwater[{os.getpid()}]: headwater.part: this happened".encode()


@pytest.mark.parametrize(("level", "priority"), [(logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (10, 7)])
def test_journald(listening: socket.socket, level: int, priority: int) -> None:
    with listening:
        written([JournaldSink(listening.getsockname())], record("a\nb", level))
        message = b"headwater.part: a\nb happened"
        fields = f"PRIORITY={priority}\nSYSLOG_IDENTIFIER=headwater\nMESSAGE\n".encode()
        assert listening.recv(1000) == fields + len(message).to_bytes(8, "little") + message + b"\n"


def test_a_long_line_still_goes_to_the_journal(listening: socket.socket) -> None:
    with listening:
        written([JournaldSink(listening.getsockname())], record("x" * 1_000_000))
        assert len(listening.recv(1 << 20)) < logs.LARGEST_DATAGRAM + 100


def test_a_sink_that_fails_does_not_keep_lines_from_others(tmp_path: Path) -> None:
    closed = (tmp_path / "closed").open("w")
    closed.close()
    path = tmp_path / "log"
    written([StreamSink(closed), FileSink(str(path))], record("this"), record("that"))
    assert len(path.read_text().splitlines()) == 2


def test_destinations_by_name(tmp_path: Path, listening: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening:
        monkeypatch.setattr(logs, "SYSLOG", listening.getsockname())
        monkeypatch.setattr(logs, "JOURNALD", listening.getsockname())
        sinks = open_sinks(["stderr", f"file:{tmp_path}/log", "syslog", "journald"])
    for each in sinks:
        each.close()
    assert [type(each) for each in sinks] == [StreamSink, FileSink, SyslogSink, JournaldSink]


@pytest.mark.parametrize("destination", ["file:/no/such/folder/log", "syslog", "journald"])
def test_a_destination_that_is_not_there(destination: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SYSLOG", "JOURNALD"):
        monkeypatch.setattr(logs, name, str(tmp_path / "none"))
    place = "" if destination.startswith("file:") else f" ({tmp_path / 'none'})"
    with pytest.raises(ConfigError, match=re.escape(f"cannot log to {destination}{place}: No such file")):
        open_sinks([destination])


def test_lines_of_one_kind_are_bounded_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = [record(f"{number}") for number in range(100)]
    failures = [record(f"f{number}", logging.ERROR) for number in range(30)]
    details = [record(f"d{number}", logging.DEBUG) for number in range(30)]
    other = logging.LogRecord("headwater.part", logging.INFO, "", 0, "something else", (), None)
    later = record("later")
    for each in (*lines, *failures, *details, other):
        each.created = 1000.5
    later.created = 1001.2
    written([FileSink(str(path))], *lines, *failures, *details, other, later)
    said = [line.split(": ", 1)[1] for line in path.read_text().splitlines()]
    assert said == [
        *(f"{number} happened" for number in range(logs.MAX_ALIKE)),
        *(f"f{number} happened" for number in range(30)),
        *(f"d{number} happened" for number in range(30)),
        "something else",
        f"{100 - logs.MAX_ALIKE} more lines in one second were left out: %s happened",
        "later happened",
    ]


def test_what_was_left_out_last_is_told_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = [record("x") for _ in range(logs.MAX_ALIKE + 1)]
    for each in lines:
        each.created = 1000.5
    written([FileSink(str(path))], *lines)
    assert "1 more lines" in path.read_text().splitlines()[-1]


def test_records_have_what_our_lines_have(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_srcfile", "logThreads", "logProcesses", "logMultiprocessing"):
        monkeypatch.setattr(logging, name, getattr(logging, name))
    logs.make_small_records()
    seen: list[logging.LogRecord] = []
    logger = logging.Logger("headwater.part")
    logger.addFilter(lambda each: not seen.append(each))
    logger.warning("%s happened", "this")
    (each,) = seen
    assert (each.name, each.levelname, each.getMessage()) == ("headwater.part", "WARNING", "this happened")
    assert (each.lineno, each.thread, each.process) == (0, None, None)
