"""Mosquitto's configuration files: each line is converted, or it is said why not."""

from __future__ import annotations

import socket
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from headwater.node.config import Config, ConfigError, load_config
from headwater.node.mosquitto.conf import ProtectionLost, from_mosquitto
from headwater.node.mosquitto.conversion import DEFAULTS
from headwater.node.mosquitto.leftovers import DEFAULTS as STATED
from headwater.node.mosquitto.leftovers import NOT_NEEDED, NOT_SUPPORTED, PROTECTED
from headwater.node.mosquitto.lines import CONVERTERS
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


def said_of(folder: Path, text: str) -> dict[str, Any]:
    """What is not just a default of Mosquitto's."""
    found = settings(folder, text)
    assert found.keys() >= DEFAULTS.keys()
    return {name: value for name, value in found.items() if value != DEFAULTS.get(name)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# only a remark\n\n", {}),
        ("port 1888\n", {"port": 1888, "host": "*", "allow_anonymous": False}),
        ("port 1888\nallow_anonymous true", {"port": 1888, "host": "*", "allow_anonymous": True}),
        ("allow_anonymous true\nlistener 1 127.0.0.1", {"port": 1, "host": "127.0.0.1", "allow_anonymous": True}),
        ("bind_address ::1", {"host": "::1", "port": 1883, "allow_anonymous": False}),
        ("listener 1\nsocket_domain ipv6", {"host": "::", "port": 1, "allow_anonymous": False}),
        ("listener 1\nsocket_domain ipv4", {"host": "0.0.0.0", "port": 1, "allow_anonymous": False}),
        ("port 1\nmax_topic_alias 0", {"host": "*", "port": 1, "allow_anonymous": False, "topic_alias_maximum": 0}),
        ("allow_zero_length_clientid false\nauto_id_prefix a", {"allow_empty_client_id": False, "auto_id_prefix": "a"}),
        ("maximum_qos 1", {"max_qos": 1}),
        ("max_connections -1", {}),
        ("global_max_connections 7", {"max_connections": 7}),
        ("\tmax_keepalive\t60  ", {"max_keep_alive": 60}),
        (
            "per_listener_settings true\nlistener 1\nallow_anonymous true\nmax_connections 5",
            {"host": "*", "port": 1, "allow_anonymous": True, "max_connections": 5},
        ),
        ("allow_anonymous true", {"allow_anonymous": True}),
        ("allow_anonymous false", {"allow_anonymous": False}),
        ("max_inflight_messages 10", {"max_inflight": 10, "receive_maximum": 10}),
        ("max_inflight_messages 0", {"max_inflight": 65535, "receive_maximum": 65535}),
        ("max_queued_messages 5\nmax_queued_bytes 6", {"max_queued_messages": 5, "max_queued_bytes": 6}),
        ("max_queued_messages 0", {"max_queued_messages": 1 << 31}),
        ("max_packet_size 40", {"max_packet_size": 40}),
        ("max_packet_size 0", {}),
        ("message_size_limit 100", {"max_payload_size": 100}),
        ("message_size_limit 0", {"max_payload_size": 0}),
        ("max_keepalive 60", {"max_keep_alive": 60}),
        ("max_qos 1\nretain_available false", {"max_qos": 1, "retain_available": False}),
        ("max_topic_alias 5", {"topic_alias_maximum": 5}),
        ("memory_limit 1000", {"max_queue_memory": 1000}),
        ("persistent_client_expiration 2d", {"max_session_expiry": 172800}),
        ("persistent_client_expiration 900y", {"max_session_expiry": 0xFFFFFFFF}),
        ("allow_duplicate_messages true", {"overlapping": "separate"}),
        ("sys_interval 0", {"sys_interval": 0}),
        ("check_retain_source false", {"access": {"acl_retained": False}}),
        ("log_type error\nlog_type notice\nlog_type warning", {"log_level": "info"}),
        ("log_type all", {"log_level": "debug"}),
        ("log_dest syslog\nlog_dest file /var/log/m.log", {"log_to": ["syslog", "file:/var/log/m.log"]}),
        ("log_dest stdout", {"log_to": ["stderr"]}),
    ],
)
def test_what_becomes_of_lines(text: str, expected: dict[str, Any], tmp_path: Path) -> None:
    assert said_of(tmp_path, text) == expected
    Config(**expected)


