"""Who is let in while this node does not serve clients: it catches up (catching_up.py), or is drained (draining.py).

It stands in front of the gate that asks other nodes for sessions (sessions.py), and only as long as it is needed: a
node that serves has no more to do for a CONNECT than before. Clients that were let in before go on.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.node.hooks import Refusal
from headwater.node.plane.channel import Channel
from headwater.node.plane.timers import Timer
from headwater.node.protocol.core import SessionGate
from headwater.node.protocol.server import Server
from headwater.session.connection import AUTHENTICATING
from headwater.session.session import Session
from headwater.wire.packets import Connect

OWN = "$"
"""What the ids of the broker's own clients, its bridges, begin with."""


class _Waiting:
    def __init__(self, packet: Connect, auth_data: bytes | None) -> None:
        self.packet = packet
        self.auth_data = auth_data
        self.timer: Timer | None = None


class Entry(SessionGate):
    def __init__(self, server: Server) -> None:
        self._server = server
        self._behind: SessionGate | None = None
        self._waiting: dict[Channel, _Waiting] = {}
        self._refusal: Callable[[str], Refusal] | None = None
        self._wait = 0.0

    @property
    def is_open(self) -> bool:
        return self._refusal is None

    def close(self, wait: float, refusal: Callable[[str], Refusal]) -> None:
        """Who comes from now on waits so many seconds at most, and is then refused, by client id."""
        if self.is_open:
            self._behind = self._server.gate
            self._server.gate = self
        self._refusal = refusal
        self._wait = wait
        for channel, waiting in list(self._waiting.items()):
            self._let_wait(channel, waiting)

    def open(self) -> None:
        """Those who wait are let in."""
        if self.is_open:
            return
        self._refusal = None
        if self._server.gate is self:  # else another entry is in front of it, and finds it open
            self._server.gate = self._behind
        waiting, self._waiting = self._waiting, {}
        for channel, each in waiting.items():
            if each.timer is not None:
                self._server.timers.cancel(each.timer)
            if channel.busy and channel.state == AUTHENTICATING:
                behind = self._behind
                if behind is None or behind.claim(channel, each.packet, each.auth_data):
                    self._server.connecting.claimed(channel, each.packet, each.auth_data, None)

    def _let_wait(self, channel: Channel, waiting: _Waiting) -> None:
        timers = self._server.timers
        if waiting.timer is not None:
            timers.cancel(waiting.timer)
        waiting.timer = timers.at(self._server.hot.now + self._wait, lambda: self._refuse(channel))

    def _refuse(self, channel: Channel) -> None:
        waiting = self._waiting.pop(channel)
        assert self._refusal is not None
        refusal = self._refusal(channel.client_id)
        self._server.connecting.claimed(channel, waiting.packet, waiting.auth_data, refusal)

    # ---- as a gate ---------------------------------------------------------------------------------------------------

    def claim(self, channel: Channel, packet: Connect, auth_data: bytes | None) -> bool:
        if self.is_open or channel.client_id.startswith(OWN):
            return self._behind is None or self._behind.claim(channel, packet, auth_data)
        waiting = self._waiting[channel] = _Waiting(packet, auth_data)
        self._let_wait(channel, waiting)
        return False

    def waits(self, channel: Channel) -> bool:
        return channel in self._waiting or (self._behind is not None and self._behind.waits(channel))

    def attached(self, channel: Channel, session: Session) -> None:
        if self._behind is not None:
            self._behind.attached(channel, session)

    def detached(self, channel: Channel, session: Session) -> None:
        if self._behind is not None:
            self._behind.detached(channel, session)

    def ended(self, session: Session) -> None:
        if self._behind is not None:
            self._behind.ended(session)

    def refused(self, channel: Channel) -> None:
        if self._behind is not None:
            self._behind.refused(channel)
