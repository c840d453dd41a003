"""Mosquitto's configuration files: each line is converted, or it is said why not."""

from __future__ import annotations

import socket
import tomllib
from pathlib import Path
from typing import Any

import pytest

from headwater.node.config import Config, ConfigError, load_config
from headwater.node.mosquitto_conf import CONVERTERS, from_mosquitto
from headwater.node.mosquitto_leftovers import NOT_NEEDED, NOT_SUPPORTED
from headwater.wire import encode
from headwater.wire.packets import Connect
from tests.brokers import PATIENCE, free_port
from tests.node.test_run import Process


def converted(folder: Path, text: str) -> str:
    path = folder / "mosquitto.conf"
    path.write_text(text)
    return from_mosquitto(path)


def settings(folder: Path, text: str) -> dict[str, Any]:
    return tomllib.loads(converted(folder, text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# only a remark\n\n", {}),
        ("port 1888\n", {"port": 1888, "host": "0.0.0.0", "allow_anonymous": False}),
        ("port 1888\nallow_anonymous true", {"port": 1888, "host": "0.0.0.0", "allow_anonymous": True}),
        ("allow_anonymous true\nlistener 1 127.0.0.1", {"port": 1, "host": "127.0.0.1", "allow_anonymous": True}),
        ("bind_address ::1", {"host": "::1", "port": 1883, "allow_anonymous": False}),
        ("listener 1\nsocket_domain ipv6", {"host": "::", "port": 1, "allow_anonymous": False}),
        (
            "per_listener_settings true\nlistener 1\nallow_anonymous true\nmax_connections 5",
            {"host": "0.0.0.0", "port": 1, "allow_anonymous": True, "max_connections": 5},
        ),
        ("allow_anonymous true", {"allow_anonymous": True}),
        ("allow_anonymous false", {"allow_anonymous": False}),
        ("max_inflight_messages 10", {"max_inflight": 10, "receive_maximum": 10}),
        ("max_inflight_messages 0", {"max_inflight": 65535, "receive_maximum": 65535}),
        ("max_queued_messages 5\nmax_queued_bytes 6", {"max_queued_messages": 5, "max_queued_bytes": 6}),
        ("max_queued_messages 0", {"max_queued_messages": 1 << 31}),
        ("max_packet_size 40", {"max_packet_size": 40}),
        ("message_size_limit 100", {"max_packet_size": 100 + 132 * 1024}),
        ("message_size_limit 0", {}),
        ("max_keepalive 60", {"max_keep_alive": 60}),
        ("max_qos 1\nretain_available false", {"max_qos": 1, "retain_available": False}),
        ("max_topic_alias 5", {"topic_alias_maximum": 5}),
        ("memory_limit 1000", {"max_queue_memory": 1000}),
        ("persistent_client_expiration 2d", {"max_session_expiry": 172800}),
        ("persistent_client_expiration 900y", {"max_session_expiry": 0xFFFFFFFF}),
        ("allow_duplicate_messages true", {"overlapping": "separate"}),
        ("sys_interval 0", {"sys_interval": 0}),
        ("log_type error\nlog_type notice\nlog_type warning", {"log_level": "info"}),
        ("log_type all", {"log_level": "debug"}),
        ("log_dest syslog\nlog_dest file /var/log/m.log", {"log_to": ["syslog", "file:/var/log/m.log"]}),
        ("log_dest stdout", {"log_to": ["stderr"]}),
    ],
)
def test_what_becomes_of_lines(text: str, expected: dict[str, Any], tmp_path: Path) -> None:
    assert settings(tmp_path, text) == expected
    Config(**expected)


@pytest.mark.parametrize("name", [*NOT_NEEDED, *NOT_SUPPORTED])
def test_what_is_not_converted_is_said(name: str, tmp_path: Path) -> None:
    text = converted(tmp_path, f"{name} abc")
    assert tomllib.loads(text) == {}
    assert name not in CONVERTERS
    assert f"mosquitto.conf:1: {name} " in text
    assert (NOT_NEEDED.get(name) or NOT_SUPPORTED[name]) in text


def test_files_of_access(tmp_path: Path) -> None:
    text = "per_listener_settings true\nlistener 1\npassword_file /p\nacl_file /a\nlistener 2\nacl_file /b\n"
    said = converted(tmp_path, text)
    assert tomllib.loads(said)["access"] == {"password_file": "/p", "acl_file": "/a", "acl_subscribe": "always"}
    assert "acl_file /b\n#   NOT SUPPORTED: there is one acl_file for all listeners, /a." in said
    config = Config(**tomllib.loads(said))
    assert (config.access.acl_file, [each.port for each in config.listeners]) == ("/a", [1, 2])


