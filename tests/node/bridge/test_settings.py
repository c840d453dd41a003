"""Settings of bridges: what is taken, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from headwater.node.bridge.preparing import prepare, prepare_all
from headwater.node.bridge.settings import BridgeSettings, Place, parse_address
from headwater.node.config import Config, ConfigError, load_config
from headwater.node.settings import load
from headwater.node.toml_text import effective
from headwater.node.transports.contexts import CertificateError

FILE = """
[[bridges]]
name = "north"
addresses = ["north.example.org:1884", "north.example.org"]
protocol = "3.1.1"
username = "u"
password = "a-great-secret"
[bridges.tls]
alpn = "mqtt"
[[bridges.topics]]
filter = "sensors/#"
direction = "out"
qos = 2
local_prefix = "site/"
remote_prefix = "sites/7/"
[[bridges.topics]]
filter = ""
direction = "in"
local_prefix = "orders"
remote_prefix = "sites/7/orders"
"""


def topic(**settings: Any) -> dict[str, Any]:
    return {"filter": "a/#", **settings}


def bridge(**settings: Any) -> dict[str, Any]:
    return {"name": "north", "addresses": ["localhost:1883"], "topics": [topic()], **settings}


def test_a_bridge_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "headwater.toml"
    path.write_text(FILE)
    [found] = load_config(str(path), {}, {}).bridges
    assert found.places == [Place("north.example.org", 1884), Place("north.example.org", 8883)]
    first, second = found.topics
    assert (first.local_filter, first.remote_filter, first.qos) == ("site/sensors/#", "sites/7/sensors/#", 2)
    assert (second.local_filter, second.remote_filter) == ("orders", "sites/7/orders")
    assert (first.goes_out, first.comes_in) == (True, False)
    assert (second.goes_out, second.comes_in) == (False, True)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("host", Place("host", 1883)),
        ("host:1", Place("host", 1)),
        ("10.0.0.1:65535", Place("10.0.0.1", 65535)),
        ("[::1]:1884", Place("::1", 1884)),
        ("[fe80::1]", Place("fe80::1", 1883)),
    ],
)
def test_addresses(text: str, place: Place) -> None:
    assert parse_address(text, 1883) == place


@pytest.mark.parametrize(
    "text", ["", ":1883", "host:", "host:0", "host:65536", "host:x", "::1", "::1:1883", "[::1", "mqtt://host", " host"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"host:port|no port"):
        parse_address(text, 1883)


@pytest.mark.parametrize(
    ("secure", "path", "port"), [(False, "", 1883), (True, "", 8883), (False, "/mqtt", 80), (True, "/mqtt", 443)]
)
def test_the_usual_ports(secure: bool, path: str, port: int) -> None:
    settings = bridge(addresses="host", websocket_path=path, **({"tls": {}} if secure else {}))
    assert BridgeSettings(**settings).places == [Place("host", port)]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (bridge(name="with space"), "String should match pattern"),
        (bridge(name=""), "String should match pattern"),
        (bridge(addresses=[]), "at least 1 item"),
        (bridge(addresses=["host:port"]), "has no port from 1 to 65535"),
        (bridge(topics=[]), "at least 1 item"),
        (bridge(colour="red"), "Extra inputs are not permitted"),
        (bridge(protocol="3.1"), "'3.1.1' or '5.0'"),
        (bridge(websocket_path="mqtt"), "String should match pattern"),
        (bridge(password="p"), "a password needs a `username`"),
        (bridge(password_file="p"), "a password needs a `username`"),
        (bridge(username="u", password="p", password_file="p"), "not both"),
        (bridge(reconnect_first=5, reconnect_longest=1), "`reconnect_longest` is less"),
        (bridge(notification_topic="a/+"), "has a wildcard"),
        (bridge(tls={"certificate": "c"}), "are needed both"),
        (bridge(topics=[topic(filter="a/#/b")]), "'#' must be the last level"),
        (bridge(topics=[topic(filter="a+")]), "must stand alone"),
        (bridge(topics=[topic(filter="")]), "`filter` is empty, so `local_prefix` must name a topic"),
        (bridge(topics=[topic(filter="", local_prefix="a")]), "so `remote_prefix` must name a topic"),
        (bridge(topics=[topic(filter="#", local_prefix="site")]), "a `/` may be missing at the prefix's end"),
        (bridge(topics=[topic(local_prefix="+/")]), "`local_prefix` '\\+/' has a wildcard"),
        (bridge(topics=[topic(remote_prefix="#/")]), "`remote_prefix` '#/' has a wildcard"),
        (bridge(topics=[topic(filter="$share/g/a")]), "cannot have shared subscriptions"),
        (bridge(topics=[topic(filter="x", local_prefix="$share/g/")]), "cannot have shared subscriptions"),
        (bridge(topics=[topic(filter="$SYS/#", direction="in")]), "nothing can come in to `\\$SYS`"),
        (bridge(topics=[topic(filter="$SYS/#")]), "nothing can go out to `\\$SYS`"),
        (bridge(topics=[topic(qos=3)]), "Input should be 0, 1 or 2"),
        (bridge(topics=[topic(direction="up")]), "'in', 'out' or 'both'"),
        (bridge(topics=[topic(), topic(remote_prefix="x/")]), "'a/#' \\(local\\) goes out by two entries"),
        (
            bridge(topics=[topic(direction="in"), topic(direction="both", local_prefix="x/")]),
            "'a/#' \\(remote\\) comes in by two entries",
        ),
    ],
)
def test_what_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        BridgeSettings(**settings)


def test_what_overlaps_in_part_or_in_different_directions_is_fine() -> None:
    """The system's own topics may be sent away under another name, too."""
    topics = [
        topic(filter="a/#"),
        topic(filter="a/b"),
        topic(filter="a/#", direction="in"),
        topic(filter="broker/#", local_prefix="$SYS/", remote_prefix="status/"),
    ]
    assert len(BridgeSettings(**bridge(topics=topics)).topics) == 4


