"""Settings of a proxy, and its command line."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from headwater.cli.proxy import HomeBroker, home_broker
from headwater.node.config import Config
from headwater.node.proxy.settings import ProxySettings, home_of, place_of
from headwater.peering.membership.seeds import Seed

CLUSTER = {"name": "c"}


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({}, "cluster.name"),
        ({"cluster": CLUSTER, "data_dir": "d", "store": {"enabled": True}}, "store"),
        ({"cluster": CLUSTER, "workers": 2}, "workers"),
    ],
)
def test_what_does_not_go_together(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        Config(proxy={"broker": "localhost"}, **settings)


@pytest.mark.parametrize(
    "wrong",
    [
        {"broker": "http://host"},
        {"broker": "user@host"},
        {"broker": "host:0"},
        {"broker": "host", "password": "secret"},
        {"broker": "host", "username": "u", "password": "secret", "password_file": "f"},
        {"listen": ["host"]},
        {"listen": ["host:70000"]},
    ],
)
def test_what_cannot_be_is_said(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ProxySettings(**wrong)


def test_addresses() -> None:
    assert home_of("broker") == home_of("mqtt://broker/") == Seed("broker", 1883)
    assert home_of("mqtts://broker") == Seed("broker", 8883)
    assert home_of("[::1]:1884") == Seed("::1", 1884)
    assert place_of("1884") == ("localhost", 1884)
    assert place_of("*:1884") == ("*", 1884)
    assert place_of("[::1]:1884") == ("::1", 1884)
    assert ProxySettings(broker="mqtts://b").is_secure and not ProxySettings(broker="b").is_secure


def test_the_home_broker_on_the_command_line() -> None:
    assert home_broker("host:1884") == HomeBroker("host:1884", None, None)
    assert home_broker("mqtts://host") == HomeBroker("mqtts://host", None, None)
    assert home_broker("mqtt://me@host:1884") == HomeBroker("mqtt://host:1884", "me", None)
    assert home_broker("mqtt://me:a%40b:c@host") == HomeBroker("mqtt://host", "me", "a@b:c")
    assert home_broker("me:secret@host:1") == HomeBroker("host:1", "me", "secret")