def test_what_is_left_unsaid_is_as_mosquitto_has_it(tmp_path: Path) -> None:
    """Where ours is another default and clients can tell."""
    config = Config(**settings(tmp_path, ""))
    assert (config.max_inflight, config.receive_maximum, config.topic_alias_maximum) == (20, 20, 10)
    assert (config.max_queued_messages, config.max_packet_size) == (1000, 268_435_460)
    assert (config.auto_id_prefix, config.terse, config.shared_dispatcher) == ("auto-", True, "round_robin")
    assert (config.host, config.allow_anonymous) == ("localhost", None), "from this machine, everybody"
    for name, value in DEFAULTS.items():
        assert value != Config.model_fields[name].default, f"{name} need not be written"


@pytest.mark.parametrize("name", [*NOT_NEEDED, *NOT_SUPPORTED])
def test_what_is_not_converted_is_said(name: str, tmp_path: Path) -> None:
    text = converted(tmp_path, f"{name} abc")
    assert tomllib.loads(text) == DEFAULTS
    assert name not in CONVERTERS
    assert f"mosquitto.conf:1: {name} " in text
    assert (NOT_NEEDED.get(name) or NOT_SUPPORTED[name]) in text


MANUAL = """
acl_file allow_anonymous allow_duplicate_messages allow_zero_length_clientid auth_plugin auth_plugin_deny_special_chars
auto_id_prefix autosave_interval autosave_on_changes check_retain_source clientid_prefixes connection_messages
include_dir log_dest log_facility log_timestamp log_timestamp_format log_type max_inflight_bytes max_inflight_messages
max_keepalive max_packet_size max_queued_bytes max_queued_messages memory_limit message_size_limit password_file
per_listener_settings persistence persistence_file persistence_location persistent_client_expiration pid_file psk_file
queue_qos0_messages retain_available set_tcp_nodelay sys_interval upgrade_outgoing_qos user bind_address bind_interface
http_dir listener max_connections max_qos maximum_qos max_topic_alias mount_point port protocol socket_domain
use_username_as_clientid websockets_log_level websockets_headers_size cafile capath certfile ciphers ciphers_tls1.3
crlfile dhparamfile keyfile require_certificate tls_engine tls_engine_kpass_sha1 tls_keyform tls_version
use_identity_as_username use_subject_as_username psk_hint address addresses bridge_attempt_unsubscribe
bridge_bind_address bridge_max_packet_size bridge_outgoing_retain bridge_protocol_version cleansession
local_cleansession connection keepalive_interval idle_timeout local_clientid local_password local_username
notifications notifications_local_only notification_topic remote_clientid remote_password remote_username
restart_timeout round_robin start_type threshold topic try_private bridge_alpn bridge_cafile bridge_capath
bridge_certfile bridge_identity bridge_insecure bridge_keyfile bridge_psk bridge_require_ocsp bridge_tls_version
clientid username password plugin retained_persistence retry_interval
"""
"""The names of all options of mosquitto.conf(5), version 2.0, and of the older ones that it still takes."""


@pytest.mark.parametrize("name", MANUAL.split())
def test_every_option_of_the_manual_is_known(name: str) -> None:
    places = [name in place for place in (CONVERTERS, NOT_NEEDED, NOT_SUPPORTED, PROTECTED, ("include_dir",))]
    assert sum(places) == 1


