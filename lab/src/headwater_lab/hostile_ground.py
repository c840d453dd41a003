"""The ground of one attack: a broker process with what the attack needs, and attackers in processes of their own.

Theory. What is asked is what an attack does to others through the broker, not through the processor that attackers here
happen to share with it. So the broker and its good clients run, where the system lets us, before everything else (a
real-time priority: they do not wait for a time slice of others to end), and attackers with what is left. Attackers send
and receive little at a time, because a system call is not interrupted. One thing remains: from a process of real-time
priority that uses all of a processor, Linux takes it away for 50 ms in a second, which is what p99 shows then.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import secrets
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headwater.fleet.process import BrokerError, RunningBroker, free_port
from headwater.wire.packets import Disconnect
from headwater_lab import (
    hostile_bombs,
    hostile_http,
    hostile_logins,
    hostile_memory,
    hostile_peers,
    hostile_retained,
    hostile_small,
)
from headwater_lab.contenders import command_from, running
from headwater_lab.hostile_field import HOST, PATIENCE, Attack, Field, connect, encoded

ATTACKS: Final[dict[str, Attack]] = {
    attack.name: attack
    for module in (
        hostile_peers,
        hostile_bombs,
        hostile_logins,
        hostile_http,
        hostile_memory,
        hostile_retained,
        hostile_small,
    )
    for attack in module.ATTACKS
}
ATTACKER: Final = "from headwater_lab.hostile_ground import main; main()"
SESSIONS: Final = 10_000
URGENT: Final = 1
EAGER: Final = -10
"""Priority of attackers: before other work of the machine, but behind what is urgent."""


@dataclass
class Ground:
    """A broker to attack."""

    broker: RunningBroker
    log: Path
    secure_port: int
    web_port: int
    admin_port: int
    rest_port: int
    token: str

    def check(self) -> None:
        """Raises BrokerError when the broker has ended, or has had a failure of its own."""
        self.broker.check_alive()
        said = self.log.read_text(errors="replace")
        if "Traceback" in said:
            raise BrokerError(f"its log has a traceback: {said[said.index('Traceback') :][:2000]}")

    @contextlib.contextmanager
    def attacked(self, name: str, seconds: float) -> Iterator[dict[str, int]]:
        """An attack goes on for `seconds`; at the end of the context its counts are in what is yielded."""
        words = [sys.executable, "-c", ATTACKER, name, "--seconds", str(seconds)]
        words += ["--port", str(self.broker.port), "--secure-port", str(self.secure_port)]
        words += ["--admin-port", str(self.admin_port), "--rest-port", str(self.rest_port)]
        counts: dict[str, int] = {}
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as attacker:
            assert attacker.stdin and attacker.stdout and attacker.stderr
            attacker.stdin.write(f"{self.token}\n")
            attacker.stdin.close()
            try:
                if not attacker.stdout.readline():
                    raise BrokerError(f"the attack {name} did not begin: {attacker.stderr.read()}")
                yield counts
                result = attacker.stdout.readline()
            finally:
                attacker.kill()
        if not result:
            raise BrokerError(f"the attack {name} did not end well")
        counts.update(json.loads(result))

    def cpu_seconds(self) -> float:
        """Processor time that the broker has used."""
        ticks = 0
        for pid in self.broker.pids():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def be_ordinary(self) -> None:
        """Give the broker the priority of attackers."""
        for pid in self.broker.pids():
            for thread in os.listdir(f"/proc/{pid}/task"):
                be_ordinary(int(thread))

    def forget_peak(self) -> None:
        """What preparing took is not the attack's."""
        for pid in self.broker.pids():
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")

    def keep_sessions(self, number: int) -> None:
        """Sessions without clients, as an old broker has many."""
        for index in range(number):
            with socket.create_connection((HOST, self.broker.port), PATIENCE) as client:
                client.sendall(connect(f"kept-{index}", session_expiry_interval=3600) + encoded(Disconnect()))
                while client.recv(1024):
                    pass


