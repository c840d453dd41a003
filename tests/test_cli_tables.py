"""Tables for people: they fit the terminal, and what is cut is the payload and never a number."""

from __future__ import annotations

import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from pathlib import Path

import pytest
from rich.console import Console

from headwater.cli.fitted import Column, Fitted, Kind, column_of, number
from headwater.store.disk_store import DiskStore
from headwater.store.intake import Intake

NOON = 1_700_000_000_123_456
TOPIC = "fleet/site-03/building-1/floor-2/sensor-00021/temperature"
PAYLOAD = (
    b'{"value": 21.5, "site": "03", "building": "1", "floor": "2",'
    b' "unit": "C", "battery": {"level": 0.93, "volts": 3.61}, "fw": "1.2.3", "text": "%s"}'
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = DiskStore(tmp_path / "messages", id="4f1c0d2ab9e7", seal_in_background=False)
    intake = Intake(1)
    for each in range(3):
        intake.take(TOPIC.encode(), PAYLOAD % str(each).encode(), 1, "device", NOON)
    taken = intake.hand_over()
    assert taken is not None
    store.append(taken)
    store.sync()
    store.close()
    return tmp_path


def on_a_terminal(columns: int, *arguments: object) -> list[str]:
    """The lines of a command whose output is a terminal of this width."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    words = [sys.executable, "-m", "headwater", *map(str, arguments)]
    with subprocess.Popen(words, stdout=theirs, stderr=theirs, env={**environment, "TERM": "xterm"}) as process:
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 65536):
                said += part
        except OSError:  # how a terminal says that nobody writes to it any more
            pass
        finally:
            os.close(ours)
    assert process.returncode == 0, said
    return re.sub(r"\x1b\[[0-9;]*m", "", said.decode()).splitlines()


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_messages_keep_position_time_and_value_on_any_terminal(folder: Path, columns: int) -> None:
    heading, *lines = on_a_terminal(columns, "store", "query", "--data-dir", folder)
    assert heading.split()[:4] == ["position", "time", "topic", "value"]
    for line, position in zip(lines, (1, 2, 3), strict=False):
        assert len(line) <= columns
        words = line.split()
        assert words[0] == str(position)
        assert words[1] == "2023-11-14T22:13:20.123456Z"
        assert words[2].endswith("/temperature")
        assert words[3] == "21.5"
        assert "…" in line


def test_a_payload_for_which_there_is_no_room_is_said(folder: Path) -> None:
    *_, last = on_a_terminal(60, "store", "query", "--data-dir", folder)
    assert last == "no room for payload here: a wider terminal, or --format json, shows it"


def test_what_is_no_terminal_gets_everything(folder: Path) -> None:
    words = [sys.executable, "-m", "headwater", "store", "query", "--data-dir", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert TOPIC in done.stdout
    assert "…" in done.stdout  # a payload is cut at 100 characters everywhere, and shows it


def drawn(table: Fitted, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(table, soft_wrap=True)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_bulk_gives_way_first_and_whole_columns_never() -> None:
    table = Fitted([number("n"), Column("topic", Kind.TAIL), Column("payload", Kind.BULK), Column("kind")])
    table.add("1234567890", "a/very/long/topic/name/temperature", "x" * 40, "k" * 30)
    wide = 10 + 34 + 40 + 30 + 6
    assert drawn(table, wide)[1] == f"1234567890  a/very/long/topic/name/temperature  {'x' * 40}  {'k' * 30}"
    assert drawn(table, wide - 10)[1] == f"1234567890  a/very/long/topic/name/temperature  {'x' * 29}…  {'k' * 30}"
    narrow = drawn(table, 60)[1]
    assert narrow == "1234567890  …/name/temperature  xxxxxxx…  kkkkkkkkkkkkkkkkk…"
    assert [len(line) <= 50 for line in drawn(table, 50)] == [True, True]
    assert table.left_out(50) == ["payload"]
    assert drawn(table, 20)[1].startswith("1234567890  …ame/temperature  ")  # wraps, and loses no number


def test_wide_characters_are_counted_as_they_are_shown() -> None:
    table = Fitted([Column("topic", Kind.TAIL), number("n")])
    table.add("温度" * 20, "5")
    assert drawn(table, 30)[1] == f"…{'温度' * 6}度  5".replace("温度" * 6 + "度", "度" + "温度" * 6)


def test_columns_by_name_and_content() -> None:
    assert column_of("count", [1, None, 2.5]) == number("count")
    assert column_of("topic", ["a"]).kind is Kind.TAIL
    assert column_of("payload", ["a"]).kind is Kind.BULK
    assert column_of("window_end", ["2026-01-31T12:00:00Z"]).kind is Kind.WHOLE
    assert column_of("firmware", ["1.2"]).kind is Kind.TEXT
