"""What a running broker takes over on SIGHUP, and what it says of the rest."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import SecretStr

from headwater.node.broker import Broker
from headwater.node.config import RELOADABLE, Admin, Config, ConfigError
from headwater.node.links.cluster import Cluster
from headwater.node.operations.reloading import Reloader, changed_settings, is_reloadable
from headwater.node.settings import leaves
from headwater.session.waiting import DROP_OLDEST
from headwater.wire.packets import Connect, Properties
from tests.node.fake_cluster import FakeCluster
from tests.node.memory import Client, MemoryBroker


class Reloading:
    def __init__(self, **settings: Any) -> None:
        self.broker = Broker(Config(sys_interval=0, **settings))
        self.memory = MemoryBroker(self.broker.config, self.broker.hooks)
        self.broker.server = self.memory.server
        self.logs_reopened = 0
        self.read: Callable[[], Config] = lambda: self.broker.config
        self.reloader = Reloader(self.broker, self._read, self._reopen)

    def _read(self) -> Config:
        return self.read()

    def _reopen(self) -> None:
        self.logs_reopened += 1

    def reload(self, **settings: Any) -> None:
        self.read = lambda: Config(**{"sys_interval": 0, **settings})
        self.reloader.reload()

    def connect(self, client_id: str) -> int:
        return Client(self.memory).connect(Connect(client_id, 5)).reason


@pytest.fixture(autouse=True)
def keep_log_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)  # is put back afterwards


def test_what_is_looked_up_when_needed_is_replaced() -> None:
    node = Reloading()
    assert node.connect("a") == 0
    node.reload(max_connections=1)
    assert node.connect("b") == 0x89
    node.reload(max_connections=2)
    assert node.connect("b") == 0


def test_what_new_clients_are_told_is_replaced() -> None:
    node = Reloading()
    node.reload(allow_empty_client_id=False, terse=True)
    refused = Client(node.memory).connect(Connect("", 5))
    assert (refused.reason, refused.properties) == (0x85, None)
    node.reload(auto_id_prefix="new-")
    answer = Client(node.memory).connect(Connect("", 5))
    assert answer.properties is not None
    assert (answer.properties.assigned_client_identifier or "").startswith("new-")


def test_what_was_copied_is_copied_again() -> None:
    node = Reloading()
    server = node.broker.server
    node.reload(
        max_queue_memory=5, max_connect_size=2000, max_retained=6, max_retained_bytes=7, queue_full="drop_oldest"
    )
    assert (server.budget.limit, server.hot.max_connect_size, server.policy) == (5, 2000, DROP_OLDEST)
    assert (server.router.retained.max_messages, server.router.retained.max_bytes) == (6, 7)
    node.reload(max_packet_size=1000)
    assert server.hot.max_connect_size == 1000


def test_the_log_level_changes() -> None:
    node = Reloading()
    node.reload(log_level="error")
    assert logging.getLogger().level == logging.ERROR


def test_what_needs_a_restart_stays_and_is_named(caplog: pytest.LogCaptureFixture) -> None:
    node = Reloading(port=1883, max_qos=2)
    node.reload(port=1884, max_qos=1, max_inflight=5, admin=Admin(port=5))
    assert (node.broker.config.port, node.broker.config.max_qos, node.broker.config.admin.port) == (1883, 2, 18830)
    assert node.broker.config.max_inflight == 5
    assert "changed: max_inflight\n" in caplog.text
    assert "only a restart takes them over: port, max_qos, admin.port" in caplog.text


def test_nothing_has_changed(caplog: pytest.LogCaptureFixture) -> None:
    node = Reloading()
    node.reload()
    assert "changed: nothing" in caplog.text and "restart" not in caplog.text
    assert node.logs_reopened == 1


def test_settings_that_cannot_be_used_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    node = Reloading()
    before = node.broker.config

    def fail() -> Config:
        raise ConfigError("unknown setting 'x'")

    node.read = fail
    node.reloader.reload()
    assert node.broker.config is before
    assert "stay as they are: unknown setting 'x'" in caplog.text
    assert node.logs_reopened == 1


def test_files_of_access_are_read_again_with_their_settings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = Reloading(allow_anonymous=True)
    rules = tmp_path / "acl"
    rules.write_text("topic read x\n")
    node.reload(allow_anonymous=True, access={"acl_file": str(rules)})
    assert "changed: access.acl_file" in caplog.text
    before = node.broker.config
    node.reload(allow_anonymous=True, access={"acl_file": str(tmp_path / "none")}, max_inflight=7)
    assert node.broker.config is before, "all or nothing"
    assert "a file cannot be used" in caplog.text


def test_a_bad_token_keeps_the_access_files_from_changing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = Reloading(allow_anonymous=True, admin=Admin(enabled=True, token=SecretStr("a" * 20)))
    node.reloader.token = type("Holder", (), {"use": lambda self, settings: None})()
    rules = tmp_path / "acl"
    rules.write_text("topic read x\n")
    before = node.broker.server.access.settings
    none = Admin(enabled=True, token_file=str(tmp_path / "none"))
    node.reload(allow_anonymous=True, access={"acl_file": str(rules)}, admin=none)
    assert node.broker.server.access.settings is before
    assert "cannot read admin.token_file" in caplog.text


def test_what_a_table_that_is_reloaded_cannot_is_named(caplog: pytest.LogCaptureFixture) -> None:
    node = Reloading()
    node.reload(access={"verify_threads": 7, "max_verifying": 9})
    assert (node.broker.config.access.verify_threads, node.broker.config.access.max_verifying) == (0, 9)
    assert "changed: access.max_verifying\n" in caplog.text and "over: access.verify_threads" in caplog.text


def test_a_token_is_replaced_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    used: list[Admin] = []
    holder = type("Holder", (), {"use": lambda self, settings: used.append(settings)})()
    node = Reloading(admin=Admin(enabled=True, token=SecretStr("a" * 20)))
    node.reloader.token = holder
    node.reload(admin=Admin(enabled=True, token=SecretStr("b" * 20)))
    assert used[0].token.get_secret_value() == "b" * 20
    assert "changed: admin.token" in caplog.text and "b" * 20 not in caplog.text


def test_changes_are_found_in_every_table() -> None:
    after = Config(port=1, admin=Admin(port=2), listeners=[{"port": 3}])  # type: ignore[list-item]
    assert changed_settings(Config(), after) == ["port", "listeners", "admin.port"]
    assert {name for name, _ in leaves(Config) if is_reloadable(name)} >= RELOADABLE - {"access"}


def test_sessions_to_come_have_the_new_bounds() -> None:
    node = Reloading()
    kept = Properties(session_expiry_interval=100)
    node.reload(max_session_expiry=10)
    answer = Client(node.memory).connect(Connect("a", 5, properties=kept))
    assert answer.properties is not None and answer.properties.session_expiry_interval == 10


def test_a_node_tells_its_interest_by_another_method_from_now_on(caplog: pytest.LogCaptureFixture) -> None:
    node, cluster = Reloading(cluster={"name": "demo"}), FakeCluster()
    node.broker.cluster = cast(Cluster, cluster)
    node.reload(cluster={"name": "demo"})
    assert cluster.orders == [], "it has not changed"
    node.reload(cluster={"name": "demo", "method": "bloom", "port": 5})
    assert cluster.orders == [("use_method", "bloom")]
    assert (node.broker.config.cluster.method, node.broker.config.cluster.port) == ("bloom", 11883)
    assert "changed: cluster.method\n" in caplog.text and "over: cluster.port" in caplog.text
    node.broker.cluster = None
    node.reload(cluster={"name": "demo", "method": "flood"})
    assert node.broker.config.cluster.method == "flood"
