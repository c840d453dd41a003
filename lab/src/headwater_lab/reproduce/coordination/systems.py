"""Brokers and proxies as processes, ended when they are left."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from headwater.fleet.process import BrokerError, RunningBroker, free_port
from headwater_lab.cluster.nodes import linked
from headwater_lab.contenders import mosquitto_command
from headwater_lab.reproduce.coordination.plan import Setup

CLUSTER: Final = "coordination"


class Part(Protocol):
    """A broker or proxy with all its processes."""

    def pids(self) -> list[int]: ...

    def check_alive(self) -> None:
        """BrokerError: it has ended."""


class System(NamedTuple):
    """`ports`: where clients connect, of each broker; `processes`: whose CPU time counts, by name."""

    ports: list[int]
    processes: Mapping[str, Part]

    def check_alive(self) -> None:
        """BrokerError: one has ended by itself."""
        for each in self.processes.values():
            each.check_alive()


@contextlib.contextmanager
def running(setup: Setup, folder: Path) -> Iterator[System]:
    """BrokerError: it does not start."""
    if setup.kind not in MAKERS:
        raise BrokerError(f"{setup.name}: no such kind of system: {setup.kind}")
    with ExitStack() as stack:
        yield MAKERS[setup.kind](setup, folder, stack)


def missing(setup: Setup) -> str:
    """What this machine lacks for it; "": nothing."""
    if setup.kind != "mixed":
        return ""
    from headwater_lab.reproduce.coordination.mixed import check_makes  # only loaded where it is needed

    try:
        check_makes()
    except BrokerError as problem:
        return str(problem)
    return ""


def _started(stack: ExitStack, words: list[str], port: int, folder: Path) -> RunningBroker:
    broker = RunningBroker(words, port, folder / f"log-{port}")
    stack.callback(broker.stop)
    return broker


def _mosquitto(stack: ExitStack, folder: Path, settings: str = "") -> RunningBroker:
    port = free_port()
    words = mosquitto_command(port, folder)
    with Path(words[-1]).open("a") as file:
        file.write(settings)
    return _started(stack, words, port, folder)


def _mosquittos(setup: Setup, folder: Path, stack: ExitStack) -> System:
    brokers = {f"broker{number}": _mosquitto(stack, folder) for number in range(setup.count)}
    return System([each.port for each in brokers.values()], brokers)


def _bridged(setup: Setup, folder: Path, stack: ExitStack) -> System:
    """A line of Mosquittos: each connects to the one before, and both pass everything on with QoS 0."""
    brokers: dict[str, RunningBroker] = {}
    settings = ""
    for number in range(setup.count):
        broker = brokers[f"broker{number}"] = _mosquitto(stack, folder, settings)
        settings = f"connection to-{number}\naddress 127.0.0.1:{broker.port}\ntopic # both 0\n"
        settings += "restart_timeout 1\ntry_private true\nnotifications false\n"
    return System([each.port for each in brokers.values()], brokers)


def _cluster(setup: Setup, folder: Path, stack: ExitStack) -> System:
    """Ours, each linked with each."""
    nodes = stack.enter_context(linked(setup.count, folder, setup.method or "subscribe"))
    return System([each.port for each in nodes], {f"node{number}": each for number, each in enumerate(nodes)})


def _proxied(setup: Setup, folder: Path, stack: ExitStack) -> System:
    """Mosquittos, each behind a proxy; proxies in a line."""
    processes: dict[str, Part] = {}
    ports = []
    links = [free_port() for _ in range(setup.count)]
    for number, link in enumerate(links):
        broker = processes[f"broker{number}"] = _mosquitto(stack, folder)
        neighbours = [each for each in (number - 1, number + 1) if 0 <= each < setup.count]
        # A proxy that names another which is not there yet would wait for it before it takes clients.
        join = [f"127.0.0.1:{links[number - 1]}"] if number else []
        settings = cluster_settings(f"n{number}", link, join, [f"n{each}" for each in neighbours], setup.method)
        proxy = processes[f"proxy{number}"] = _proxy(stack, folder, broker.port, settings, setup.echo)
        ports.append(proxy.port)
    return System(ports, processes)


def cluster_settings(
    node: str, port: int, join: Sequence[str], neighbours: Sequence[str], method: str | None
) -> dict[str, object]:
    settings: dict[str, object] = {"name": CLUSTER, "node": node, "port": port, "join": list(join)}
    if neighbours:
        settings["neighbours"] = list(neighbours)
    return settings if method is None else {**settings, "method": method}


def _proxy(stack: ExitStack, folder: Path, broker: int, cluster: dict[str, object], echo: str) -> RunningBroker:
    port = free_port()
    file = folder / f"proxy-{port}.toml"
    # Strings, numbers and lists of strings are written alike in JSON and TOML.
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in cluster.items()]
    file.write_text(f"[proxy]\necho = {json.dumps(echo)}\n[cluster]\n{''.join(lines)}")
    words = [sys.executable, "-m", "headwater", "proxy", "--broker", f"127.0.0.1:{broker}"]
    words += ["--listen", f"127.0.0.1:{port}", "--config", str(file), "--log-level", "error"]
    return _started(stack, words, port, folder)


def _mixed(setup: Setup, folder: Path, stack: ExitStack) -> System:
    """Other makes behind proxies, and a node of ours, which the others join."""
    from headwater_lab.reproduce.coordination.mixed import start_makes

    first, port = free_port(), free_port()
    words = [sys.executable, "-m", "headwater", "broker", "--port", str(port), "--log-level", "error"]
    words += ["--cluster", CLUSTER, "--node", "n0", "--cluster-port", str(first)]
    words += ["--set", f"cluster.method={setup.method}"]
    ours = _started(stack, words, port, folder)
    processes: dict[str, Part] = {"ours": ours}
    ports = [ours.port]
    for number, (name, make) in enumerate(start_makes(folder, stack).items(), 1):
        settings = cluster_settings(f"n{number}", free_port(), [f"127.0.0.1:{first}"], [], setup.method)
        proxy = _proxy(stack, folder, make.port, settings, setup.echo)
        processes |= {name: make, f"proxy of {name}": proxy}
        ports.append(proxy.port)
    return System(ports, processes)


MAKERS: Final = {
    "mosquitto": _mosquittos,
    "bridged": _bridged,
    "cluster": _cluster,
    "proxied": _proxied,
    "mixed": _mixed,
}

Running = AbstractContextManager[System]
