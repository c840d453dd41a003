"""The two brokers of a comparison as processes: starting, watching, stopping."""

from __future__ import annotations

import contextlib
import re
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

LISTEN_LIMIT: Final = 30.0
"""Seconds a broker may take until it listens."""

_MOSQUITTO: Final = """\
listener {port} 127.0.0.1
allow_anonymous true
max_queued_messages 0
max_inflight_messages 0
max_connections -1
set_tcp_nodelay true
log_type error
"""

Command = Callable[[int, Path], list[str]]
"""Makes a broker's command line for a port; files it needs go to the folder."""


class BrokerError(Exception):
    """A broker did not start, or ended by itself."""


def find_mosquitto() -> str:
    """Its program, which Debian keeps where only root's PATH leads."""
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise BrokerError("mosquitto is needed to compare with (Debian: apt install mosquitto)")
    return program


def mosquitto_command(port: int, folder: Path) -> list[str]:
    """Mosquitto without limits that would lose messages."""
    config = folder / f"mosquitto-{port}.conf"
    config.write_text(_MOSQUITTO.format(port=port))
    return [find_mosquitto(), "-c", str(config)]


def command_from(template: str) -> Command:
    """A command line with `{port}` in it."""

    def command(port: int, folder: Path) -> list[str]:
        return shlex.split(template.format(port=port))

    return command


def headwater_command(template: str, dispatcher: str) -> Command:
    """A command line with `{port}` and `{config}`, the file of settings that names the shared dispatcher."""

    def command(port: int, folder: Path) -> list[str]:
        config = folder / f"headwater-{port}.toml"
        config.write_text(f'shared_dispatcher = "{dispatcher}"\n')
        return shlex.split(template.format(port=port, config=shlex.quote(str(config))))

    return command


class RunningBroker:
    """A started broker. `seconds_to_listen` is the time from the start until it accepted a connection."""

    def __init__(self, words: list[str], port: int, errors: Path, *, own_group: bool = False) -> None:
        """`own_group`: what a terminal sends to its programs, such as Ctrl-C, does not reach it."""
        self.port = port
        self._errors = errors
        start = time.monotonic()
        with errors.open("wb") as sink:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=sink,
                process_group=0 if own_group else None,
            )
        try:
            self.wait_for_listener(port)
        except BrokerError:
            self.stop()
            raise
        self.seconds_to_listen = time.monotonic() - start

    def wait_for_listener(self, port: int) -> None:
        """Return when it listens there; BrokerError: it has ended, or takes too long."""
        deadline = time.monotonic() + LISTEN_LIMIT
        while time.monotonic() < deadline:
            self.check_alive()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            time.sleep(0.002)
        raise BrokerError(f"{self._process.args!r} does not listen on port {port}")

    def check_alive(self) -> None:
        """Raise if the process has ended, with the last thing it said."""
        if self._process.poll() is not None:
            said = self._errors.read_text(errors="replace").strip()[-500:]
            raise BrokerError(f"{self._process.args!r} ended with status {self._process.returncode}: {said}")

    def pids(self) -> list[int]:
        """The process and all its descendants: a broker may have workers."""
        pids = [self._process.pid]
        for pid in pids:
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                with contextlib.suppress(OSError):
                    pids += map(int, children.read_text().split())
        return pids

    def resident_bytes(self) -> int:
        """Resident memory of all its processes."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids())
        return pages * resource.getpagesize()

    def peak_bytes(self) -> int:
        """The most memory its processes have had resident since they started, each by itself."""
        peaks = [re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text()) for pid in self.pids()]
        return sum(int(peak.group(1)) for peak in peaks if peak) * 1024

    def stop(self) -> None:
        """SIGTERM, and SIGKILL after five seconds."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def running(command: Command, folder: Path) -> Iterator[RunningBroker]:
    """A fresh broker on a free port of loopback, stopped at the end."""
    port = free_port()
    broker = RunningBroker(command(port, folder), port, folder / f"broker-{port}.log")
    try:
        yield broker
    finally:
        broker.stop()


def raise_file_limit(wanted: int = 65536) -> int:
    """Let this process and the brokers it starts open as many files as the system allows; returns that number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limits in ((wanted, max(wanted, hard)), (hard, hard)):
        with contextlib.suppress(OSError, ValueError):
            if soft < limits[0]:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            break
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
