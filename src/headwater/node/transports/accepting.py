"""Lets clients in by the listeners of a broker, until it stops.

Connections are accepted one after another as long as the turn has time: those who are connected come first. Where TLS
is spoken, nobody is accepted while too many handshakes are under way (handshakes.py).
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Mapping
from functools import partial

from headwater.node.config import Config
from headwater.node.protocol.server import Server
from headwater.node.transports.handshakes import Handshaking
from headwater.node.transports.listener import Listener
from headwater.node.transports.settings import ListenerSettings
from headwater.node.transports.sockets import BACKLOG

log = logging.getLogger("headwater.broker")

LATER = 1.0
"""Seconds for which a listener is left alone that could not accept."""


def listener_settings(config: Config) -> list[ListenerSettings]:
    """`host` and `port` are a listener of their own, unless there are others and neither was set. Of a proxy it is
    `proxy.listen`."""
    if config.proxy.enabled:
        if config.listeners and "listen" not in config.proxy.model_fields_set:
            return config.listeners
        places = [ListenerSettings(host=host, port=port) for host, port in config.proxy.places]
        return [*places, *config.listeners]
    if config.listeners and not config.model_fields_set & {"host", "port"}:
        return config.listeners
    return [ListenerSettings(host=config.host, port=config.port), *config.listeners]


def open_listeners(config: Config, handed: Mapping[str, int] | None = None) -> list[Listener]:
    """All of them or none. Raises OSError, CertificateError. `handed`: as for `Listener.open`."""
    listeners = [Listener(settings) for settings in listener_settings(config)]
    for number, listener in enumerate(listeners):
        try:
            listener.open(handed)
        except OSError:
            for other in listeners[:number]:
                other.close()
            raise
    return listeners


class Accepting:
    def __init__(self, server: Server, listeners: list[Listener]) -> None:
        self._server = server
        self._listeners = listeners
        self.handshaking: Handshaking | None = None

    def start(self) -> list[tuple[str, int]]:
        """Serve who comes; returns the addresses, but those of Unix sockets."""
        server = self._server
        addresses: list[tuple[str, int]] = []
        if any(listener.settings.tls is not None for listener in self._listeners):
            self.handshaking = Handshaking.start(server)
        for listener in self._listeners:
            listener.watch = server.plane.watch
            listener.begin_step = None if self.handshaking is None else self.handshaking.begin
            listener.located = server.strangers.moved
            for each in listener.sockets:
                each.listen(BACKLOG)  # those that are shared with other processes get their part from now on
                if not listener.settings.unix:
                    addresses.append(each.getsockname()[:2])
                self._listen(listener, each)
        return addresses

    def close(self) -> None:
        """Nobody is let in any more; handshakes go on."""
        for listener in self._listeners:
            for each in listener.sockets:
                self._server.plane.unlisten(each.fileno())
            listener.close()

    def stop(self) -> None:
        """All connections have gone."""
        if self.handshaking is not None:
            self.handshaking.stop()
            self.handshaking = None
            for listener in self._listeners:
                listener.begin_step = None

    def _listen(self, listener: Listener, listening: socket.socket) -> None:
        """If the broker has not stopped meanwhile."""
        if not self._server.stopping and listening.fileno() >= 0:
            self._server.plane.listen(listening.fileno(), partial(self._accept, listener, listening))

    def _accept(self, listener: Listener, listening: socket.socket) -> None:
        handshaking = self.handshaking
        if handshaking is not None and handshaking.is_full and listener.context is not None:
            self._server.plane.unlisten(listening.fileno())
            handshaking.when_free(partial(self._listen, listener, listening))
            return
        hot = self._server.hot
        hot.now = time.monotonic()  # the time to connect counts from now, also in an event loop that slept
        while self._accept_one(listener, listening) and time.monotonic() < hot.until:
            pass  # those who are connected come first
        self._server.plane.wake()

    def _accept_one(self, listener: Listener, listening: socket.socket) -> bool:
        """False: nobody is there."""
        server = self._server
        try:
            connection, peer = listening.accept()
        except BlockingIOError:
            return False
        except OSError as error:
            # Out of file descriptors, most likely: leave the queue alone for a while instead of spinning.
            log.error("cannot accept a connection: %s; raise the limit of open files (ulimit -n)", error.strerror)
            server.plane.unlisten(listening.fileno())
            server.timers.at(server.hot.now + LATER, partial(self._listen, listener, listening))
            return False
        try:
            connection.setblocking(False)
            address, loopback = listener.address_of(peer)
            server.accept(connection, address, loopback, listener)
        except Exception:
            server.stats.failures += 1
            log.exception("serving a new connection failed")
            connection.close()
        return True
