"""What commands write, where it cannot be written, or nobody wants it any more."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.node.persistence.importing import import_lines
from tests.brokers import PATIENCE, running

LINES = [b'{"kind": "headwater-export", "schema": 1}\n'] + [
    b'{"kind": "retained", "topic": "t/%d", "payload": "%s"}\n' % (number, b"x" * 100) for number in range(2000)
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    import_lines(tmp_path / "data", iter(LINES))
    return tmp_path / "data"


def headwater(*arguments: object, output: int) -> subprocess.CompletedProcess[bytes]:
    """Run it with its standard output there."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "headwater", *map(str, arguments)]
    return subprocess.run(
        command, stdout=output, stderr=subprocess.PIPE, timeout=PATIENCE, check=False, env=environment
    )


def into_a_full_disk(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    with open("/dev/full", "wb") as full:
        return headwater(*arguments, output=full.fileno())


def into_a_closed_pipe(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return headwater(*arguments, output=writing)
    finally:
        os.close(writing)


@pytest.mark.parametrize("command", [["config", "init"], ["config", "show"], ["version"]])
def test_an_output_that_is_full_is_said_in_one_line(command: list[str]) -> None:
    finished = into_a_full_disk(*command)
    assert (finished.returncode, finished.stderr) == (1, b"headwater: cannot write: No space left on device\n")


@pytest.mark.parametrize("command", [["config", "init"], ["config", "show"], ["version"]])
def test_a_reader_that_has_enough_need_not_be_told(command: list[str]) -> None:
    finished = into_a_closed_pipe(*command)
    assert (finished.returncode, finished.stderr) == (1, b"")


def test_messages_into_a_full_disk(tmp_path: Path) -> None:
    with running("headwater", tmp_path) as port:
        command = [sys.executable, "-m", "headwater", "pub", "-p", str(port), "-t", "a", "-m", "x", "-r"]
        subprocess.run(command, timeout=PATIENCE, check=True)
        finished = into_a_full_disk("sub", "-p", port, "-t", "a", "-C", "1")
    assert (finished.returncode, finished.stderr) == (1, b"headwater: cannot write: No space left on device\n")


def test_an_export_that_cannot_be_written_does_not_blame_the_folder(data: Path) -> None:
    finished = into_a_full_disk("export", data)
    said = b"headwater export: cannot write the output: No space left on device\n"
    assert (finished.returncode, finished.stderr) == (1, said)
    finished = into_a_closed_pipe("export", data)
    assert (finished.returncode, finished.stderr) == (1, b"")


def test_an_export_into_a_pipe_or_device_goes_there_and_leaves_it(data: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["wc", "-l", pipe], stdout=subprocess.PIPE) as reader:
        try:
            finished = headwater("export", data, pipe, output=subprocess.DEVNULL)
            counted = reader.communicate(timeout=PATIENCE)[0]
        finally:
            reader.kill()
    assert (finished.returncode, finished.stderr) == (0, b"")
    assert counted.split()[0] == b"2001"
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_an_export_follows_a_link(data: Path, tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    assert headwater("export", data, tmp_path / "link", output=subprocess.DEVNULL).returncode == 0
    assert (tmp_path / "link").is_symlink()
    assert len((tmp_path / "real").read_text().splitlines()) == 2001