@contextlib.contextmanager
def ground(needs: Collection[str], folder: Path, extra: str = "", sessions: int = SESSIONS) -> Iterator[Ground]:
    """Start a broker, with `extra` arguments, that has what is needed: `tls`, `websocket`, `admin`, `sessions`,
    `passwords` (of hostile_logins.py), `quotas` (of hostile_memory.py), `store` (with REST; five messages for each of
    `sessions`)."""
    ports = {name: free_port() for name in ("tls", "websocket", "admin", "store")}
    token = secrets.token_hex(16)
    settings = hostile_memory.QUOTAS if "quotas" in needs else ""
    if "passwords" in needs:
        users = folder / "users"
        hostile_logins.write_users(users)
        settings += f'allow_anonymous = true\n[access]\npassword_file = "{users}"\n'
    if "store" in needs:
        data = tempfile.mkdtemp(prefix="data-", dir=folder)  # not that of an attack before, with its messages
        settings = f'data_dir = "{data}"\n{settings}'
        settings += f'[store]\nenabled = true\nfilters = ["{hostile_http.TOPIC}/#"]\n'
        settings += f'[rest]\nenabled = true\nhost = "{HOST}"\nport = {ports["store"]}\ntoken = "{token}"\n'
    if "admin" in needs:
        settings += f'[admin]\nenabled = true\nport = {ports["admin"]}\ntoken = "{token}"\n'
    if "tls" in needs:
        certificate, key = _certificate(folder)
        settings += f'[[listeners]]\nhost = "{HOST}"\nport = {ports["tls"]}\n'
        settings += f'[listeners.tls]\ncertificate = "{certificate}"\nkey = "{key}"\n'
    if "websocket" in needs:
        settings += f'[[listeners]]\nhost = "{HOST}"\nport = {ports["websocket"]}\nprotocol = "websocket"\n'
    file = folder / "settings.toml"
    file.write_text(settings)
    command = f"{shlex.quote(sys.executable)} -m headwater broker --port {{port}} --config {file} {extra}"
    with running(command_from(command), folder) as broker:
        log = folder / f"broker-{broker.port}.log"
        made = Ground(broker, log, ports["tls"], ports["websocket"], ports["admin"], ports["store"], token)
        for name, port in ports.items():
            if name in needs:
                broker.wait_for_listener(port)
                if name in ("admin", "store"):
                    _wait_for_http(port)
        if "passwords" in needs:
            hostile_logins.warm_up(broker.port)
        if "store" in needs:
            hostile_http.fill(broker.port, 5 * sessions)
            hostile_http.settle(ports["store"], token)
            made.forget_peak()
        if "sessions" in needs:
            made.keep_sessions(sessions)
        yield made


def _wait_for_http(port: int) -> None:
    """The port is open before the thread that answers there has all that it opens."""
    connection = http.client.HTTPConnection(HOST, port, timeout=PATIENCE)
    connection.request("GET", "/healthz")
    connection.getresponse().read()
    connection.close()


def be_urgent() -> bool:
    """Give this process, and those it starts, a real-time priority; False: the system does not let us."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(URGENT))
    except OSError:
        return False
    return True


def be_ordinary(thread: int = 0) -> None:
    """The opposite, for attackers; of this thread of the system, or of our own."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, thread, EAGER)


def _certificate(folder: Path) -> tuple[Path, Path]:
    import trustme

    leaf = trustme.CA().issue_cert(HOST, "localhost")
    certificate, key = folder / "server.crt", folder / "server.key"
    leaf.cert_chain_pems[0].write_to_path(certificate)
    leaf.private_key_pem.write_to_path(key)
    return certificate, key


def main() -> None:
    """The attacker's own process: says when it begins and, at its end, what it has done."""
    parser = argparse.ArgumentParser()
    parser.add_argument("attack", choices=ATTACKS)
    parser.add_argument("--seconds", type=float, required=True)
    for name in ("--port", "--secure-port", "--admin-port", "--rest-port"):
        parser.add_argument(name, type=int, required=True)
    options = parser.parse_args()
    be_ordinary()
    token = sys.stdin.readline().strip()
    print("begun", flush=True)
    until = time.monotonic() + options.seconds
    field = Field(options.port, until, options.secure_port, options.admin_port, token, options.rest_port)
    with field.struggling():
        ATTACKS[options.attack].run(field)
    print(json.dumps(field.counts), flush=True)
