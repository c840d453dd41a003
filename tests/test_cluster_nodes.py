"""Clusters of real processes, as docs/cluster.md and `headwater cluster` have them."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headwater.cli.app import app
from tests.brokers import PATIENCE, free_port
from tests.node.admin.api import TOKEN
from tests.test_cli import Subscribed, headwater, pub
from tests.test_cluster_page import authority, blocks

__all__ = ["authority"]
LONG = 60.0
"""Seconds: three nodes, each with a process for HTTP, start at a time on a machine that has other things to do."""
FIRST = [shlex.split(line)[2:] for line in blocks("sh")[0].splitlines()]


def until(condition: Callable[[], Any], said: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline, said()
        time.sleep(0.05)


class RunningNode:
    """`headwater broker` with an admin API, on ports of its own."""

    def __init__(self, log: Path, *words: object) -> None:
        self.port, self.cluster_port, self._admin_port = free_port(), free_port(), free_port()
        self.words = [str(each) for each in words]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        ports = ["--port", self.port, "--cluster-port", self.cluster_port]
        admin = ["--set", "admin.enabled=true", "--set", f"admin.port={self._admin_port}"]
        command = [sys.executable, "-m", "headwater", "broker", *self.words, *ports, *admin]
        environment = os.environ | {"HEADWATER_ADMIN__TOKEN": TOKEN}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*map(str, command)], stdout=log, stderr=log, env=environment)

    def send(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def end(self, number: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self.send(number)
            self._process.wait(PATIENCE)
            self._process = None

    def said(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def ask(self, *words: str) -> Any:
        """What `headwater cluster … --json` prints; None: nobody answers."""
        url = f"http://127.0.0.1:{self._admin_port}"
        done = CliRunner().invoke(
            app, ["cluster", *words, "--json", "--admin", url], env={"HEADWATER_ADMIN__TOKEN": TOKEN}
        )
        return json.loads(done.stdout) if done.exit_code == 0 else None

    def order(self, *words: str) -> None:
        url = f"http://127.0.0.1:{self._admin_port}"
        done = CliRunner().invoke(app, ["cluster", *words, "--admin", url], env={"HEADWATER_ADMIN__TOKEN": TOKEN})
        assert done.exit_code == 0, done.stderr

    def sees(self, nodes: int) -> bool:
        """So many live nodes, with links that are in sync."""
        found = self.ask("status")
        return found is not None and (
            [each["state"] for each in found["nodes"]].count("live") == nodes
            and [each["state"] for each in found["links"]].count("up") == nodes - 1
        )

    def spooled(self) -> int:
        return sum(each["spool_messages"] for each in self.ask("peers") or [])


class RunningNodes:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.all: list[RunningNode] = []

    def start(self, *words: object) -> RunningNode:
        node = RunningNode(self._folder / f"{len(self.all)}.log", *words)
        self.all.append(node)
        node.start()
        return node

    def agree(self) -> None:
        for node in self.all:
            until(lambda node=node: node.sees(len(self.all)), self.said)  # type: ignore[misc]

    def said(self) -> str:
        return "\n".join(node.said() for node in self.all)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[RunningNodes]:
    found = RunningNodes(tmp_path)
    with ExitStack() as stack:
        stack.callback(lambda: [node.end(signal.SIGKILL) for node in found.all])
        yield found


def as_on_the_page(words: list[str], first: RunningNode | None) -> list[str]:
    """A command of the page, without its ports, and with the port of the first node of this test."""
    text = re.sub(r" --(cluster-)?port \d+", "", " ".join(words))
    return text.replace("localhost", "" if first is None else f"localhost:{first.cluster_port}").split()


def test_three_nodes_in_three_commands(nodes: RunningNodes) -> None:
    a = nodes.start(*as_on_the_page(FIRST[0], None))
    b, c = (nodes.start(*as_on_the_page(words, a)) for words in FIRST[1:])
    nodes.agree()
    with Subscribed("-p", c.port, "-t", "plant/#", "-q", 1, "-C", 2, "-v") as subscriber:
        [route] = [a.ask("routes", "plant/7/temperature")]
        assert (route["local"], len(route["links"]), route["is_exact"]) == (False, 1, True)
        pub("-p", b.port, "-t", "plant/7/temperature", "-m", "21.5", "-q", 1)
        pub("-p", a.port, "-t", "plant/8/temperature", "-m", "22.5", "-q", 1)
        lines = sorted(subscriber.output().decode().splitlines())
    assert lines == ["plant/7/temperature 21.5", "plant/8/temperature 22.5"]
    assert {each["mqtt"].rpartition(":")[2] for each in a.ask("status")["nodes"]} == {
        str(each.port) for each in nodes.all
    }


def test_what_was_acknowledged_waits_for_a_node_that_was_killed(nodes: RunningNodes, tmp_path: Path) -> None:
    a = nodes.start("--cluster", "demo", "--node", "a", "--data-dir", tmp_path / "a")
    join = ("--join", f"localhost:{a.cluster_port}")
    b = nodes.start("--cluster", "demo", "--node", "b", "--data-dir", tmp_path / "b", *join)
    nodes.agree()
    reader = ("-p", b.port, "-i", "reader", "-c", "-t", "jobs/#", "-q", 1)
    with Subscribed(*reader):
        pass
    b.end(signal.SIGKILL)
    until(lambda: a.ask("peers")[0]["state"] == "down", a.said)
    for number in range(3):
        pub("-p", a.port, "-t", "jobs/1", "-m", number, "-q", 1)
    assert a.spooled() == 3
    b.start()
    nodes.agree()
    done = headwater("sub", *reader, "-C", 3)
    assert (done.returncode, done.stdout) == (0, b"0\n1\n2\n"), done.stderr
    until(lambda: a.spooled() == 0, a.said)


def test_the_will_of_a_client_whose_node_was_killed_comes_once(nodes: RunningNodes, tmp_path: Path) -> None:
    """From another node; the killed one knows of that when it is back."""
    quick = ("--set", "cluster.will_after=1", "--set", "cluster.heartbeat=0.2", "--set", "cluster.patience=2")
    a = nodes.start("--cluster", "demo", "--node", "a", "--data-dir", tmp_path / "a", *quick)
    join = ("--join", f"localhost:{a.cluster_port}")
    _, c = (
        nodes.start("--cluster", "demo", "--node", name, "--data-dir", tmp_path / name, *join, *quick) for name in "bc"
    )
    nodes.agree()
    will = ("--will-topic", "gone", "--will-payload", "x", "--will-qos", 1)
    with Subscribed("-p", a.port, "-t", "gone", "-q", 1, "-C", 2) as watcher:
        with Subscribed("-p", c.port, "-i", "x", "-t", "nothing", *will):
            until(lambda: any(node.ask("status")["wills_kept"] for node in nodes.all), nodes.said)
            c.end(signal.SIGKILL)
        watcher.wait_for(b"received PUBLISH")
        assert sum(node.ask("status")["wills_published"] for node in nodes.all if node is not c) == 1
        c.start()
        nodes.agree()
        until(lambda: c.ask("status")["wills_held"] == 0, nodes.said)
        pub("-p", c.port, "-t", "gone", "-m", "last", "-q", 1)
        assert watcher.output() == b"x\nlast\n"


def test_a_shared_group_has_members_at_all_nodes_and_outlives_one(nodes: RunningNodes, tmp_path: Path) -> None:
    a = nodes.start("--cluster", "demo", "--node", "a", "--data-dir", tmp_path / "a")
    join = ("--join", f"localhost:{a.cluster_port}")
    b, c = (nodes.start("--cluster", "demo", "--node", name, "--data-dir", tmp_path / name, *join) for name in "bc")
    nodes.agree()
    group = ("-t", "$share/g/jobs/#", "-q", 1)
    with (
        Subscribed("-p", b.port, "-i", "one", *group, "-C", 10),
        Subscribed("-p", c.port, "-i", "two", *group, "-C", 6) as other,
    ):
        assert a.ask("routes", "jobs/1")["groups"] == {"$share/g/jobs/#": ["b", "c"]}
        [shown] = a.ask("groups")
        assert {each["node"]: each["online"] for each in shown["elsewhere"]} == {"b": 1, "c": 1}
        for number in range(4):
            pub("-p", a.port, "-i", "p", "-t", "jobs/1", "-m", number, "-q", 1)
        until(lambda: sum(each["sent"] for each in a.ask("groups")[0]["elsewhere"]) == 4, a.said)
        before = next(each["sent"] for each in a.ask("groups")[0]["elsewhere"] if each["node"] == "c")
        b.end(signal.SIGKILL)
        until(lambda: not a.ask("groups")[0]["elsewhere"][0]["is_linked"] or a.sees(2), a.said)
        for number in range(4, 10 - before):
            pub("-p", a.port, "-i", "p", "-t", "jobs/1", "-m", number, "-q", 1)
        got = sorted(map(int, other.output().decode().split()))
    assert got[before:] == list(range(4, 10 - before))


def test_a_node_is_drained_and_restarted_without_loss(nodes: RunningNodes, tmp_path: Path) -> None:
    a = nodes.start("--cluster", "demo", "--node", "a", "--data-dir", tmp_path / "a")
    join = ("--join", f"localhost:{a.cluster_port}")
    b = nodes.start("--cluster", "demo", "--node", "b", "--data-dir", tmp_path / "b", *join)
    nodes.agree()
    until(lambda: b.ask("status")["not_ready"] == "", nodes.said)
    reader = ("-i", "reader", "-c", "-t", "jobs/#", "-q", 1)
    with Subscribed("-p", b.port, *reader):
        pass
    for number in range(3):
        pub("-p", b.port, "-t", "jobs/1", "-m", number, "-q", 1)
    b.order("drain", "b", "--stay")
    assert b.ask("status")["not_ready"] == "drained"
    refused = headwater("sub", "-p", b.port, *reader, "-C", 1)
    assert refused.returncode != 0 and b"another server" in refused.stderr
    b.end()
    pub("-p", a.port, "-t", "jobs/1", "-m", 3, "-q", 1)  # while it is away
    done = headwater("sub", "-p", a.port, *reader, "-C", 4)
    assert (done.returncode, done.stdout) == (0, b"0\n1\n2\n3\n"), done.stderr
    b.start()
    nodes.agree()
    until(lambda: b.ask("status")["not_ready"] == "", nodes.said)
    pub("-p", b.port, "-t", "jobs/1", "-m", 4, "-q", 1)
    done = headwater("sub", "-p", b.port, *reader, "-C", 1)
    assert (done.returncode, done.stdout) == (0, b"4\n"), done.stderr


def test_orders(nodes: RunningNodes) -> None:
    a = nodes.start("--cluster", "demo", "--node", "a")
    b = nodes.start("--cluster", "demo", "--node", "b")
    nodes.all.remove(b)
    nodes.agree()  # each alone
    nodes.all.append(b)
    until(lambda: b.sees(1), b.said)
    b.order("join", f"localhost:{a.cluster_port}")
    nodes.agree()
    b.order("method", "bloom")
    until(lambda: a.ask("peers")[0]["method"] == "bloom", nodes.said)
    b.order("leave")
    until(lambda: a.sees(1), nodes.said)
    b.end()
    a.order("forget", "b")
    assert [each["node"] for each in a.ask("status")["nodes"]] == ["a"]


def test_another_method_on_sighup(nodes: RunningNodes, tmp_path: Path) -> None:
    file = tmp_path / "headwater.toml"
    file.write_text('[cluster]\nname = "demo"\n')
    a = nodes.start("--config", file)
    nodes.agree()
    file.write_text('[cluster]\nname = "demo"\nmethod = "flood"\n')
    a.send(signal.SIGHUP)
    until(lambda: a.ask("status")["method"] == "flood", a.said)


def test_who_does_not_know_the_secret_stays_out(nodes: RunningNodes, tmp_path: Path) -> None:
    """Though it came before another one, which was let in."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("this is the secret of the cluster\n")
    bad.write_text("this is a secret of somebody else\n")
    demo = ("--cluster", "demo", "--set", "cluster.host=127.0.0.1", "--cluster-secret-file")
    a = nodes.start(*demo, good)
    join = ("--join", f"127.0.0.1:{a.cluster_port}")
    stranger = nodes.start(*demo, bad, *join)
    until(lambda: stranger.sees(1), stranger.said)
    b = nodes.start(*demo, good, *join)
    for node in (a, b):
        until(lambda node=node: node.sees(2), nodes.said)  # type: ignore[misc]
    assert stranger.sees(1)


def test_nodes_with_certificates_of_the_page(nodes: RunningNodes, authority: Path, tmp_path: Path) -> None:
    def tls(node: str, certificate: str) -> Path:
        file = tmp_path / f"{node}.toml"
        file.write_text(
            f'[cluster]\nname = "demo"\nnode = "{node}"\nhost = "127.0.0.1"\n[cluster.tls]\n'
            f'certificate = "{authority}/{certificate}.pem"\nkey = "{authority}/{certificate}.key"\n'
            f'ca = "{authority}/ca.pem"\n'
        )
        return file

    a = nodes.start("--config", tls("a", "a"))
    join = ("--join", f"127.0.0.1:{a.cluster_port}")
    nodes.start("--config", tls("b", "b"), *join)
    nodes.agree()
    pretender = nodes.start("--config", tls("d", "c"), *join)
    until(lambda: "the certificate is not of node d" in pretender.said(), pretender.said)
    until(lambda: pretender.sees(1), pretender.said)
    assert a.sees(2)
