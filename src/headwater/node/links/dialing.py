"""Connections to other nodes, begun here.

    name -> addresses (resolving.py) -> connect, address by address -> TLS, if there is any -> a channel for the caller

Nothing of it blocks, and all of it together has `DIAL_TIMEOUT`: of what is left of that, each address has its share, so
that one that does not answer leaves time for the next. asyncio waits for the connect, which is rare; from then on the
socket is the plane's, TLS handshake included.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from headwater.node.links.channels import Unclaimed, add_tls, open_channel
from headwater.node.links.contexts import LinkContexts
from headwater.node.links.resolving import Resolver
from headwater.node.links.settings import PORT
from headwater.node.plane.channel import Channel, Entrance
from headwater.node.protocol.core import Core
from headwater.node.transports.sockets import is_loopback
from headwater.node.transports.tls import Tls
from headwater.peering.membership.seeds import Seed, parse_seed

log = logging.getLogger("headwater.links")

DIAL_TIMEOUT: Final = 5.0
"""Seconds for name, connection and TLS handshake together."""
MOST_TRIED: Final = 8
"""Addresses of one name that are tried."""

ALERTS: Final = {
    "unknown ca": " (its cluster.tls.ca has no authority that has signed this node's certificate)",
    "certificate required": " (this node has shown no certificate)",
    "certificate expired": " (this node's certificate)",
    "certificate revoked": " (this node's certificate)",
    "protocol version": " (its cluster.tls.minimum_version)",
}
"""What the alerts mean that a door sends."""

Done = Callable[[Channel | None, str], None]


class Dialer(Entrance):
    """Ports in `not_for_nodes` are of other listeners of this broker, which are not dialed: it would be a client that
    breaks the protocol, and may be banned for it."""

    def __init__(self, core: Core, contexts: LinkContexts | None, resolver: Resolver) -> None:
        super().__init__()
        self.not_for_nodes: set[int] = set()
        self._core = core
        self._contexts = contexts
        self._resolver = resolver
        self._dialing: set[asyncio.Task[None]] = set()
        self._securing: set[Securing] = set()

    def dial(self, address: str, done: Done) -> None:
        """Connect to `host:port`, `[IPv6 address]:port` or `unix:PATH`. `done` is called once, later: with a channel
        that takes and gives plaintext and whose `peer` is to be set then, or with None and the reason. After `close`
        it is not called."""
        task = asyncio.get_running_loop().create_task(self._dial(address, done))
        self._dialing.add(task)
        task.add_done_callback(self._dialing.discard)

    def close(self) -> None:
        """Give up all that is under way."""
        for task in list(self._dialing):
            task.cancel()
        for each in list(self._securing):
            each.cancel()

    async def _dial(self, address: str, done: Done) -> None:
        core = self._core
        deadline = time.monotonic() + DIAL_TIMEOUT
        try:
            connection, found = await self._connect(parse_seed(address, PORT), deadline)
            is_local = found.port == 0 or is_loopback(found.host)
            channel = open_channel(core, self, connection, str(found), is_local)
        except Exception as error:
            if not isinstance(error, OSError | ValueError):
                core.stats.failures += 1
                log.exception("dialing %s failed", address)
            with core.turn():
                self._tell(done, None, reason_of(error))
            return
        with core.turn():
            if self._contexts is None:
                self._hand_over(channel, done)
            else:
                secured = partial(self._secured, done)
                Securing(core, channel, self._contexts.client, deadline, secured, self._securing).begin()

    # ---- connecting --------------------------------------------------------------------------------------------

    async def _connect(self, seed: Seed, deadline: float) -> tuple[socket.socket, Seed]:
        """A connected socket, and the address behind it. Raises OSError."""
        if seed.port == 0:
            return _connect_unix(seed.host), seed
        hosts = [seed.host]
        if seed.is_name():
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    hosts = (await self._resolver.addresses(seed.host))[:MOST_TRIED]
            except TimeoutError:
                raise OSError(f"cannot resolve {seed.host}: no answer") from None
            except OSError as error:
                raise OSError(f"cannot resolve {seed.host}: {reason_of(error)}") from None
        reasons: list[str] = []
        for number, host in enumerate(hosts):
            share = (deadline - time.monotonic()) / (len(hosts) - number)
            try:
                if seed.port in self.not_for_nodes and is_of_this_machine(host):
                    raise OSError("this node listens there, but not for nodes")
                async with asyncio.timeout(share):
                    return await connect_tcp(host, seed.port), Seed(host, seed.port)
            except OSError as error:
                reasons.append(f"{Seed(host, seed.port)}: {reason_of(error)}" if len(hosts) > 1 else reason_of(error))
        raise OSError("; ".join(reasons) or f"{seed.host} has no address")

    # ---- what comes behind it ----------------------------------------------------------------------------------

    def _secured(self, done: Done, channel: Channel | None, reason: str) -> None:
        if channel is None:
            self._tell(done, None, reason)
        else:
            self._hand_over(channel, done)

    def _hand_over(self, channel: Channel, done: Done) -> None:
        channel.known = True
        channel.peer = unclaimed = Unclaimed(self._core, channel)
        self._tell(done, channel, "")
        if channel.peer is unclaimed:
            self._core.lost(channel)

    def _tell(self, done: Done, channel: Channel | None, reason: str) -> None:
        try:
            done(channel, reason)
        except Exception:
            self._core.stats.failures += 1
            log.exception("a link that was dialed could not be used")


class Securing(Unclaimed):
    """The TLS handshake of a connection. `secured` is told of its end, unless it was cancelled."""

    def __init__(
        self,
        core: Core,
        channel: Channel,
        context: ssl.SSLContext,
        deadline: float,
        secured: Done,
        under_way: set[Securing],
        server_hostname: str | None = None,
    ) -> None:
        super().__init__(core, channel)
        self._secured: Done | None = secured
        self._under_way = under_way
        self._reason = "closed during the TLS handshake"
        self._timer = core.timers.at(deadline, self._time_is_over)
        self._tls: Tls | None = add_tls(core, channel, context, self._established, False, server_hostname)
        channel.peer = self
        under_way.add(self)

    def begin(self) -> None:
        assert self._tls is not None
        try:
            self._tls.begin()
        except OSError as error:
            self.failed(reason_of(error))

    def failed(self, why: str) -> None:
        self._reason = why
        self._core.lost(self._channel)

    def lost(self) -> None:
        super().lost()
        failure = self._tls.failure if self._tls is not None else ""
        self._end(None, refusal(failure) if failure else self._reason)

    def cancel(self) -> None:
        self._secured = None
        self._core.lost(self._channel)

    def _established(self, channel: Channel) -> None:
        self._end(channel, "")

    def _time_is_over(self) -> None:
        self.failed(f"no answer to the TLS handshake within {DIAL_TIMEOUT:g} s")

    def _end(self, channel: Channel | None, reason: str) -> None:
        self._core.timers.cancel(self._timer)
        self._under_way.discard(self)
        self._tls = None  # which knows us
        secured, self._secured = self._secured, None
        if secured is not None:
            secured(channel, reason)


def refusal(failure: str) -> str:
    """Why TLS failed, for people: of an alert, what the other node has against this one."""
    words = failure.replace("_", " ").lower()
    _, is_alert, alert = words.partition("alert ")
    if "wrong version number" in words:
        return "the other node speaks no TLS there (cluster.tls)"
    if not is_alert:
        return f"this node does not trust the other one's certificate: {failure}" if "certificate" in words else failure
    return f"the other node refused TLS: {alert}{ALERTS.get(alert, '')}"


async def connect_tcp(host: str, port: int) -> socket.socket:
    """Raises OSError."""
    [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )
    connection = socket.socket(family, kind, protocol)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, address)
        if is_own(connection):
            raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    except BaseException:
        connection.close()
        raise
    return connection


def is_of_this_machine(host: str) -> bool:
    """Whether a numeric address is one of this machine's: only those can be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host.partition("%")[0], 0))
        except OSError:
            return False
    return True


def is_own(connection: socket.socket) -> bool:
    """Whether both ends are this socket: TCP does that where nobody listens and the system happened to choose the port
    that is dialed for our end."""
    return bool(connection.getsockname() == connection.getpeername())


def _connect_unix(path: str) -> socket.socket:
    """At once or not at all. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.connect(path)
    except BlockingIOError:
        connection.close()
        raise OSError("too many connections wait there") from None
    except BaseException:
        connection.close()
        raise
    return connection


def reason_of(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)  # asyncio has words of its own
    return error.strerror or str(error) or "no answer in time"
