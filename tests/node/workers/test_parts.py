from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from headwater.node.config import Config
from headwater.node.settings import ConfigError
from headwater.node.workers.parts import LinksFolder, check_workers, make_links_folder, packed, part_of, unpacked
from tests.node.admin.api import admin

LINKS = LinksFolder(Path("/links"), "0123456789abcdef", False)


def refusal(**settings: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        check_workers(Config(**settings))
    return str(caught.value)


def test_each_worker_is_a_node_of_its_own_with_its_part_of_the_data() -> None:
    config = Config(
        workers=3,
        data_dir="/data",
        store={"enabled": True, "id": "plant"},
        rest={"enabled": True, "port": 8080},
        admin=admin(),
        bridges=[{"name": "up", "addresses": ["example.org"], "topics": [{"filter": "#"}]}],
    )
    parts = [part_of(config, number, LINKS) for number in range(3)]
    assert [each.cluster.node for each in parts] == ["worker-00", "worker-01", "worker-02"]
    assert [each.cluster.unix for each in parts] == ["/links/0.sock", "/links/1.sock", "/links/2.sock"]
    assert [each.cluster.join for each in parts] == [
        ["unix:/links/1.sock", "unix:/links/2.sock"],
        ["unix:/links/2.sock"],
        [],
    ]
    assert {each.cluster.secret.get_secret_value() for each in parts} == {"0123456789abcdef"}
    assert [each.data_dir for each in parts] == ["/data/worker-0", "/data/worker-1", "/data/worker-2"]
    assert [each.store.id for each in parts] == ["plant-0", "plant-1", "plant-2"]
    assert [each.rest.port for each in parts] == [8080, 8081, 8082]
    assert [len(each.bridges) for each in parts] == [1, 0, 0]
    assert not any(each.admin.enabled for each in parts)
    assert {each.workers for each in parts} == {1}


def test_settings_reach_the_process_with_their_secrets_and_what_was_set() -> None:
    config = Config(port=1884, admin=admin(token=SecretStr("0123456789abcdefg")))
    found = unpacked(packed(config))
    assert found == config
    assert found.model_fields_set == {"port", "admin"}
    assert found.admin.token.get_secret_value() == "0123456789abcdefg"


def test_fewer_workers_than_folders_are_refused(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"worker-{number}").mkdir()
    for workers in (1, 2):
        text = refusal(workers=workers, data_dir=str(tmp_path))
        assert f"the data folder of 3 workers, and workers is {workers}" in text
        assert "--workers 3" in text
    check_workers(Config(workers=3, data_dir=str(tmp_path)))
    check_workers(Config(workers=5, data_dir=str(tmp_path)))  # new ones begin empty


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "worker-1").mkdir()
    assert "no worker-0" in refusal(workers=2, data_dir=str(tmp_path))


def test_a_broker_without_workers_keeps_its_folder(tmp_path: Path) -> None:
    (tmp_path / "headwater.json").write_text("{}")
    assert f"moving all that is in it to {tmp_path / 'worker-0'}" in refusal(workers=2, data_dir=str(tmp_path))
    check_workers(Config(data_dir=str(tmp_path)))


def test_what_does_not_go_together_yet_is_said() -> None:
    assert "a cluster of several machines do not go together yet" in refusal(workers=2, cluster={"name": "c"})
    assert "advice do not go together yet" in refusal(workers=2, advice={"enabled": True})
    check_workers(Config(cluster={"name": "c"}, advice={"enabled": True}))


def test_only_linux_spreads_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert "need Linux" in refusal(workers=2)


def test_there_is_a_port_for_the_rest_of_each_worker(tmp_path: Path) -> None:
    settings = {"data_dir": str(tmp_path), "store": {"enabled": True}}
    assert "rest.port = 65535" in refusal(workers=2, rest={"enabled": True, "port": 65535}, **settings)
    check_workers(Config(workers=2, rest={"enabled": True, "port": 65534}, **settings))


def test_only_this_user_may_enter_where_workers_are_linked(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (tmp_path / "open").mkdir(mode=0o755)
    for found in (make_links_folder(str(data)), make_links_folder("")):
        assert found.path.stat().st_mode & 0o777 == 0o700
        assert len(found.secret) == 32
        if found.is_temporary:
            found.path.rmdir()
    assert (data / "links").is_dir()


def test_a_long_path_is_not_used_for_sockets(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 90)
    found = make_links_folder(str(long))
    assert found.is_temporary
    assert len(found.socket_of(63)) < 107
    found.path.rmdir()
