"""A broker as a process of its own: starting, watching, stopping."""

from __future__ import annotations

import contextlib
import re
import resource
import secrets
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

LISTEN_LIMIT: Final = 30.0
"""Seconds a broker may take until it listens."""
PORTS: Final = 16_000
"""Of which a free one is chosen at random."""
_CPU_TIME: Final = 2
"""Linux's CPUCLOCK_SCHED: what a process has run, to the nanosecond."""


class BrokerError(Exception):
    """A broker did not start, or ended by itself."""


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

    def cpu_seconds(self) -> float:
        """CPU time of all threads of the process since it started, without its descendants'."""
        return time.clock_gettime((~self.pids()[0] << 3) | _CPU_TIME)

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


def free_port() -> int:
    """Nobody listens there now, and no connection that is made meanwhile is given it: it is below the system's range
    for those."""
    while True:
        port = _first_of_connections() - 1 - secrets.randbelow(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _first_of_connections() -> int:
    try:
        return max(PORTS + 2048, int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]))
    except (OSError, ValueError):
        return 32_768
