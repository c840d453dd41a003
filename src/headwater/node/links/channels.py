"""Channels of links, whichever side began: as `Server.accept` makes those of clients, but for a `Peer`.

They are no clients: they are neither among `Server.channels` nor counted by `max_connections`.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from functools import partial

from headwater.node.plane.channel import Channel, Entrance, Peer
from headwater.node.protocol.core import Core
from headwater.node.transports.sockets import send_at_once
from headwater.node.transports.tls import Tls


def open_channel(
    core: Core,
    entrance: Entrance,
    connection: socket.socket,
    address: str,
    loopback: bool,
    kind: type[Channel] = Channel,
) -> Channel:
    """Of a connected socket, which must not block: it is read from in the next turn, so that until then its peer and
    its layers are to be set. Raises OSError, having closed the socket."""
    channel = kind(core.hot, connection.fileno(), connection.recv, connection.send)
    channel.socket = connection
    channel.over_tcp = connection.family in (socket.AF_INET, socket.AF_INET6)
    channel.address = address
    channel.loopback = loopback
    try:
        if channel.over_tcp:
            send_at_once(connection, loopback)
        core.plane.add(channel)
    except BaseException:
        connection.close()
        raise
    channel.peer = Unclaimed(core, channel)
    channel.entrance = entrance  # whose channels part from their layers when they end
    entrance.connections += 1
    core.stats.sockets_opened += 1
    return channel


def add_tls(
    core: Core,
    channel: Channel,
    context: ssl.SSLContext,
    established: Callable[[Channel], None],
    server_side: bool,
    server_hostname: str | None = None,
) -> Tls:
    """Have the channel speak TLS; `established` is called when the certificate is there, before any byte is."""

    def secured(channel: Channel, connection: ssl.SSLObject) -> None:
        certificate = connection.getpeercert()
        channel.certificate = dict(certificate) if certificate else None
        established(channel)

    writable = partial(_wait_writable, core, channel)
    tls = Tls(channel, context, secured, writable, server_hostname=server_hostname, server_side=server_side)
    channel.recv, channel.send_bytes = tls.recv, tls.send
    channel.transport = tls
    return tls


def _wait_writable(core: Core, channel: Channel, wanted: bool) -> None:
    core.plane.watch(channel, True, wanted)


class Unclaimed(Peer):
    """Of a channel that has nobody else yet."""

    def __init__(self, core: Core, channel: Channel) -> None:
        self._core = core
        self._channel = channel

    def feed(self, data: bytes) -> None:
        self.failed("")

    def failed(self, why: str) -> None:
        self._core.lost(self._channel)

    def written(self) -> None:
        pass

    def lost(self) -> None:
        self._channel.peer = None  # else both would stay until the garbage collector comes
