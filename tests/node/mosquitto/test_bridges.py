"""Bridges of Mosquitto's configuration files."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.node.bridge.settings import BridgeSettings
from headwater.node.config import Config, ConfigError
from tests.node.mosquitto.test_conf import converted, settings


def bridge(folder: Path, *lines: str) -> BridgeSettings:
    text = "\n".join(["connection north", "address remote.example", "topic a/#", *lines])
    (found,) = Config(**settings(folder, text)).bridges
    return found


def test_what_is_left_unsaid_is_as_mosquitto_has_it(tmp_path: Path) -> None:
    found = bridge(tmp_path)
    assert (found.name, found.addresses, found.protocol, found.enabled) == ("north", ["remote.example"], "3.1.1", True)
    assert (found.clean_start, found.keep_alive, found.announce, found.notifications) == (False, 60, True, "both")
    assert (found.reconnect_first, found.reconnect_longest, found.tls) == (5.0, 30.0, None)
    (topic,) = found.topics
    assert (topic.filter, topic.direction, topic.qos) == ("a/#", "out", 0)


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("bridge_protocol_version mqttv50", "protocol", "5.0"),
        ("bridge_protocol_version mqttv311", "protocol", "3.1.1"),
        ("bridge_protocol_version mqttv31", "protocol", "3.1.1"),
        ("remote_clientid me", "client_id", "me"),
        ("clientid me", "client_id", "me"),
        ("remote_username u", "username", "u"),
        ("username u", "username", "u"),
        ("cleansession true", "clean_start", True),
        ("keepalive_interval 5", "keep_alive", 5),
        ("bridge_max_packet_size 100", "max_packet_size", 100),
        ("bridge_outgoing_retain false", "outgoing_retain", False),
        ("try_private false", "announce", False),
        ("notifications false", "notifications", "none"),
        ("notifications_local_only true", "notifications", "local"),
        ("notifications_local_only true\nnotifications false", "notifications", "none"),
        ("notification_topic state", "notification_topic", "state"),
        ("restart_timeout 20", "reconnect_first", 20.0),
        ("restart_timeout 20", "reconnect_longest", 20.0),
        ("restart_timeout 10 40", "reconnect_longest", 40.0),
        ("start_type automatic", "enabled", True),
        ("start_type lazy", "enabled", True),
        ("start_type manual", "enabled", False),
        ("addresses one:1 two ::1:3", "addresses", ["one:1", "two", "[::1]:3"]),
    ],
)
def test_what_becomes_of_lines(line: str, name: str, value: object, tmp_path: Path) -> None:
    assert getattr(bridge(tmp_path, line), name) == value


def test_a_password(tmp_path: Path) -> None:
    assert bridge(tmp_path, "remote_username u", "remote_password p w").password.get_secret_value() == "p w"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("topic b/# in", ("b/#", "in", 0, "", "")),
        ("topic b/# both 2 here/ there/", ("b/#", "both", 2, "here/", "there/")),
        ('topic b/# both 2 "" there/', ("b/#", "both", 2, "", "there/")),
        ('topic "" out 1 here/b there/b', ("", "out", 1, "here/b", "there/b")),
        ("topic b/# out 1 here/", ("b/#", "out", 1, "here/", "")),
    ],
)
def test_topics(line: str, expected: tuple[str, str, int, str, str], tmp_path: Path) -> None:
    first, second = bridge(tmp_path, line).topics
    assert first.filter == "a/#"
    assert (second.filter, second.direction, second.qos, second.local_prefix, second.remote_prefix) == expected


@pytest.mark.parametrize(
    "line", ["topic", "topic a up", "topic a out 3", "topic a out 1 b c d", "restart_timeout", "address"]
)
def test_a_value_that_is_none_is_an_error(line: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the value is not understood"):
        converted(tmp_path, f"connection north\n{line}\n")


def test_tls(tmp_path: Path) -> None:
    found = bridge(
        tmp_path,
        *("bridge_cafile /ca", "bridge_certfile /c", "bridge_keyfile /k"),
        *("bridge_insecure true", "bridge_tls_version tlsv1.3", "bridge_alpn mqtt"),
    ).tls
    assert found is not None
    assert (found.ca, found.certificate, found.key) == ("/ca", "/c", "/k")
    assert (found.check_host_name, found.minimum_version, found.alpn) == (False, "1.3", "mqtt")


def test_several(tmp_path: Path) -> None:
    one = "connection a\naddress h\ntopic x\nbridge_cafile /ca\n"
    two = "connection b\naddress h\ntopic y\ntopic z in\n"
    text = f"{one}{two}listener 1\n"
    config = Config(**settings(tmp_path, text))
    first, second = config.bridges
    assert (first.name, len(first.topics), first.tls is None) == ("a", 1, False)
    assert (second.name, len(second.topics), second.tls is None) == ("b", 2, True)
    assert config.port == 1
