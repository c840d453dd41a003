"""A listener: its sockets, and what a new connection passes through before it is MQTT.

    PROXY header -> TLS -> WebSocket -> MQTT      each only where the listener's settings say so

A layer takes the place of the channel's `recv` and `send_bytes` and calls those that were there before. A plain
connection has the socket's own, and pays nothing. All layers together have `connect_timeout` until CONNECT.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from headwater.node.plane.channel import Channel, Entrance, Transport
from headwater.node.transports.contexts import make_context, name_in
from headwater.node.transports.proxy_protocol import HEAD, ProxyError, rest_length, source
from headwater.node.transports.settings import ListenerSettings
from headwater.node.transports.sockets import address_text, close_all, is_loopback, listen_tcp, listen_unix
from headwater.node.transports.tls import Tls
from headwater.node.transports.websocket import WebSocket

log = logging.getLogger("headwater.transports")

Watch = Callable[[Channel, bool, bool], None]

TLS_WEIGHT: Final = 48 * 1024
"""Bytes that OpenSSL takes in a handshake (measured: 46,000)."""
WEBSOCKET_WEIGHT: Final = 16 * 1024
"""An HTTP request that is not whole, at most."""


class Listener(Entrance):
    """Made from its settings, which reads certificates (CertificateError); `open` listens."""

    def __init__(self, settings: ListenerSettings) -> None:
        super().__init__()
        self.settings = settings
        self.topic_alias_maximum = settings.topic_alias_maximum
        self.auto_id_prefix = settings.auto_id_prefix
        self.allow_empty_client_id = settings.allow_empty_client_id
        self.username_as_client_id = settings.username_as_client_id
        self.sockets: list[socket.socket] = []
        self._is_handed = False
        self.watch: Watch | None = None
        self.begin_step: Callable[[Tls], bool] | None = None
        """Where steps of TLS handshakes are done, if not here."""
        self.located: Callable[[Channel], None] | None = None
        """Told when a proxy has said where a connection comes from."""
        self.behind_proxy = settings.proxy_protocol
        self.weight = 0 if settings.tls is None else TLS_WEIGHT
        if settings.protocol == "websocket":
            self.weight += WEBSOCKET_WEIGHT
        self.context: ssl.SSLContext | None = None
        self.load_certificates()()
        self._upgrade: Callable[[Channel, bytes], tuple[bool, bytes]] | None = None
        if settings.protocol == "websocket":
            from headwater.node.transports.upgrade import Upgrade  # wsproto is only loaded where it is needed

            self._upgrade = Upgrade(settings.websocket_path, settings.websocket_origins)

    @property
    def scheme(self) -> str:
        secure = self.settings.tls is not None
        if self.settings.protocol == "websocket":
            return "wss" if secure else "ws"
        return "mqtts" if secure else "mqtt"

    @property
    def port(self) -> int:
        """0 for a Unix socket."""
        return 0 if self.settings.unix else int(self.sockets[0].getsockname()[1])

    def __str__(self) -> str:
        settings = self.settings
        where = settings.unix or address_text(settings.host, settings.port or 0)
        return f"{self.scheme}{'+unix' if settings.unix else ''}://{where}"

    def places(self) -> list[str]:
        """Where it listens, for people."""
        kinds = {"mqtt": "", "mqtts": " (TLS)", "ws": " (WebSocket)", "wss": " (WebSocket, TLS)"}
        kind = kinds[self.scheme]
        if self.settings.unix:
            return [f"{self.settings.unix}{kind}"]
        return ["{} port {}{}".format(*each.getsockname()[:2], kind) for each in self.sockets]

    def load_certificates(self) -> Callable[[], None]:
        """Read the files anew; nothing changes until the result is called. Raises CertificateError."""
        tls = self.settings.tls
        context = None if tls is None else make_context(tls, self.settings.protocol)
        return partial(setattr, self, "context", context)

    def open(self, handed: Mapping[str, int] | None = None) -> None:
        """Raises OSError, whose `filename` says where it could not listen. `handed`: other processes listen there, too
        (node/workers); these are the descriptors of Unix sockets, by their paths."""
        settings = self.settings
        try:
            if settings.unix and handed is not None:
                self.sockets = [socket.socket(fileno=handed[settings.unix])]
                self._is_handed = True
            elif settings.unix:
                self.sockets = [listen_unix(settings.unix, settings.unix_mode)]
            else:
                self.sockets = listen_tcp(settings.host, settings.port or 0, is_shared=handed is not None)
        except OSError as error:
            error.filename = str(self)
            raise

    def close(self) -> None:
        if self._is_handed:  # its file is not ours to remove
            for each in self.sockets:
                each.close()
        else:
            close_all(self.sockets)
        self.sockets = []

    def address_of(self, peer: object) -> tuple[str, bool]:
        """A peer as `accept` gives it: as text, and whether it is of this machine."""
        if not isinstance(peer, tuple):
            return f"unix:{self.settings.unix}", True
        return address_text(peer[0], peer[1]), is_loopback(peer[0])

    # ---- connections -------------------------------------------------------------------------------------------

    def admit(self, channel: Channel) -> bool:
        settings = self.settings
        if settings.max_connections is not None and self.connections >= settings.max_connections:
            log.info("%s was turned away: listener %s reached max_connections", channel.address, self)
            return False
        if settings.allow_anonymous is not None:
            channel.allow_anonymous = settings.allow_anonymous
        if settings.max_qos is not None:
            channel.max_qos = settings.max_qos
        channel.use_passwords = settings.use_passwords
        channel.use_rules = settings.use_rules
        if settings.proxy_protocol:
            channel.recv = ProxyHeader(channel, self._found).recv
        else:
            self._add_layers(channel)
        return True

    def _found(self, channel: Channel) -> None:
        if self.located is not None:
            self.located(channel)
        self._add_layers(channel)

    def _add_layers(self, channel: Channel) -> None:
        below: Transport | None = None
        if self.context is not None:
            writable = partial(self._wait_writable, channel)
            below = tls = Tls(channel, self.context, self._secured, writable, self.begin_step)
            channel.recv, channel.send_bytes = tls.recv, tls.send
        if self._upgrade is not None:
            below = web = WebSocket(channel, self._upgrade, below)
            channel.recv, channel.send_bytes = web.recv, web.send
        channel.transport = below

    def _wait_writable(self, channel: Channel, wanted: bool) -> None:
        assert self.watch is not None
        self.watch(channel, True, wanted)

    def _secured(self, channel: Channel, tls: ssl.SSLObject) -> None:
        """The handshake has ended well: who is it?"""
        certificate = tls.getpeercert()
        which = "none" if self.settings.tls is None else self.settings.tls.username
        if not certificate:
            return
        channel.certificate = dict(certificate)
        if which == "none":
            return
        channel.identity = name_in(channel.certificate, which)
        if not channel.identity:
            log.info("%s was turned away: its certificate has no name to be known by (%s)", channel.address, which)
            raise ConnectionAbortedError("a certificate without a name")


class ProxyHeader:
    """Reads the header, then puts the other layers in its own place."""

    def __init__(self, channel: Channel, then: Callable[[Channel], None]) -> None:
        self._channel = channel
        self._recv = channel.recv
        self._then = then
        self._have = b""

    def recv(self, size: int) -> bytes:
        channel = self._channel
        try:
            while (missing := self._missing()) > 0:
                data = self._recv(missing)
                if not data:
                    return data
                self._have += data
            found = source(self._have[:HEAD], self._have[HEAD:])
        except ProxyError as error:
            log.info("%s was turned away: %s", channel.address, error)
            raise ConnectionAbortedError(str(error)) from None
        if not found.local:
            channel.loopback = is_loopback(found.host)
            if found.host:
                log.debug("%s comes by %s", found, channel.address)
                channel.address = str(found)
        channel.recv = self._recv
        self._then(channel)
        return channel.recv(size)

    def _missing(self) -> int:
        length = rest_length(self._have[:HEAD])
        return HEAD - len(self._have) if len(self._have) < HEAD else HEAD + length - len(self._have)