@pytest.mark.parametrize(("per_listener", "expected"), [("true", [True, None]), ("false", [None, None])])
def test_settings_of_one_listener(per_listener: str, expected: list[bool | None], tmp_path: Path) -> None:
    text = f"per_listener_settings {per_listener}\nlistener 1\nallow_anonymous true\nlistener 2\n"
    config = Config(**settings(tmp_path, text))
    assert [each.allow_anonymous for each in config.listeners] == expected
    assert config.allow_anonymous is (per_listener == "false")


def test_authorities_that_nobody_is_asked_for_are_said(tmp_path: Path) -> None:
    text = "listener 1\ncertfile /c\nkeyfile /k\ncafile /ca\n"
    said = converted(tmp_path, text)
    assert "cafile\n#   not needed: clients are not asked for certificates." in said
    assert tomllib.loads(said)["listeners"][0]["tls"] == {"certificate": "/c", "key": "/k"}


def test_a_line_that_nobody_knows_is_said(tmp_path: Path) -> None:
    assert "# mosquitto.conf:2: strange 5\n#   NOT SUPPORTED: it is not known here" in converted(
        tmp_path, "\nstrange 5"
    )


@pytest.mark.parametrize("text", ["port many", "max_qos", "allow_anonymous perhaps", "log_dest printer", "listener"])
def test_a_value_that_is_none_is_an_error(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"mosquitto.conf:1: {text}: the value is not understood"):
        converted(tmp_path, text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        from_mosquitto(tmp_path / "none.conf")


def test_secrets_are_left_out(tmp_path: Path) -> None:
    text = converted(tmp_path, "connection b\nremote_password hunter2\npassword hunter2\nbridge_psk hunter2")
    assert "hunter2" not in text and "remote_password …" in text


def test_files_of_a_folder_are_read_in_their_order(tmp_path: Path) -> None:
    folder = tmp_path / "conf.d"
    folder.mkdir()
    (folder / "b.conf").write_text("max_keepalive 2\n")
    (folder / "a.conf").write_text("max_keepalive 1\nport 5\n")
    (folder / "c.txt").write_text("max_keepalive 3\n")
    said = settings(tmp_path, "include_dir conf.d\nallow_anonymous true\n")
    assert said == {"max_keep_alive": 2, "port": 5, "host": "0.0.0.0", "allow_anonymous": True}


def test_a_broker_runs_with_it(tmp_path: Path) -> None:
    port = free_port()
    lines = f"port {port}\nallow_anonymous true\nmax_inflight_messages 20\nlog_type all\nset_tcp_nodelay true\n"
    file = tmp_path / "broker.toml"
    file.write_text(converted(tmp_path, lines))
    assert load_config(str(file), {}, {}).max_inflight == 20
    # `Process` gives `--port 0`, and the later flag wins.
    broker = Process("--config", str(file), "--port", str(port))
    try:
        broker.read_until("anonymous clients are accepted from anywhere")
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
            client.sendall(encode(Connect("c", 5), 5))
            assert b"\x21\x00\x14" in client.recv(100), "a receive maximum of 20"
    finally:
        broker.end()


TWO = """
listener 1883
listener 8883 ::1
certfile /c.pem
keyfile /k.pem
cafile /ca.pem
require_certificate true
use_identity_as_username true
tls_version tlsv1.3
max_connections 7
listener 9001
protocol websockets
listener 0 /run/m.sock
allow_anonymous true
"""


def test_several_listeners(tmp_path: Path) -> None:
    config = Config(**settings(tmp_path, TWO))
    plain, tls, web, unix = config.listeners
    assert (plain.host, plain.port, config.allow_anonymous) == ("0.0.0.0", 1883, True)
    assert (tls.host, tls.port, tls.max_connections) == ("::1", 8883, 7)
    assert tls.tls is not None
    assert tls.tls.model_dump(exclude_defaults=True) == {
        "certificate": "/c.pem",
        "key": "/k.pem",
        "ca": "/ca.pem",
        "client_certificates": "required",
        "minimum_version": "1.3",
    }
    assert (web.port, web.protocol, web.websocket_path) == (9001, "websocket", "/")
    assert unix.unix == "/run/m.sock"
