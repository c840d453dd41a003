"""Settings of a cluster that need each other: said before a node starts, and by `headwater config check`."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from headwater.node.broker import Broker
from headwater.node.config import Config, ConfigError
from headwater.node.links.checking import check_cluster
from headwater.node.operations.checking import problems
from headwater.node.run import run_broker
from headwater.node.transports.sockets import listen_unix

SECRET = "a-secret-of-sixteen-and-more"


def config(**cluster: Any) -> Config:
    return Config.model_validate({"port": 0, "cluster": cluster})


@pytest.mark.parametrize(
    ("name", "value"), [("join", ["localhost:11884"]), ("join_file", "nodes"), ("neighbours", ["b"])]
)
def test_what_is_of_a_cluster_needs_one(name: str, value: Any, capsys: pytest.CaptureFixture[str]) -> None:
    alone = config(**{name: value})
    said = f"cluster.{name} needs a cluster: name it with --cluster NAME (cluster.name)"
    with pytest.raises(ConfigError, match=r"--cluster NAME"):
        check_cluster(alone.cluster)
    assert problems(alone) == [said]
    assert run_broker(alone) == 1, "it does not start"
    assert capsys.readouterr().err == f"headwater: {said}\n"
    check_cluster(config(**{name: value}, name="demo").cluster)


def test_an_embedded_broker_asks_for_the_same() -> None:
    async def start(settings: Config) -> None:
        async with Broker(settings):
            raise AssertionError("it has started")

    for settings, said in (
        (config(join=["a"]), "cluster.join needs a cluster"),
        (config(name="demo", host="*"), "could join the cluster"),
        (config(name="demo", advertise="a:b"), "cluster.advertise"),
    ):
        with pytest.raises(ConfigError, match=said):
            asyncio.run(start(settings))


def test_all_that_is_wrong_is_said() -> None:
    with pytest.raises(ConfigError) as caught:
        check_cluster(config(join=["a"], neighbours=["b"]).cluster)
    assert len(str(caught.value).splitlines()) == 2


TLS = {"certificate": "/no/certificate", "key": "/no/key", "ca": "/no/ca"}


@pytest.mark.parametrize("host", ["*", "0.0.0.0", "::", "192.0.2.7", "a-name-that-nobody-knows.invalid"])
def test_other_machines_have_to_show_something(host: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_cluster(config(name="demo", host=host).cluster)
    for word in (host, "cluster.secret_file", "[cluster.tls]", "loopback"):
        assert word in str(caught.value)
    for enough in ({"secret": SECRET}, {"secret_file": "secret"}, {"tls": TLS, "node": "a"}):
        check_cluster(config(name="demo", host=host, **enough).cluster)


@pytest.mark.parametrize("where", [{}, {"host": "127.0.0.3"}, {"host": "::1"}, {"unix": "/run/x", "host": "*"}])
def test_this_machine_has_not(where: dict[str, str]) -> None:
    check_cluster(config(name="demo", **where).cluster)


def test_a_name_of_this_machine_is_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"loop": ["127.0.0.1", "::1"], "both": ["127.0.0.1", "192.0.2.7"]}
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, port, **_: [(0, 0, 0, "", (each, port)) for each in known[host]]
    )
    check_cluster(config(name="demo", host="loop").cluster)
    with pytest.raises(ConfigError):
        check_cluster(config(name="demo", host="both").cluster)


def test_a_node_with_a_certificate_has_its_name() -> None:
    with pytest.raises(ConfigError, match=r"cluster\.node is not set"):
        check_cluster(config(name="demo", tls=TLS).cluster)
    check_cluster(config(name="demo", tls={**TLS, "identity": "none"}).cluster)


def test_where_others_reach_it_is_an_address() -> None:
    with pytest.raises(ConfigError, match=r"cluster\.advertise: 'a:b' is not of the form host:port"):
        check_cluster(config(name="demo", advertise="a:b").cluster)


def test_the_files_of_a_cluster_are_read(tmp_path: Path) -> None:
    said = "\n".join(problems(config(name="demo", node="a", port=0, secret_file="/no/secret", tls=TLS)))
    for file in ("secret", "certificate"):
        assert f"/no/{file}: No such file" in said
    secret = tmp_path / "secret"
    secret.write_text("fifteen letters\n")
    [said] = problems(config(name="demo", port=0, secret_file=str(secret)))
    assert said.startswith(f"the secret in cluster.secret_file {secret} has fewer than 16 characters")
    secret.write_text(SECRET)
    assert problems(config(name="demo", port=0, secret_file=str(secret), join_file="/not/there/yet")) == []


def test_the_place_for_nodes_has_to_be_free(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        [said] = problems(config(name="demo", host="127.0.0.1", port=port))
        assert said.startswith(f"cannot listen on cluster://127.0.0.1:{port} for nodes (cluster.host, cluster.port): ")
        assert problems(config(name="demo", host="127.0.0.1", port=port), is_running=True) == []
        assert problems(config(host="127.0.0.1", port=port)) == [], "it is alone, and does not listen"
    path = str(tmp_path / "nodes")
    with listen_unix(path, 0o600):
        [said] = problems(config(name="demo", unix=path))
        assert said.startswith(f"cannot listen on {path} for nodes (cluster.unix): Address already in use")
    assert problems(config(name="demo", unix=path)) == []
    assert not Path(path).exists()