@pytest.mark.parametrize("name", ["auth_opt_host", "plugin_opt_password"])
def test_options_of_plugins(name: str, tmp_path: Path) -> None:
    said = converted(tmp_path, f"{name} hunter2")
    assert f"{name} …\n#   NOT SUPPORTED: it is of a plugin" in said and "hunter2" not in said


@pytest.mark.parametrize("name", [*PROTECTED, "strange", "psk_new"])
def test_a_line_that_protected_something_ends_the_conversion(name: str, tmp_path: Path) -> None:
    text = f"listener 8883\n{name} hunter2\nallow_anonymous true\n"
    with pytest.raises(ProtectionLost) as caught:
        converted(tmp_path, text)
    said = str(caught.value)
    assert f"mosquitto.conf:2: {name} " in said and "--accept-loss mosquitto.conf:2" in said
    assert PROTECTED.get(name, "may have protected something") in said
    path = tmp_path / "mosquitto.conf"
    accepted = from_mosquitto(path, accepted=["mosquitto.conf:2"])
    assert "NOT SUPPORTED, and accepted: " in accepted and tomllib.loads(accepted)["port"] == 8883
    with pytest.raises(ProtectionLost):
        from_mosquitto(path, accepted=["mosquitto.conf:1"])
    with pytest.raises(ConfigError, match=r"mosquitto\.conf:3: nothing is lost there"):
        from_mosquitto(path, accepted=["mosquitto.conf:2", "mosquitto.conf:3"])


def test_all_that_is_lost_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ProtectionLost) as caught:
        converted(tmp_path, "plugin /x.so\nlistener 1\nmount_point a/\npsk_hint h\n")
    assert str(caught.value).endswith("mosquitto.conf:1 --accept-loss mosquitto.conf:3 --accept-loss mosquitto.conf:4")


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("listener 1\nbind_interface eth0", True),
        ("listener 1 10.0.0.1\nbind_interface eth0", False),
        ("connection b\naddress h\ntopic #\nlocal_username u", False),
        ("acl_file /a\nconnection b\naddress h\ntopic #\nlocal_username u", True),
        ("per_listener_settings true\nlistener 1\npassword_file /p\nlistener 2\npassword_file /q", True),
        ("per_listener_settings true\nlistener 1\npassword_file /p\nlistener 2\npassword_file /p", False),
    ],
)
def test_what_protects_only_beside_others(text: str, lost: bool, tmp_path: Path) -> None:
    if lost:
        with pytest.raises(ProtectionLost):
            converted(tmp_path, text)
    else:
        converted(tmp_path, text)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in STATED.items() for value in values])
def test_a_line_that_states_a_default_is_nothing_to_speak_of(name: str, value: str, tmp_path: Path) -> None:
    assert converted(tmp_path, f"{name} {value}") == converted(tmp_path, "")


def test_pages_that_may_connect(tmp_path: Path) -> None:
    text = "listener 1\nprotocol websockets\nwebsockets_origin https://a\nwebsockets_origin https://b\nlistener 2"
    config = Config(**settings(tmp_path, text))
    assert config.listeners[0].websocket_origins == ["https://a", "https://b"]


def test_files_of_access(tmp_path: Path) -> None:
    text = "per_listener_settings true\nlistener 1\npassword_file /p\nacl_file /a\nlistener 2\nacl_file /a\n"
    said = converted(tmp_path, text)
    assert tomllib.loads(said)["access"] == {
        "password_file": "/p",
        "acl_file": "/a",
        "acl_subscribe": "always",
        "acl_retained": True,
    }
    config = Config(**tomllib.loads(said))
    assert (config.access.acl_file, [each.port for each in config.listeners]) == ("/a", [1, 2])
    assert [(each.use_passwords, each.use_rules) for each in config.listeners] == [(True, True), (False, True)]


