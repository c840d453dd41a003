"""`headwater cluster` as people use it, against the admin API of a broker whose cluster is a fake; and the options by
which a broker becomes a node."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner, Result

from headwater.cli.app import app
from headwater.cli.cluster import span
from headwater.node.admin.serving import AdminServer
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.links.cluster import Cluster
from tests.brokers import PATIENCE, free_port
from tests.node.admin.api import TOKEN, admin
from tests.node.fake_cluster import FakeCluster, link, node
from tests.test_cli_tables import on_a_terminal


class Node:
    """A broker with an admin API, in a thread of its own."""

    def __init__(self) -> None:
        self.cluster: FakeCluster | None = FakeCluster()
        self.url = ""
        self._broker = Broker(Config(host="127.0.0.1", port=0, sys_interval=0))
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._serves = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Node:
        self._thread.start()
        assert self._serves.wait(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(PATIENCE)

    def has(self, cluster: FakeCluster | None) -> None:
        self.cluster = cluster
        self._broker.cluster = cast(Cluster, cluster)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        async with self._broker:
            server = AdminServer(self._broker, admin(host="127.0.0.1", port=0))
            await server.start()
            self.url = f"http://127.0.0.1:{server.port}"
            self._serves.set()
            await self._stopping.wait()
            await server.stop()
            self._broker.cluster = None  # a fake cannot be stopped


@pytest.fixture(scope="module")
def serving() -> Iterator[Node]:
    with Node() as node:
        yield node


@pytest.fixture
def of(serving: Node, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setenv("HEADWATER_ADMIN__TOKEN", TOKEN)
    serving.has(FakeCluster())
    return serving


def headwater(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["cluster", *map(str, arguments)])


def asked(of: Node, *arguments: object) -> str:
    done = headwater(*arguments, "--admin", of.url)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def refused(of: Node, *arguments: object) -> str:
    done = headwater(*arguments, "--admin", of.url)
    assert (done.exit_code, done.stdout) == (1, "")
    return done.stderr


def test_a_drain_shows_what_is_left_until_it_is_done(of: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.cli.cluster.LOOKS", 0.0)
    assert asked(of, "drain", "a").splitlines() == [
        "left: 2 sessions, 4 sessions on their way, 6 messages to other nodes; waits for c",
        "left: 1 sessions, 2 sessions on their way, 3 messages to other nodes; waits for c",
        "a is drained and has left: stop it",
    ]
    assert "undrain a" in asked(of, "drain", "a", "--stay").splitlines()[-1]
    assert "is being drained" in asked(of, "drain", "a", "--no-wait")
    asked(of, "undrain", "a")
    assert of.cluster is not None
    assert of.cluster.orders == [
        *(("drain", "a", False), ("drain", "a", True)),
        *(("drain", "a", False), ("undrain", "a")),
    ]
    assert "ask node b itself" in refused(of, "drain", "b")


def test_a_node_that_takes_no_clients_is_shown_as_such(of: Node) -> None:
    fake = FakeCluster([node("a", phase="catching up"), node("b"), node("c", state="dead", phase="draining")])
    fake.not_ready = "catching up with b"
    of.has(fake)
    first, _, *rows = asked(of, "status").splitlines()
    assert first.endswith("takes no clients: catching up with b")
    assert [" ".join(row.split()[1:-5]) for row in rows] == ["catching up", "live", "dead"]


# ---- looking ----


def test_who_is_in_the_cluster(of: Node) -> None:
    of.has(
        FakeCluster(
            [
                node("a"),
                node("b", since=7300.0),
                node("c", state="dead", phi=300.0, reason="silent"),
                node("d", mqtt=""),
            ]
        )
    )
    first, head, *rows = asked(of, "status").splitlines()
    assert first == "cluster demo: 3 live, 1 dead; node a, method subscribe; 1 of 2 links up"
    assert head.split() == ["node", "state", "address", "mqtt", "phi", "since", "why"]
    assert [row.split() for row in rows] == [
        ["a", "live", "a:11883", "a:1883", "0.2", "90", "s"],
        ["b", "live", "b:11883", "b:1883", "0.2", "2", "h"],
        ["c", "dead", "c:11883", "c:1883", "300.0", "90", "s", "silent"],
        ["d", "live", "d:11883", "0.2", "90", "s"],
    ]
    said = json.loads(asked(of, "status", "--json"))
    assert (said["cluster"], len(said["nodes"]), len(said["links"])) == ("demo", 4, 2)


def test_no_reasons_no_column_of_them(of: Node) -> None:
    of.has(FakeCluster([node("a")], []))
    assert "why" not in asked(of, "status")
    assert asked(of, "peers") == "node a has no links: nobody else has joined demo\n"
    assert json.loads(asked(of, "peers", "--json")) == []


def test_links(of: Node) -> None:
    some = {"messages_received": 12345, "bytes_sent": 2_500_000, "spool_messages": 40, "spool_bytes": 128}
    of.has(FakeCluster(links=[link("b", **some, spool_limit=256), link("c", state="down", reason="refused")]))
    head, b, c = asked(of, "peers").splitlines()
    names = ["peer", "state", "method", "round trip", "in msg", "out msg", "in", "out", "spool", "dropped"]
    assert head.split("  ") != [] and [each.strip() for each in head.split("  ") if each.strip()] == [
        *names,
        "reconnects",
        "why",
    ]
    cells = [each.strip() for each in b.split("  ") if each.strip()]
    assert cells[:5] == ["b", "up", "subscribe", "1.2 ms", "12,345"]
    assert cells[7:9] == ["2.5 MB", "40 (50%)"]
    assert c.endswith("refused")
    assert [each["peer"] for each in json.loads(asked(of, "peers", "--json"))] == ["b", "c"]


@pytest.mark.parametrize("width", [80, 100])
def test_links_on_a_terminal(of: Node, width: int) -> None:
    """Figures that matter less give way first, and it is said; none is cut."""
    some = {"messages_received": 1_234_567, "messages_sent": 7_654_321, "spool_limit": 1 << 28}
    of.has(FakeCluster(links=[link("node-b", **some), link("node-c", **some, state="down")]))
    head, b, c, *note = on_a_terminal(width, "cluster", "peers", "--admin", of.url)
    assert max(map(len, (head, b, c))) <= width
    for word in ("node-b", "up", "1.2 ms", "1,234,567", "7,654,321"):
        assert word in b
    assert ("reconnects" in head, bool(note)) == ((True, False) if width == 100 else (False, True))
    assert not note or "no room for" in note[0]


def test_strange_names_do_not_reach_the_terminal(of: Node) -> None:
    of.has(FakeCluster([node("a", mqtt="\x1b[2J")], [link("b", reason="\x1b[2J")]))
    assert "\x1b" not in asked(of, "status") + asked(of, "peers")


def test_where_a_topic_goes(of: Node) -> None:
    assert asked(of, "routes", "here/1") == "here/1: this node, b\n"
    assert asked(of, "routes", "there/ü 1") == "there/ü 1: b\n"
    assert asked(of, "routes", "nobody") == "nobody: nobody has subscribed\n"
    assert "may be no subscriber behind" in asked(of, "routes", "perhaps")
    assert asked(of, "routes", "shared/1") == "shared/1: b\n$share/g/#: one of a, b\n"
    assert asked(of, "routes", "shared/only") == "$share/g/#: one of a, b\n"
    assert json.loads(asked(of, "routes", "here/1", "--json"))["links"] == ["b"]
    assert "the topic name has a wildcard" in refused(of, "routes", "here/#")


# ---- orders ----


def test_orders(of: Node) -> None:
    assert "cluster status" in asked(of, "join", "b:11883", "c")
    assert "alone" in asked(of, "leave")
    assert "c is forgotten" in asked(of, "forget", "c")
    assert "bloom" in asked(of, "method", "bloom")
    assert of.cluster is not None
    assert of.cluster.orders == [
        ("join", ["b:11883", "c"]),
        ("leave",),
        ("forget", "c"),
        ("use_method", "bloom"),
    ]


def test_what_cannot_be_done_is_said(of: Node) -> None:
    said = refused(of, "forget", "b")
    assert said == ("headwater cluster forget: node b is live; only a dead node, or one that left, can be forgotten\n")
    assert "is not of the form host:port" in refused(of, "join", "wrong:")
    assert "there is no method 'shout'" in refused(of, "method", "shout")


# ---- mistakes that say what to do ----


def test_a_node_that_is_alone(of: Node) -> None:
    of.has(None)
    for command in (["status"], ["peers"], ["routes", "x"], ["join", "b"], ["leave"], ["forget", "b"]):
        assert "this node is in no cluster: start it with --cluster NAME" in refused(of, *command)


def test_no_token(of: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HEADWATER_ADMIN__TOKEN")
    assert "401 Unauthorized; check --token-file" in refused(of, "status")
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert "cluster demo" in asked(of, "status", "--token-file", file)


def test_no_admin_api() -> None:
    done = headwater("status", "--admin", f"http://127.0.0.1:{free_port()}")
    assert done.exit_code == 1
    for word in ("Connection refused", "--set admin.enabled=true", "HEADWATER_ADMIN__TOKEN", "--admin"):
        assert word in done.stderr


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "119 min"), (7200, "2 h"), (1e6, "11 d")]
)
def test_times(seconds: float, text: str) -> None:
    assert span(seconds) == text


# ---- the options of a broker ----


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """With which settings brokers would have run."""
    configs: list[Config] = []

    def run_broker(config: Config, *_: Any) -> int:
        configs.append(config)
        return 0

    monkeypatch.setattr(import_module("headwater.node.run"), "run_broker", run_broker)
    return configs


@pytest.mark.parametrize("command", ["broker", "node"])
def test_a_broker_that_is_a_node_of_a_cluster(command: str, started: list[Config]) -> None:
    words = "--cluster demo --join localhost --join 10.0.0.7:5 --node a --cluster-port 7 --cluster-secret-file s"
    done = CliRunner().invoke(app, [command, *words.split()])
    assert done.exit_code == 0, done.stderr
    cluster = started[0].cluster
    assert (cluster.name, cluster.join, cluster.node) == ("demo", ["localhost", "10.0.0.7:5"], "a")
    assert (cluster.port, cluster.secret_file) == (7, "s")


def test_without_these_options_the_file_counts(started: list[Config], tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('[cluster]\nname = "demo"\njoin = ["b"]\n')
    assert CliRunner().invoke(app, ["broker", "--config", str(file), "--node", "a"]).exit_code == 0
    cluster = started[0].cluster
    assert (cluster.name, cluster.join, cluster.node) == ("demo", ["b"], "a")


def test_an_address_that_is_none(started: list[Config]) -> None:
    done = CliRunner().invoke(app, ["broker", "--cluster", "demo", "--join", "a:many"])
    assert (done.exit_code, started) == (1, [])
    assert "'a:many' is not of the form host:port" in done.stderr


def test_to_join_takes_a_cluster() -> None:
    done = CliRunner().invoke(app, ["broker", "--join", "localhost:11883", "--port", "0"])
    assert (done.exit_code, "name it with --cluster NAME" in done.stderr) == (1, True)
