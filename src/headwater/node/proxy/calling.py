"""Connections to the home broker, begun here; asyncio waits for the connect, the rest is the plane's (links/dialing.py
does the same for nodes)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from headwater.node.bridge.preparing import client_context
from headwater.node.bridge.settings import BridgeTls
from headwater.node.links.channels import open_channel
from headwater.node.links.dialing import Securing, connect_tcp, reason_of
from headwater.node.links.resolving import Resolver
from headwater.node.plane.channel import Channel, Entrance
from headwater.node.protocol.core import Core
from headwater.node.proxy.channel import HomeChannel
from headwater.node.proxy.settings import ProxySettings
from headwater.node.settings import ConfigError
from headwater.node.transports.sockets import is_loopback
from headwater.peering.membership.seeds import Seed

log = logging.getLogger("headwater.proxy")

CALL_TIMEOUT: Final = 5.0
"""Seconds for name, connection and TLS handshake together."""

Done = Callable[[HomeChannel | None, str], None]


class Caller(Entrance):
    def __init__(self, core: Core, settings: ProxySettings) -> None:
        """Raises ConfigError, CertificateError."""
        super().__init__()
        self._core = core
        self._settings = settings
        self._resolver = Resolver()
        self.context = client_context(settings.tls or BridgeTls()) if settings.is_secure else None
        self.hostname = settings.home.host if self.context is not None and self.context.check_hostname else None
        """Whose certificate it has to be."""
        self._calling: set[asyncio.Task[None]] = set()
        self._securing: set[Securing] = set()
        self.password()

    def password(self) -> str | None:
        """Read again for each connection. Raises ConfigError."""
        settings = self._settings
        if not settings.password_file:
            return settings.password.get_secret_value() or None
        try:
            return Path(settings.password_file).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"proxy.password_file {settings.password_file}: {error}") from None

    def call(self, done: Done) -> None:
        """`done` is called once, later: with a channel whose `peer` is to be set then, or with None and the reason.
        After `close` it is not called."""
        task = asyncio.get_running_loop().create_task(self._call(done))
        self._calling.add(task)
        task.add_done_callback(self._calling.discard)

    def close(self) -> None:
        for task in list(self._calling):
            task.cancel()
        for each in list(self._securing):
            each.cancel()

    async def _call(self, done: Done) -> None:
        core = self._core
        deadline = time.monotonic() + CALL_TIMEOUT
        home = self._settings.home
        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                channel = await self._open(home)
        except (OSError, TimeoutError) as error:
            with core.turn():
                done(None, reason_of(error) or "no answer in time")
            return
        with core.turn():
            if self.context is None:
                self._hand_over(done, channel, "")
            else:
                Securing(
                    *(core, channel, self.context, deadline, partial(self._hand_over, done), self._securing),
                    self.hostname,
                ).begin()

    async def _open(self, home: Seed) -> Channel:
        hosts = await self._resolver.addresses(home.host) if home.is_name() else [home.host]
        failure: OSError | None = None
        for host in hosts:
            try:
                connection = await connect_tcp(host, home.port)
            except OSError as error:
                failure = error
                continue
            return open_channel(self._core, self, connection, str(home), is_loopback(host), HomeChannel)
        raise failure or OSError(f"{home.host} has no address")

    def _hand_over(self, done: Done, channel: Channel | None, reason: str) -> None:
        assert channel is None or isinstance(channel, HomeChannel)
        done(channel, reason)
