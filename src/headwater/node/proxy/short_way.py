"""From one socket to another by passing.c, where it was compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

passing: Any
try:
    import headwater.node.proxy.passing as passing
except ImportError:
    passing = None


def short_way() -> Callable[..., Any] | None:
    """What makes `Passages` of an epoll. None: everything goes by the relay's own way."""
    found: Callable[..., Any] | None = None if passing is None else passing.Passages
    return found
