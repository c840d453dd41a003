"""What a broker does again and again while it runs: it forgets retained messages that expired, and publishes `$SYS`."""

from __future__ import annotations

from typing import Final

from headwater.node.protocol.server import Server
from headwater.node.protocol.sys_topics import Others, SysTopics

HOUSEKEEPING: Final = 5.0
"""Seconds between looks for retained messages that expired."""


class Housekeeping:
    def __init__(self, server: Server, started_at: float, others: Others) -> None:
        self._server = server
        self._sys = SysTopics(server, started_at, others)

    def start(self) -> None:
        """Until the server's timers are cleared."""
        self._expire()
        if self._server.config.sys_interval:
            self._publish_sys()

    def _expire(self) -> None:
        server = self._server
        now = server.hot.now
        server.timers.at(now + HOUSEKEEPING, self._expire)
        for message in server.router.retained.expire(now):
            server.hot.changed = server.journal is not None
            server.hooks.tell("retained_expired", message)

    def _publish_sys(self) -> None:
        server = self._server
        now = server.hot.now
        server.timers.at(now + server.config.sys_interval, self._publish_sys)
        self._sys.publish(now)
