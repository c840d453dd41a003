"""`headwater config`: settings before a broker runs with them."""

from __future__ import annotations

import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headwater.cli.app import app
from headwater.disk.lock import locked
from headwater.node.config import Config, load_config
from headwater.node.operations import checking
from headwater.store.disk_store import DiskStore


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Config.model_fields:
        monkeypatch.delenv(f"HEADWATER_{name.upper()}", raising=False)


def headwater(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["config", *map(str, arguments)])


def test_check_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_PORT", "not looked at")
    file = tmp_path / "broker.toml"
    file.write_text("port = 0\n[admin]\nport = 5\n")
    good = headwater("check", file)
    assert (good.exit_code, good.output) == (0, f"{file} is fine\n")
    file.write_text("prot = 1884\n[admin]\nprot = 5\n")
    bad = headwater("check", file)
    assert bad.exit_code == 1
    assert "unknown setting 'prot'; did you mean 'port'?" in bad.output and "'admin.prot'" in bad.output


def test_check_reads_the_files_that_are_named(tmp_path: Path) -> None:
    file, users = tmp_path / "broker.toml", tmp_path / "users"
    users.write_text("nobody")
    file.write_text(
        f"""
        [access]
        password_file = "{users}"
        acl_file = "/no/rules"
        jwt_key_file = "/no/key"
        [admin]
        enabled = true
        token_file = "/no/token"
        [[listeners]]
        port = 0
        tls = {{certificate = "/no/certificate", key = "/no/key"}}
        [[bridges]]
        name = "centre"
        addresses = ["localhost"]
        topics = [{{filter = "#"}}]
        username = "site"
        password_file = "/no/password"
        """
    )
    bad = headwater("check", file)
    assert bad.exit_code == 1
    for part in ("certificate", "key", "rules", "token", "password"):
        assert f"/no/{part}: No such file" in bad.output
    assert f"{users}, line 1: not a user" in bad.output
    assert headwater("check", file, "--without-files").output == f"{file} is fine\n"


def taken_port() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener


def problems_of(file: Path, text: str, *options: str) -> list[str]:
    """What the check says, which is what the start says."""
    file.write_text(text)
    checked = headwater("check", file, *options)
    if checked.exit_code == 0:
        return []
    return checked.stderr.removeprefix("headwater config check: ").splitlines()


