"""The two brokers of a comparison as processes: starting, watching, stopping."""

from __future__ import annotations

import contextlib
import resource
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from headwater.fleet.process import BrokerError, RunningBroker, free_port

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
