"""Brokers and clusters to check: each node is a folder with a start script and the process id that it wrote, on ports
of loopback. So faults are shell commands, as users give them: `kill -9 -$(cat a/pid)`, and `sh a/start` to heal. A
node leads a process group of its own, which the minus names: the script of RabbitMQ has its server as a child."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headwater.fleet.process import BrokerError, free_port
from headwater_lab.check_broker.connection import Target
from headwater_lab.check_broker.faults import FaultCommands
from headwater_lab.contenders import find_mosquitto

LISTENS: Final = 90.0
"""Seconds until a node has to listen: RabbitMQ starts slowly."""
HOST: Final = "127.0.0.1"
MARK: Final = "CHECKED_NODE"
"""In the environment of each node: a process id may be another's by now."""


@dataclass
class Node:
    """`words` is its command, `environment` what it adds to ours. `is_target`: clients connect to it."""

    folder: Path
    port: int
    words: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    is_target: bool = True
    waits_for_others: bool = False
    """It listens only when other nodes are there."""

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def target(self) -> Target:
        return Target(HOST, self.port)

    @property
    def start_command(self) -> str:
        """Until it listens."""
        listens = shlex.quote(f": >/dev/tcp/{HOST}/{self.port}")
        wait = f"until bash -c {listens} 2>/dev/null; do sleep 0.1; done"
        return f"sh {shlex.quote(str(self.folder / 'start'))}; {wait}"

    def write_script(self) -> None:
        """The pid is of the shell that becomes the broker; `pids` has all that there were."""
        environment = {**self.environment, MARK: str(self.folder)}
        lines = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
        pid, pids, log = (shlex.quote(str(self.folder / name)) for name in ("pid", "pids", "log"))
        command = shlex.quote(f"echo $$ >{pid}; echo $$ >>{pids}; exec {shlex.join(self.words)}")
        lines += [f"setsid sh -c {command} >>{log} 2>&1 </dev/null &"]
        (self.folder / "start").write_text("\n".join(lines) + "\n")

    def wait(self) -> None:
        """Until it listens. Raises BrokerError."""
        deadline = time.monotonic() + LISTENS
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), 1):
                return
            time.sleep(0.1)
        said = (self.folder / "log").read_text(errors="replace")[-800:]
        raise BrokerError(f"{self.name} does not listen on port {self.port}: {said}")

    def end(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            for pid in (self.folder / "pids").read_text().split():
                with contextlib.suppress(OSError):
                    if os.fsencode(f"{MARK}={self.folder}") in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                        os.killpg(int(pid), signal.SIGKILL)

    def faults(self, kinds: Sequence[str]) -> Iterator[FaultCommands]:
        group = f"-$(cat {shlex.quote(str(self.folder / 'pid'))})"
        if "kill" in kinds:
            yield FaultCommands(f"kill-{self.name}", f"kill -9 {group}", self.start_command)
        if "term" in kinds:
            gone = f"while kill -0 {group} 2>/dev/null; do sleep 0.1; done"
            yield FaultCommands(f"term-{self.name}", f"kill -TERM {group}; {gone}", self.start_command)
        if "stop" in kinds:
            yield FaultCommands(f"stop-{self.name}", f"kill -STOP {group}", f"kill -CONT {group}")


@contextlib.contextmanager
def running(make: Callable[[Path], list[Node]], folder: Path) -> Iterator[list[Node]]:
    """Its nodes, started in their order, and ended. Raises BrokerError."""
    nodes = make(folder)
    try:
        for node in nodes:
            node.write_script()
            subprocess.run(["sh", str(node.folder / "start")], check=True)
            if not node.waits_for_others:
                node.wait()
        for node in nodes:
            node.wait()
        yield nodes
    finally:
        for node in reversed(nodes):
            node.end()


def make_folder(folder: Path, name: str) -> Path:
    made = folder / name
    made.mkdir(parents=True)
    return made


def program(name: str, package: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise BrokerError(f"{name} is not installed (Debian: apt install {package})")
    return found


# ---- Mosquitto -------------------------------------------------------------------------------------------------


def _mosquitto(folder: Path, name: str, port: int, settings: str) -> Node:
    own = make_folder(folder, name)
    file = own / "mosquitto.conf"
    file.write_text(f"listener {port} {HOST}\nallow_anonymous true\nuser root\n{settings.format(folder=own)}")
    return Node(own, port, [find_mosquitto(), "-c", str(file)])


PERSISTENT: Final = "persistence true\npersistence_location {folder}/\n"
OFTEN: Final = "autosave_interval 1\nautosave_on_changes true\n"


def one_mosquitto(settings: str) -> Callable[[Path], list[Node]]:
    return lambda folder: [_mosquitto(folder, "a", free_port(), settings)]


def mosquitto_bridge(folder: Path) -> list[Node]:
    """A connects to b, and both pass everything on with QoS 2."""
    first, second = free_port(), free_port()
    bridge = (
        f"connection to-b\naddress {HOST}:{second}\ntopic # both 2\ncleansession false\n"
        "restart_timeout 1\nbridge_protocol_version mqttv311\n"
    )
    return [
        _mosquitto(folder, "b", second, PERSISTENT),
        _mosquitto(folder, "a", first, PERSISTENT + bridge),
    ]


# ---- NATS ------------------------------------------------------------------------------------------------------

_NATS: Final = """\
server_name: {name}
listen: "127.0.0.1:{client}"
jetstream {{ store_dir: "{folder}/js" }}
mqtt {{ host: "127.0.0.1", port: {mqtt} }}
cluster {{ name: check, listen: "127.0.0.1:{link}", routes: [{routes}] }}
"""


def nats_cluster(folder: Path) -> list[Node]:
    names = ("a", "b", "c")
    links = {name: free_port() for name in names}
    routes = ", ".join(f'"nats://127.0.0.1:{link}"' for link in links.values())
    nodes = []
    for name in names:
        own, mqtt = make_folder(folder, name), free_port()
        file = own / "nats.conf"
        file.write_text(
            _NATS.format(name=name, client=free_port(), folder=own, mqtt=mqtt, link=links[name], routes=routes)
        )
        words = [program("nats-server", "nats-server"), "-c", str(file)]
        nodes.append(Node(own, mqtt, words, waits_for_others=True))
    return nodes


# ---- RabbitMQ --------------------------------------------------------------------------------------------------

_RABBIT: Final = """\
listeners.tcp.1 = 127.0.0.1:{amqp}
mqtt.listeners.tcp.1 = 127.0.0.1:{mqtt}
mqtt.allow_anonymous = true
cluster_formation.peer_discovery_backend = classic_config
cluster_formation.node_cleanup.only_log_warning = true
{nodes}
"""


def rabbitmq_cluster(folder: Path) -> list[Node]:
    """With an epmd of its own, which ends with them."""
    return _rabbitmq(folder, ("a", "b", "c"))


def one_rabbitmq(folder: Path) -> list[Node]:
    return _rabbitmq(folder, ("a",))


def _rabbitmq(folder: Path, names: Sequence[str]) -> list[Node]:
    program("rabbitmq-server", "rabbitmq-server")
    server = next(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    epmd = free_port()
    of_epmd = {"ERL_EPMD_PORT": str(epmd), "ERL_EPMD_ADDRESS": HOST}
    found = [Node(make_folder(folder, "epmd"), epmd, [program("epmd", "erlang-base")], of_epmd, is_target=False)]
    listed = "\n".join(
        f"cluster_formation.classic_config.nodes.{number} = {name}@localhost" for number, name in enumerate(names, 1)
    )
    for name in names:
        own, mqtt = make_folder(folder, name), free_port()
        (own / "rabbitmq.conf").write_text(_RABBIT.format(amqp=free_port(), mqtt=mqtt, nodes=listed))
        (own / "enabled_plugins").write_text("[rabbitmq_mqtt].\n")
        environment = {
            "HOME": str(own),
            "RABBITMQ_NODENAME": f"{name}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONFIG_FILE": str(own / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(own / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(own / "mnesia"),
            "RABBITMQ_LOG_BASE": str(own / "logs"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-setcookie check",
            "RABBITMQ_CTL_ERL_ARGS": "-setcookie check",
            **of_epmd,
        }
        found.append(Node(own, mqtt, [str(server)], environment))
    return found


# ---- Headwater -------------------------------------------------------------------------------------------------


def _headwater(folder: Path, name: str, words: Sequence[str]) -> Node:
    own, port = make_folder(folder, name), free_port()
    command = [sys.executable, "-m", "headwater", "broker", "--port", str(port), "--data-dir", str(own / "data")]
    return Node(own, port, [*command, *words])


def one_headwater(folder: Path) -> list[Node]:
    return [_headwater(folder, "a", [])]


def headwater_cluster(folder: Path, settings: Sequence[str] = ()) -> list[Node]:
    """`settings` are name=value."""
    names = ("a", "b", "c")
    links = {name: free_port() for name in names}
    nodes = []
    for name in names:
        words = ["--cluster", "check", "--node", name, "--cluster-port", str(links[name])]
        for other in names:
            if other != name:
                words += ["--join", f"{HOST}:{links[other]}"]
        nodes.append(_headwater(folder, name, [*words, *(word for each in settings for word in ("--set", each))]))
    return nodes