def start(file: Path, command: str = "broker") -> str:
    """The last words of a broker that does not start."""
    words = [sys.executable, "-m", "headwater", command, "--config", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    return done.stderr


def test_check_finds_ports_that_are_in_use(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    with taken_port() as taken:
        port = taken.getsockname()[1]
        admin = f'[admin]\nenabled = true\ntoken = "a-token-of-sixteen"\nport = {port}\n'
        text = f'host = "127.0.0.1"\nport = {port}\n{admin}'
        first, second = problems_of(file, text)
        assert first.startswith(f"cannot listen on mqtt://127.0.0.1:{port}: Address already in use; is another broker")
        assert second.startswith(f"cannot listen on http://localhost:{port} for the admin API (admin.host, admin.port)")
        assert f"headwater: {first}" in start(file)
        assert problems_of(file, text, "--running") == []
    assert problems_of(file, text) != []  # both want the same one
    assert problems_of(file, text.replace("enabled = true", "enabled = false")) == []


def test_check_finds_a_data_folder_that_cannot_be_used(tmp_path: Path) -> None:
    file, data = tmp_path / "broker.toml", tmp_path / "data"
    text = f'port = 0\ndata_dir = "{data}"\n'
    assert problems_of(file, text) == []
    assert not data.exists()
    [said] = problems_of(file, text.replace("/data", "/none/data"))
    assert said.endswith(f"there is no {tmp_path / 'none'}; make that one first")
    assert said in start(file)
    data.mkdir()
    assert problems_of(file, text) == []
    with locked(data):
        [said] = problems_of(file, text)
        assert "is used by another running process" in said
        assert said in start(file)
        assert problems_of(file, text, "--running") == []
    (data / "photos").touch()
    [said] = problems_of(file, text)
    assert "is not a data folder and not empty: it has photos" in said
    (data / "photos").unlink()
    (data / "headwater.json").write_text('{"format": "headwater-data", "schema": 99}')
    [said] = problems_of(file, text)
    assert "was written by a newer headwater" in said
    assert said in start(file)


def test_check_finds_a_store_with_another_id(tmp_path: Path) -> None:
    file, data = tmp_path / "node.toml", tmp_path / "data"
    data.mkdir()
    DiskStore(data / "messages", id="one", seal_in_background=False).close()
    text = f'port = 0\ndata_dir = "{data}"\n[rest]\nport = 0\n[store]\nid = "{{}}"\n'
    [said] = problems_of(file, text.format("two"), "--node")
    assert "has the id 'one', not 'two'" in said
    assert said in start(file, "node")
    assert problems_of(file, text.format("one"), "--node") == []


def test_check_finds_libraries_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = checking.find_spec
    monkeypatch.setattr(checking, "find_spec", lambda name: None if name in ("fastapi", "rocksdict") else known(name))
    file = tmp_path / "broker.toml"
    admin = 'port = 0\n[admin]\nenabled = true\nport = 0\ntoken = "a-token-of-sixteen"\n'
    assert problems_of(file, admin) == [
        "the admin API needs fastapi: pip install 'headwater[admin]', or set admin.enabled to false"
    ]
    assert problems_of(file, f'port = 0\ndata_dir = "{tmp_path}"\n') == [
        "a data folder needs rocksdict: pip install 'headwater[durable]', or leave data_dir empty"
    ]


def test_check_finds_logs_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    [said] = problems_of(file, f'port = 0\nlog_to = ["file:{tmp_path}/none/log"]\n')
    assert said == f"cannot log to file:{tmp_path}/none/log: no such folder"
    assert f"cannot log to file:{tmp_path}/none/log" in start(file)
    assert problems_of(file, f'port = 0\nlog_to = ["file:{tmp_path}/log"]\n') == []
    assert not (tmp_path / "log").exists()


def test_show_says_where_each_setting_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_MAX_QOS", "1")
    monkeypatch.setenv("HEADWATER_ADMIN__TOKEN", "hidden-hidden-hidden")
    file = tmp_path / "broker.toml"
    file.write_text("port = 1884\nmax_qos = 0\n")
    shown = headwater("show", file, "--set", "max_inflight=7")
    lines = shown.output.splitlines()
    assert f"port = 1884  # {file}" in lines
    assert "max_qos = 1  # environment HEADWATER_MAX_QOS" in lines
    assert "max_inflight = 7  # command line" in lines
    assert 'host = "localhost"  # default' in lines
    assert "# token is set, and not shown  # environment HEADWATER_ADMIN__TOKEN" in lines
    assert "hidden" not in shown.output
    assert tomllib.loads(shown.output)["port"] == 1884


def test_lists_of_tables_are_shown_as_people_write_them(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(
        """
        [[listeners]]
        port = 8883
        tls = {certificate = "c", key = "k"}
        [[listeners]]
        unix = "/run/mqtt.sock"
        [[bridges]]
        name = "centre"
        addresses = ["localhost"]
        username = "site"
        password = "hidden-hidden"
        topics = [{filter = "#"}]
        """
    )
    shown = headwater("show", file).output
    lines = shown.splitlines()
    assert "unix_mode = 0o660  # default" in lines and "# unix_mode = 0o660" in headwater("init").output
    assert lines.count("[[listeners]]") == 2 and "[listeners.tls]" in lines and "[[bridges.topics]]" in lines
    assert f"port = 8883  # {file}" in lines and 'host = "localhost"  # default' in lines
    assert "hidden" not in shown
    found = tomllib.loads(shown)
    assert found["listeners"][0]["tls"]["certificate"] == "c"
    assert found["listeners"][1]["unix"] == "/run/mqtt.sock"
    assert found["bridges"][0]["topics"][0]["filter"] == "#"


def test_show_fails_as_the_broker_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_PORT", "many")
    shown = headwater("show")
    assert shown.exit_code == 1 and "environment HEADWATER_PORT" in shown.output
    assert headwater("show", "--set", "port").exit_code == 1


def test_init_writes_a_file_and_overwrites_none(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    assert headwater("init", "-o", file).exit_code == 0
    assert load_config(str(file), {}, {}) == Config()
    assert headwater("init").output == file.read_text()
    again = headwater("init", "-o", file)
    assert again.exit_code == 1 and "exists and is not overwritten" in again.output
    assert headwater("init", "-o", tmp_path / "none" / "x").exit_code == 1


def test_a_file_of_mosquitto_is_converted(tmp_path: Path) -> None:
    conf, file = tmp_path / "mosquitto.conf", tmp_path / "broker.toml"
    conf.write_text("port 1888\nallow_anonymous true\npid_file /run/x\n")
    assert headwater("from-mosquitto", conf, "-o", file).exit_code == 0
    config = load_config(str(file), {}, {})
    assert (config.port, config.allow_anonymous) == (1888, True)
    assert "pid_file" in file.read_text()
    conf.write_text("port 1888\nhttp_dir x\nmax_inflight_bytes 5\n")
    told = headwater("from-mosquitto", conf, "-o", tmp_path / "other.toml")
    assert told.exit_code == 0
    assert "2 lines are NOT SUPPORTED; the comments in other.toml say why" in " ".join(told.stderr.split())
    conf.write_text("port many\n")
    bad = headwater("from-mosquitto", conf)
    assert bad.exit_code == 1 and "mosquitto.conf:1: port many" in bad.output


def test_a_listener_with_pre_shared_keys_does_not_become_a_plain_one(tmp_path: Path) -> None:
    conf, file = tmp_path / "mosquitto.conf", tmp_path / "broker.toml"
    conf.write_text("listener 8883\npsk_hint x\nallow_anonymous true\nmount_point tenant/\n")
    for output in (["-o", file], []):
        told = headwater("from-mosquitto", conf, *output)
        said = " ".join(told.stderr.split())
        assert told.exit_code == 1 and not told.stdout and not file.exists()
        assert "mosquitto.conf:2: psk_hint x" in said and "use certificates" in said
    half = headwater("from-mosquitto", conf, "-o", file, "--accept-loss", "mosquitto.conf:2")
    assert half.exit_code == 1 and "mount_point" in half.stderr and not file.exists()
    accept = ["--accept-loss", "mosquitto.conf:2", "--accept-loss", "mosquitto.conf:4"]
    assert headwater("from-mosquitto", conf, "-o", file, *accept).exit_code == 0 and file.exists()


def test_what_is_converted_is_for_its_owners_eyes(tmp_path: Path) -> None:
    """A bridge's password may be in it."""
    conf, file = tmp_path / "mosquitto.conf", tmp_path / "broker.toml"
    conf.write_text("connection b\naddress h\ntopic #\nremote_username u\nremote_password hunter2\n")
    assert headwater("from-mosquitto", conf, "-o", file).exit_code == 0
    assert "hunter2" in file.read_text() and file.stat().st_mode & 0o777 == 0o600
    assert "holds a password" in headwater("from-mosquitto", conf).stderr
