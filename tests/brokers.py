"""Brokers in processes of their own, for tests that need a real one: ours, and Mosquitto as a strange one."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.fleet.process import free_port

PATIENCE = 15.0

__all__ = ["free_port"]

both_brokers = pytest.mark.parametrize("broker", ["headwater", "mosquitto"], indirect=True, scope="module")


def find_mosquitto(name: str = "mosquitto") -> str:
    """Debian keeps it where only root looks."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def wait_until_listening(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    process.kill()
    output, _ = process.communicate()
    pytest.fail(f"the broker does not listen; it said:\n{output.decode()}", pytrace=False)


@contextlib.contextmanager
def running(name: str, folder: Path, settings: str = "") -> Iterator[int]:
    """Start a broker on a free port of loopback; `settings` are lines of Mosquitto's configuration file."""
    port = free_port()
    if name == "headwater":
        command = [sys.executable, "-m", "headwater", "broker", "--port", str(port)]
    else:
        file = folder / "mosquitto.conf"
        file.write_text(
            f"listener {port} 127.0.0.1\nuser root\nset_tcp_nodelay true\n{settings or 'allow_anonymous true'}\n"
        )
        command = [find_mosquitto(), "-c", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        wait_until_listening(process, port)
        yield port
    finally:
        process.terminate()
        try:
            process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
