"""From one socket to another by passing.c, where it was compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

passing: Any
try:
    import headwater.node.proxy.passing as passing
except ImportError:
    passing = None

PassOn = Callable[[int, int, int, int, int, bool], object]


def short_way() -> PassOn | None:
    """None: everything goes by the relay's own way."""
    found: PassOn | None = None if passing is None else passing.pass_on
    return found
