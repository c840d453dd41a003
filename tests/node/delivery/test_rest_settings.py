from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from headwater.node.delivery.rest_settings import RestSettings

TOKEN = "0123456789abcdef"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"token": "short"}, "at least 16"),
        ({"token": "é" * 16}, "printable ASCII"),
        ({"token": TOKEN, "token_file": "x"}, "either `token` or `token_file`"),
        ({"certificate": "x"}, "belong together"),
        ({"key": "x"}, "belong together"),
        ({"port": 65536}, "65535"),
        ({"max_limit": 0}, "greater"),
        ({"max_connections": True}, "neither true nor false"),
        ({"tokens": TOKEN}, "Extra"),
    ],
)
def test_what_does_not_fit(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        RestSettings(**settings)


def test_defaults_are_careful() -> None:
    settings = RestSettings()
    assert (settings.enabled, settings.host, settings.allow_anonymous) == (False, "localhost", None)
    assert TOKEN not in repr(RestSettings(token=TOKEN))  # type: ignore[arg-type]
