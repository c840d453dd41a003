"""docs/cluster.md says what works: its commands, files of settings and certificates are tried here."""

from __future__ import annotations

import re
import shlex
import ssl
import subprocess
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from headwater.cli.app import app
from headwater.metric import metrics_of
from headwater.node.config import Config
from headwater.node.links.checking import check_cluster
from headwater.node.links.contexts import LinkContexts, identities
from headwater.node.links.figures import ClusterSeen, LinkSeen
from headwater.node.links.settings import ClusterTls
from headwater.node.settings import leaves, load
from headwater.peering.methods.names import NAMES
from tests.node.admin.api import TOKEN, Api
from tests.node.fake_cluster import FakeCluster
from tests.test_cli_cluster import Node, started

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
__all__ = ["started"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def commands(*names: str) -> list[list[str]]:
    """The words behind `headwater` of the page's commands that begin so."""
    lines = "\n".join(blocks("sh")).replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines if line.startswith("headwater ")]
    return [each[1:] for each in words if each[1] in names]


def test_every_command_is_tried_here() -> None:
    tried = commands("broker", "cluster", "sub", "pub", "top")
    assert len(tried) == len(re.findall(r"^headwater ", "\n".join(blocks("sh")), re.MULTILINE)) > 10


@pytest.mark.parametrize("words", commands("broker"), ids=" ".join)
def test_a_node_would_start(words: list[str], started: list[Config]) -> None:
    done = CliRunner().invoke(app, words, env={"HEADWATER_ADMIN__TOKEN": TOKEN})
    assert done.exit_code == 0, done.stderr
    [config] = started
    assert config.cluster.name == "demo"
    check_cluster(config.cluster)


def test_the_first_commands_are_three_nodes(started: list[Config]) -> None:
    """With ports of their own; the others find the first."""
    first = blocks("sh")[0]
    assert f"## A cluster\n```sh\n{first}```" in (ROOT / "README.md").read_text(encoding="utf-8")
    for line in first.splitlines():
        assert CliRunner().invoke(app, shlex.split(line)[1:]).exit_code == 0
    places = [(each.port, each.cluster.port) for each in started]
    assert places == [(1883, 11883), (1884, 11884), (1885, 11885)]
    assert [each.cluster.join for each in started] == [[], ["localhost"], ["localhost"]]


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Node() as node:
        yield node


@pytest.mark.parametrize("words", commands("cluster"), ids=" ".join)
def test_a_node_answers(words: list[str], node: Node) -> None:
    node.has(FakeCluster())
    done = CliRunner().invoke(app, [*words, "--admin", node.url], env={"HEADWATER_ADMIN__TOKEN": TOKEN})
    assert done.exit_code == 0, done.stderr


def parses(words: list[str]) -> None:
    """A command with its options, which is not run."""
    group: Any = typer.main.get_command(app)
    for number, word in enumerate(words):
        group = group.commands[word]
        if not hasattr(group, "commands"):
            group.make_context(word, words[number + 1 :])
            return
    raise AssertionError(words)


@pytest.mark.parametrize("words", commands("pub", "sub", "top"), ids=" ".join)
def test_other_commands_have_these_options(words: list[str]) -> None:
    parses(words)


@pytest.mark.parametrize("text", blocks("toml"))
def test_settings_go_together(text: str, tmp_path: Path) -> None:
    file = tmp_path / "headwater.toml"
    file.write_text(text, encoding="utf-8")
    config = load(Config, str(file), {}, {}).settings
    assert config.cluster.name
    check_cluster(config.cluster)


def test_the_unit_of_systemd() -> None:
    [unit] = blocks("ini")
    started = re.findall(r"^ExecStart(?:Pre)?=\S+/headwater (.*)$", unit, re.MULTILINE)
    assert len(started) == 2
    for line in started:
        parses(shlex.split(line))


