"""What clients of a proxy meet: listeners, the relay, and where the home broker is at the moment.

The home broker's name is resolved beside the loop: before clients are let in, and again while connections to it fail.
So no client ever waits for a name server. Its addresses are tried in turn.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Sequence
from typing import Final

from headwater.node.config import Config
from headwater.node.links.resolving import Resolver
from headwater.node.protocol.server import Server
from headwater.node.proxy.announcing import Version
from headwater.node.proxy.entering import Entering, EnteringLimits, Target
from headwater.node.proxy.pair import RelayCounters
from headwater.node.proxy.relay import Relay
from headwater.node.proxy.tap import Watcher
from headwater.node.transports.listener import Listener
from headwater.peering.membership.seeds import Seed

log = logging.getLogger("headwater.proxy")

MOST_WAITING: Final = 64 << 20
"""Bytes that wait for slow clients, and for the broker, before reads get small."""
LOOK_UP_AGAIN: Final = 5.0
"""Seconds between two look-ups of a name."""
LOOK_UP_TIMEOUT: Final = 5.0


class Front:
    """`listeners` are open already. With `context`, TLS is spoken with the home broker, whose certificate is for
    `hostname`, unless that is None."""

    def __init__(
        self,
        server: Server,
        listeners: Sequence[Listener],
        home: Seed,
        watcher: Watcher,
        context: ssl.SSLContext | None = None,
        hostname: str | None = None,
        send_proxy: Version | None = None,
    ) -> None:
        self._home = home
        self._context = context
        self._hostname = hostname
        self._resolver = Resolver()
        self._hosts: list[str] = [] if home.is_name() else [home.host]
        self._next = 0
        self._failures = 0
        self._looking_up: asyncio.Task[None] | None = None
        self.relay = Relay(server.plane, server.timers, MOST_WAITING, server.config.write_timeout)
        limits = limits_of(server.config, send_proxy)
        self.entering = Entering(self.relay, server.hot, listeners, self._target, watcher, limits)

    @property
    def counters(self) -> RelayCounters:
        return self.relay.counters

    async def start(self) -> list[tuple[str, int]]:
        """Let clients in; the addresses at which they are, but those of Unix sockets."""
        if self._home.is_name():
            await self._look_up()
            self._looking_up = asyncio.get_running_loop().create_task(self._keep_looking_up())
        addresses = self.entering.start()
        self.relay.plane.wake()
        return addresses

    def stop(self) -> None:
        """Close all connections."""
        if self._looking_up is not None:
            self._looking_up.cancel()
            self._looking_up = None
        self.entering.close()

    def _target(self) -> Target | None:
        if not self._hosts:
            return None
        if self.counters.not_dialed != self._failures:  # the next address may do better
            self._failures = self.counters.not_dialed
            self._next += 1
        return Target((self._hosts[self._next % len(self._hosts)], self._home.port), self._context, self._hostname)

    async def _keep_looking_up(self) -> None:
        """As long as there is no address, or none that answers."""
        seen = self.counters.not_dialed
        while True:
            await asyncio.sleep(LOOK_UP_AGAIN)
            if not self._hosts or self.counters.not_dialed != seen:
                seen = self.counters.not_dialed
                await self._look_up()

    async def _look_up(self) -> None:
        try:
            async with asyncio.timeout(LOOK_UP_TIMEOUT):
                self._hosts = await self._resolver.addresses(self._home.host)
        except (OSError, TimeoutError) as error:
            log.warning("cannot resolve the home broker's name %s: %s", self._home.host, error or "no answer")


def limits_of(config: Config, send_proxy: Version | None) -> EnteringLimits:
    """As a broker with these settings has them for its clients."""
    return EnteringLimits(
        max_connections=config.max_connections,
        max_unauthenticated=config.max_unauthenticated,
        max_unauthenticated_per_address=config.max_unauthenticated_per_address,
        max_unauthenticated_memory=config.max_unauthenticated_memory,
        connect_timeout=config.connect_timeout,
        send_proxy=send_proxy or "",
    )