def test_files_of_one_listener_alone(tmp_path: Path) -> None:
    """The other one asks for nothing, as in Mosquitto; without per_listener_settings it does."""
    text = "listener 1\nallow_anonymous true\nlistener 2\npassword_file /p\nacl_file /a\n"
    for own, expected in (("true", [(False, False), (True, True)]), ("false", [(True, True), (True, True)])):
        config = Config(**settings(tmp_path, f"per_listener_settings {own}\n{text}"))
        assert [(each.use_passwords, each.use_rules) for each in config.listeners] == expected


@pytest.mark.parametrize(("per_listener", "expected"), [("true", [True, None]), ("false", [None, None])])
def test_settings_of_one_listener(per_listener: str, expected: list[bool | None], tmp_path: Path) -> None:
    text = f"per_listener_settings {per_listener}\nlistener 1\nallow_anonymous true\nlistener 2\n"
    config = Config(**settings(tmp_path, text))
    assert [each.allow_anonymous for each in config.listeners] == expected
    assert config.allow_anonymous is (per_listener == "false")


def test_authorities_that_nobody_is_asked_for_complete_our_own_certificate(tmp_path: Path) -> None:
    """Mosquitto sends those between its certificate and the root, wherever it has them from."""
    text = "listener 1\ncertfile /c\nkeyfile /k\ncafile /ca\ncrlfile /r\n"
    said = converted(tmp_path, text)
    assert "crlfile\n#   not needed: clients are not asked for certificates." in said
    assert tomllib.loads(said)["listeners"][0]["tls"] == {"certificate": "/c", "key": "/k", "ca": "/ca"}


def test_who_is_to_be_known_by_a_certificate_needs_one(tmp_path: Path) -> None:
    """Mosquitto refuses who has none, also where it has not asked for it."""
    for name in ("use_identity_as_username", "use_subject_as_username"):
        text = f"listener 1\ncertfile /c\nkeyfile /k\ncafile /ca\n{name} true\n"
        (listener,) = Config(**settings(tmp_path, text)).listeners
        assert listener.tls is not None and listener.tls.client_certificates == "required"


def test_tls_lines_without_a_certificate_are_said(tmp_path: Path) -> None:
    said = converted(tmp_path, "listener 1\ncafile /ca\n")
    assert "cafile\n#   not needed: without certfile there is no TLS." in said
    assert "listeners" not in tomllib.loads(said)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("use_identity_as_username true\nuse_subject_as_username true", "cn"),
        ("use_subject_as_username true", "subject"),
        ("use_subject_as_username false", "none"),
        ("", "none"),
    ],
)
def test_user_names_from_certificates(lines: str, expected: str, tmp_path: Path) -> None:
    text = f"listener 1\ncertfile /c\nkeyfile /k\ncapath /ca.d\nrequire_certificate true\ncrlfile /r\n{lines}\n"
    (listener,) = Config(**settings(tmp_path, text)).listeners
    assert listener.tls is not None
    assert (listener.tls.username, listener.tls.ca, listener.tls.crl) == (expected, "/ca.d", "/r")


def test_an_old_version_of_tls_is_said(tmp_path: Path) -> None:
    said = converted(tmp_path, "listener 1\ncertfile /c\nkeyfile /k\ntls_version tlsv1.1\nciphers HIGH")
    assert "tls_version tlsv1.1\n#   1.2 is the oldest version of TLS here." in said
    assert tomllib.loads(said)["listeners"][0]["tls"]["minimum_version"] == "1.2"
    assert tomllib.loads(said)["listeners"][0]["tls"]["ciphers"] == "HIGH"


def test_what_a_listener_has_of_its_own(tmp_path: Path) -> None:
    own = "max_qos 0\nmax_topic_alias 3\nallow_zero_length_clientid false\nauto_id_prefix b-\n"
    text = f"per_listener_settings true\nlistener 1\n{own}use_username_as_clientid true\nlistener 2\nmax_qos 1\n"
    config = Config(**settings(tmp_path, text))
    first, second = config.listeners
    assert (first.max_qos, first.topic_alias_maximum, first.username_as_client_id) == (0, 3, True)
    assert (first.allow_empty_client_id, first.auto_id_prefix) == (False, "b-")
    assert (second.max_qos, second.topic_alias_maximum, second.username_as_client_id) == (1, None, False)
    assert (second.allow_empty_client_id, config.allow_empty_client_id, config.max_qos) == (None, True, 2)


