"""`headwater top`: figures from the admin API and from `$SYS`, of our broker and of a strange one."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from headwater.cli.admin import Admin, AdminError
from headwater.cli.top import MOST_GROUPS, AdminApi, SharedGroup, Snapshot, TopView, _watch_admin, from_sys
from headwater.node.admin.cluster_desk import ClusterDesk
from headwater.node.broker import Broker
from headwater.node.operations.worker_figures import WorkerSeen
from headwater.node.protocol.statistics import Statistics
from tests.brokers import both_brokers, running
from tests.node.admin.api import TOKEN
from tests.node.admin.test_serving import SETTINGS, served
from tests.node.fake_cluster import FakeCluster
from tests.test_cli import Subscribed, headwater


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with running(request.param, tmp_path_factory.mktemp("broker"), "allow_anonymous true\nsys_interval 1") as port:
        yield port


def printed(view: TopView, snapshot: Snapshot) -> str:
    console = Console(file=io.StringIO(), width=160)
    with console.capture() as captured:
        console.print(view.render(snapshot))
    return captured.get()


@both_brokers
def test_sys_of_any_broker(broker: int) -> None:
    done = headwater("top", "-p", broker, "--once")
    assert done.returncode == 0, done.stderr
    assert b"connections" in done.stdout and b"messages/s" in done.stdout
    [row] = [line.split() for line in done.stdout.decode().splitlines() if line.split()[:1] == ["out"]]
    assert row[1].replace(",", "").isdecimal()  # between two samples


def test_the_admin_api(tmp_path: Path) -> None:
    with served(tmp_path, SETTINGS + "\n") as broker, Subscribed("-p", broker.port, "-t", "$share/g/x/#"):
        token = tmp_path / "token"
        token.write_text(TOKEN)
        url = f"http://127.0.0.1:{broker.admin_port}/"
        done = headwater("top", "--admin", url, "--token-file", token, "--once")
        assert done.returncode == 0, done.stderr
        assert b"connections 1" in done.stdout and b"$share/g/x/#" in done.stdout and b"1 of 1" in done.stdout
        refused = headwater("top", "--admin", url, "--once")
        assert (refused.returncode, b"401" in refused.stderr) == (1, True)
    gone = headwater("top", "--admin", url, "--token-file", token, "--once")
    assert (gone.returncode, b"cannot ask" in gone.stderr) == (1, True)


def test_the_broker_is_not_loaded() -> None:
    """It takes three times as long to import as all that the view needs."""
    code = "import sys; from headwater.cli.top import *; from_sys({}); TopView(); print(*sys.modules, sep='\\n')"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "headwater.node.protocol.statistics" in loaded
    assert {"headwater.node.broker", "headwater.node.config", "pydantic"}.isdisjoint(loaded)


def test_topics_become_figures() -> None:
    snapshot = from_sys(
        {
            "uptime": "12 seconds",
            "clients/connected": "3",
            "clients/total": "4",
            "retained messages/count": "5",
            "messages/stored": "7",
            "publish/messages/received": "100",
            "publish/messages/dropped": "many",
            "shared/g/jobs%2F%23/dispatcher": "random",
            "shared/g/jobs%2F%23/messages/sent": "8",
            "shared/g/jobs%2F%23/messages/waiting": "9",
            "shared/g/jobs%2F%23/member/a": '{"online": true}',
            "shared/g/jobs%2F%23/member/b": '{"online": false}',
        }
    )
    expected = Statistics(uptime=12, connections=3, sessions=4, retained=5, queued=2, messages_received=100)
    assert snapshot.figures == expected
    assert snapshot.groups == [SharedGroup("$share/g/jobs/#", "random", 8, 9, 2, 1)]


def test_rates_of_groups() -> None:
    view = TopView()
    printed(view, Snapshot(Statistics(uptime=10), [SharedGroup("g", sent=100)]))
    text = printed(view, Snapshot(Statistics(uptime=12), [SharedGroup("g", "random", 500, 1, 3, 2)]))
    [row] = [line.split() for line in text.splitlines() if line.startswith("g ")]
    assert row == ["g", "random", "2", "of", "3", "1", "200", "500"]


def test_a_first_look_knows_no_rates() -> None:
    view = TopView()
    text = printed(view, Snapshot(Statistics(uptime=3600, messages_received=7200), [SharedGroup("g", sent=3600)]))
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.split()}
    assert (rows["in"][1:4], rows["g"][-2]) == (["–", "–", "7,200"], "–")
    assert not view.has_rates


def test_a_look_of_a_young_broker_has_rates() -> None:
    """It takes two samples, also if the first one is of the moment at which the broker began."""
    samples = iter(
        [Snapshot(Statistics()), Snapshot(Statistics(uptime=0.5, messages_received=100, bytes_received=700))]
    )
    console = Console(file=io.StringIO(), width=160)
    _watch_admin(lambda: next(samples), console, 0.001, once=True)
    assert isinstance(console.file, io.StringIO)
    [row] = [line.split() for line in console.file.getvalue().splitlines() if line.split()[:1] == ["in"]]
    assert row[1:6] == ["200", "1.4", "kB", "100", "700"]


def test_a_cluster_in_a_line() -> None:
    fake = FakeCluster()
    said = ClusterDesk(cast(Broker, SimpleNamespace(cluster=fake))).cluster()
    text = printed(TopView(), Snapshot(Statistics(uptime=1), [], said))
    assert "cluster demo: 2 live, 1 dead; node a, method subscribe; 1 of 2 links up (down: c)\n" in text
    assert "cluster" not in printed(TopView(), Snapshot(Statistics(uptime=1)))


class Answers:
    """An admin API; `cluster` and `workers` are what it says of these."""

    def __init__(self, cluster: Any, workers: Any = ()) -> None:
        self.cluster = cluster
        self.workers = workers
        self.asked: list[str] = []

    def ask(self, path: str) -> Any:
        self.asked.append(path)
        answers = {"/v1/statistics": {}, "/v1/groups": [], "/v1/cluster": self.cluster, "/v1/workers": self.workers}
        if isinstance(answers[path], AdminError):
            raise answers[path]
        return answers[path]


def test_who_is_alone_is_asked_once() -> None:
    answers = Answers(AdminError("answers 404", 404))
    api = AdminApi(cast(Admin, answers))
    assert [api.read().cluster, api.read().cluster] == [None, None]
    assert answers.asked.count("/v1/cluster") == 1
    assert AdminApi(cast(Admin, Answers({"cluster": "demo"}))).read().cluster == {"cluster": "demo"}
    with pytest.raises(AdminError):
        AdminApi(cast(Admin, Answers(AdminError("gone")))).read()


def test_who_has_no_workers_is_asked_once() -> None:
    for workers in ([], AdminError("an older broker", 404)):
        answers = Answers({}, workers)
        api = AdminApi(cast(Admin, answers))
        assert [api.read().workers, api.read().workers] == [[], []]
        assert answers.asked.count("/v1/workers") == 1
    with pytest.raises(AdminError):
        AdminApi(cast(Admin, Answers({}, AdminError("gone")))).read()


def test_workers_are_shown() -> None:
    seen = WorkerSeen("0", 4711, True, connections=12, forwarded=3456, cpu_seconds=7.4, resident_bytes=61 << 20)
    workers = [asdict(seen), asdict(WorkerSeen("1", restarts=2))]
    api = AdminApi(cast(Admin, Answers({}, workers)))
    assert api.read().workers == workers
    lines = printed(TopView(), Snapshot(Statistics(uptime=1), workers=workers)).splitlines()
    assert [line.split() for line in lines[-2:]] == [
        ["0", "up", "4711", "12", "0", "0", "3,456", "7", "61", "0"],
        ["1", "down", "0", "0", "0", "0", "0", "0", "2"],
    ]


def test_strange_names_of_groups_are_shown_as_they_are() -> None:
    groups = [SharedGroup("$share/g/[red]\x1b[2J")] + [SharedGroup(f"g{number}") for number in range(MOST_GROUPS)]
    text = printed(TopView(), Snapshot(Statistics(uptime=1), groups))
    assert "$share/g/[red]·[2J" in text and "\x1b[2J" not in text
    assert "… 1 more" in text