def test_containers(started: list[Config], tmp_path: Path) -> None:
    [text] = blocks("yaml")
    found = import_module("yaml").safe_load(text)  # schemathesis needs it, too
    assert set(found["services"]) == set(found["volumes"]) == {"a", "b", "c"}
    for name, service in found["services"].items():
        assert service["hostname"] == name
        words = ["broker", *shlex.split(service["command"])]
        done = CliRunner().invoke(app, words, env=service["environment"])
        assert done.exit_code == 0, done.stderr
        check_cluster(started[-1].cluster)
        assert (started[-1].cluster.join, started[-1].cluster.host) == (["a", "b", "c"], "*")
    [made] = blocks("dockerfile")
    extras = re.findall(r"headwater\[([\w,]+)\]", made)[0].split(",")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(extras) <= project["project"]["optional-dependencies"].keys()


# ---- certificates ----


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("authority")
    [script] = [each for each in blocks("sh") if "-x509" in each]
    subprocess.run(["sh", "-ec", script], cwd=folder, check=True, capture_output=True, timeout=60)
    return folder


def contexts(folder: Path, node: str) -> LinkContexts:
    return LinkContexts(
        ClusterTls(certificate=f"{folder}/{node}.pem", key=f"{folder}/{node}.key", ca=f"{folder}/ca.pem")
    )


def test_nodes_know_each_other_by_their_certificates(authority: Path) -> None:
    to_a, to_b = ssl.MemoryBIO(), ssl.MemoryBIO()
    a = contexts(authority, "a").client.wrap_bio(to_a, to_b, server_side=False)
    b = contexts(authority, "b").server.wrap_bio(to_b, to_a, server_side=True)
    for _ in range(3):
        for side in (a, b):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    for side, other in ((a, "b"), (b, "a")):
        certificate = dict(side.getpeercert() or {})
        assert identities(certificate, "cn") == identities(certificate, "san") == {other}
    assert (authority / "a.key").stat().st_mode & 0o077 == 0, "for its owner alone"


def test_the_secret_is_long_enough(tmp_path: Path) -> None:
    [line] = [line for each in blocks("sh") for line in each.splitlines() if "> cluster.secret" in line]
    subprocess.run(["sh", "-ec", line], cwd=tmp_path, check=True, timeout=60)
    assert len((tmp_path / "cluster.secret").read_text().strip()) == 64


# ---- names ----


def test_the_methods_are_those_that_there_are() -> None:
    section = PAGE.split("\n## Methods\n")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE)) == set(NAMES)
    assert f"`{Config().cluster.method}` (default)" in section


def test_settings_and_metrics_that_are_named_exist() -> None:
    named = set(re.findall(r"(?<!file )`cluster\.(\w+)[` ]", PAGE))
    assert named and {f"cluster.{each}" for each in named} <= dict(leaves(Config)).keys()
    known = {
        f"headwater_{metric.name}{'_total' if metric.is_counter else ''}"
        for kind in (ClusterSeen, LinkSeen)
        for metric in metrics_of(kind).values()
    }
    metrics = set(re.findall(r"headwater_cluster_\w+", PAGE))
    assert len(metrics) > 3 and metrics <= known


def test_paths_that_are_named_exist() -> None:
    paths = Api().app.openapi()["paths"].keys()
    named = set(re.findall(r"/v1/cluster[/\w]*", PAGE))
    assert len(named) > 3 and named <= paths
    assert {path for path in paths if path.startswith("/v1/cluster")} == named | {
        "/v1/cluster/leave",
        "/v1/cluster/forget",
    }


def test_links_within_the_page_lead_somewhere() -> None:
    headings = {
        re.sub(r"[^\w -]", "", each).strip().lower().replace(" ", "-") for each in re.findall(r"^#+ (.*)$", PAGE, re.M)
    }
    assert set(re.findall(r"\]\(#([\w-]+)\)", PAGE)) <= headings
    for file in re.findall(r"\]\(([\w-]+\.md)", PAGE):
        assert (ROOT / "docs" / file).exists(), file
