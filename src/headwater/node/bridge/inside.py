"""The way into our own broker: a pair of sockets, of which the broker serves one as it serves any client's.

So a bridge is an ordinary client here, with a session of its own, and all that holds for sessions holds for it: queues
and their bounds, QoS, retained messages, persistence. Only two things are special. Its client id begins with `PREFIX`,
which nobody else may use; and who has such an id may do everything, whatever the rules of access say, because what it
carries was settled by the one who wrote the settings.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from headwater.node.plane.channel import Channel, Entrance

if TYPE_CHECKING:
    from headwater.node.protocol.core import Core

PREFIX: Final = "$bridge/"
"""What the client ids of bridges begin with, at their own broker."""


class Inside(Entrance):
    """Where bridges come in."""

    def __init__(self, core: Core, name: str) -> None:
        super().__init__()
        self._core = core
        self._name = name

    def admit(self, channel: Channel) -> bool:
        channel.allow_anonymous = True
        return True

    def open(self) -> socket.socket:
        """A new connection to the broker."""
        core = self._core
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            each.setblocking(False)
        with core.turn():
            core.accept(theirs, f"bridge:{self._name}", True, self)
        return ours
