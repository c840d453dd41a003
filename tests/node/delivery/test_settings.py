"""What the table `[store]` takes, and what is said of what it does not."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.node.config import Config, ConfigError, load_config


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"store.enabled": True}, "data_dir"),
        ({"store.enabled": True, "data_dir": "d", "durability": "none"}, "durability"),
        ({"rest.enabled": True}, "store.enabled"),
        ({"store.filters": ["a/#/b"]}, "no topic filter"),
        ({"store.filters": [""]}, "no topic filter"),
        ({"store.id": "a b"}, "store.id"),
        ({"store.id": "a:b"}, "store.id"),
        ({"store.time_paths": ["a..b"]}, "no path"),
        ({"store.value_paths": [""]}, "no path"),
        ({"store.time_unit": "minutes"}, "time_unit"),
        ({"store.keep_for": -1}, "keep_for"),
        ({"store.max_topics": 0}, "max_topics"),
        ({"store.enable": True}, "did you mean"),
    ],
)
def test_mistakes_are_explained(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_config(None, settings, {})


def test_what_fits() -> None:
    settings = load_config(None, {"store.enabled": True, "data_dir": "d", "store.filters": ["a/+", "$x/#"]}, {})
    assert settings.store.enabled
    assert settings.store.filters == ["a/+", "$x/#"]


def test_nothing_is_stored_by_default() -> None:
    assert not Config().store.enabled