def test_a_default_listener_that_nobody_has_placed(tmp_path: Path) -> None:
    """It is where Mosquitto has it without any listener, with what the file says about it."""
    config = Config(**settings(tmp_path, "use_username_as_clientid true"))
    (listener,) = config.listeners
    assert (listener.host, listener.port, listener.username_as_client_id) == ("localhost", 1883, True)
    assert config.allow_anonymous is True


@pytest.mark.parametrize(
    ("lines", "folder"),
    [
        ("", "headwater"),
        ("persistence_location /var/lib/m/", "/var/lib/m/headwater"),
        ("persistence_file mine.db", "mine"),
        ("persistence_location /var\npersistence_file mine.db\nautosave_interval 1", "/var/mine"),
    ],
)
def test_persistence(lines: str, folder: str, tmp_path: Path) -> None:
    """Mosquitto acknowledges before it writes."""
    said = settings(tmp_path, f"persistence true\n{lines}\n")
    assert (said["data_dir"], said["durability"]) == (folder, "async")
    assert "data_dir" not in settings(tmp_path, f"persistence false\n{lines}\n")


def test_settings_that_this_version_does_not_have_are_comments(tmp_path: Path) -> None:
    class Small(BaseModel):
        max_inflight: int

    path = tmp_path / "mosquitto.conf"
    path.write_text("max_inflight_messages 7\nlistener 1\nlistener 2\nconnection b\naddress h\ntopic #\n")
    said = from_mosquitto(path, Small)
    assert tomllib.loads(said) == {"max_inflight": 7}
    assert "# not supported yet: receive_maximum = 7" in said and "# not supported yet: [[bridges.topics]]" in said


@pytest.mark.parametrize(
    "text",
    ["port many", "max_qos", "allow_anonymous perhaps", "log_dest printer", "listener", "topic #", "tls_version tlsv9"],
)
def test_a_value_that_is_none_is_an_error(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"mosquitto.conf:1: {text}: the value is not understood"):
        converted(tmp_path, text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        from_mosquitto(tmp_path / "none.conf")


def test_secrets_are_not_repeated_in_remarks(tmp_path: Path) -> None:
    path = tmp_path / "mosquitto.conf"
    path.write_text("connection b\nremote_password hunter2\nlocal_password hunter2\nbridge_psk hunter2")
    with pytest.raises(ProtectionLost) as lost:
        from_mosquitto(path)
    assert "hunter2" not in str(lost.value)
    text = from_mosquitto(path, accepted=["mosquitto.conf:4"])
    assert text.count("hunter2") == 1 and 'password = "hunter2"' in text
    assert "remote_password …\n#   better in a file" in text
    with pytest.raises(ConfigError) as caught:
        converted(tmp_path, "remote_password hunter2")
    assert "hunter2" not in str(caught.value)


def test_files_of_a_folder_are_read_in_their_order(tmp_path: Path) -> None:
    folder = tmp_path / "conf.d"
    folder.mkdir()
    (folder / "B.conf").write_text("max_keepalive 2\n")
    (folder / "a.conf").write_text("max_keepalive 1\nport 5\n")
    (folder / "c.txt").write_text("max_keepalive 3\n")
    said = said_of(tmp_path, "include_dir conf.d\nallow_anonymous true\n")
    assert said == {"max_keep_alive": 2, "port": 5, "host": "*", "allow_anonymous": True}


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
    assert (plain.host, plain.port, config.allow_anonymous) == ("*", 1883, True)
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