def test_no_two_bridges_have_one_name() -> None:
    with pytest.raises(ValidationError, match="two bridges are called 'north'"):
        Config(bridges=[bridge(), bridge()])


def test_no_two_bridges_have_one_client_id_at_one_broker() -> None:
    both = [bridge(client_id="me"), bridge(name="south", client_id="me")]
    with pytest.raises(ConfigError, match="'north' and 'south' have the same client_id"):
        prepare_all(Config(bridges=both))
    prepare_all(Config(bridges=[both[0], {**both[1], "enabled": False}]))
    prepare_all(Config(bridges=[both[0], {**both[1], "addresses": ["localhost:1884"]}]))


def test_filters_that_our_own_broker_does_not_take_are_refused() -> None:
    with pytest.raises(ConfigError, match="'a/#' has a wildcard, which wildcard_subscription_available"):
        prepare_all(Config(bridges=[bridge()], wildcard_subscription_available=False))
    prepare_all(Config(bridges=[bridge(topics=[topic(direction="in")])], wildcard_subscription_available=False))


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    """Neither by `config show`, nor in what is said about mistakes, nor in what is prepared."""
    path = tmp_path / "headwater.toml"
    path.write_text(FILE)
    loaded = load(Config, str(path), {}, {})
    shown = effective(loaded.settings, loaded.origins)
    assert "# password is set, and not shown" in shown
    path.write_text(FILE + FILE)
    with pytest.raises(ConfigError, match="two bridges are called") as twice:
        load_config(str(path), {}, {})
    path.write_text(FILE.replace("a/#", "a"))
    path.write_text(FILE.replace("[bridges.tls]", 'password_file = "x"\n[bridges.tls]'))
    with pytest.raises(ConfigError, match="not both") as row:
        load_config(str(path), {}, {})
    prepared = prepare(loaded.settings.bridges[0])
    assert prepared.password == "a-great-secret"
    for text in (shown, str(twice.value), str(row.value), repr(prepared)):
        assert "a-great-secret" not in text


def test_the_password_may_be_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "password"
    settings = BridgeSettings(**bridge(username="u", password_file=str(path)))
    with pytest.raises(ConfigError, match="No such file"):
        prepare(settings)
    path.write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        prepare(settings)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="does not hold text"):
        prepare(settings)
    path.write_text("one two \n")
    assert prepare(settings).password == "one two "


def test_files_of_tls_are_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    settings = BridgeSettings(**bridge(tls={"ca": str(path)}))
    with pytest.raises(ConfigError, match="cannot read"):
        prepare(settings)
    path.write_text("nothing")
    with pytest.raises(CertificateError, match="holds no certificate"):
        prepare(settings)


def test_our_id_at_the_remote() -> None:
    assert prepare(BridgeSettings(**bridge(client_id="me"))).client_id == "me"
    assert prepare(BridgeSettings(**bridge())).client_id.endswith(".north")
