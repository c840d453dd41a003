"""What those who call by HTTP may have of a node, by its settings."""

from __future__ import annotations

import logging
import resource

import pytest

from headwater.node.delivery.rest_settings import RestSettings
from headwater.node.settings import ConfigError, load
from headwater.node.web_settings import most_connections
from headwater.web.admission import SPARE, Bounds


def test_by_default_they_are_the_bounds_of_a_server() -> None:
    assert RestSettings().bounds("rest") == Bounds()


def test_settings_reach_the_server() -> None:
    settings = RestSettings(
        max_connections=7, max_connections_per_address=6, first_byte_timeout=1, head_timeout=2, body_timeout=3
    )
    assert settings.bounds("rest")[:5] == (7, 6, 1, 2, 3)
    settings = RestSettings(
        idle_timeout=4, write_timeout=5, max_head_size=2000, max_heads_size=3000, trusted_proxies=["10.0.0.0/8"]
    )
    assert settings.bounds("rest")[5:] == (4, 5, 2000, 3000, ("10.0.0.0/8",))


def test_http_has_a_share_of_the_files(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 256))
    with caplog.at_level(logging.WARNING):
        assert RestSettings().bounds("rest").connections == 256 // 8 - SPARE
    assert "rest.max_connections is 24" in caplog.text
    assert most_connections(10) == 1
    assert most_connections(resource.RLIM_INFINITY) > 1_000_000


def test_a_proxy_that_is_no_network() -> None:
    with pytest.raises(ConfigError, match="trusted_proxies"):
        load(RestSettings, None, {}, {"trusted_proxies": ["proxy.example"]})
