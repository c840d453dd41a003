"""Sessions of bridges that are not configured any more."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from headwater.node.bridge.inside import PREFIX

if TYPE_CHECKING:
    from headwater.node.protocol.server import Server


def remove_orphans(server: Server, names: Container[str]) -> None:
    """End the sessions of bridges that are no more, which would fill up for ever."""
    for client_id, session in list(server.sessions.items()):
        if client_id.startswith(PREFIX) and client_id.removeprefix(PREFIX) not in names:
            server.ending.remove(session)
