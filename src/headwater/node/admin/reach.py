"""How the admin API reaches the broker: it asks for operations by name (desk.py), wherever the broker is.

In a process of its own it asks over a link (node/http); in the broker's process, which programs of one's own and tests
use, it asks the broker's loop.
"""

from __future__ import annotations

from typing import Any


class BrokerStopped(Exception):
    """Nobody is there who could answer."""


class Reach:
    async def ask(self, operation: str, /, **arguments: Any) -> Any:
        """What the operation returns: bytes, which are JSON, or values of JSON, or dataclasses that TypeAdapter makes
        of such values. Raises what it raises, and BrokerStopped."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Whether clients are taken."""
        raise NotImplementedError
