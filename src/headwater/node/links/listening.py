"""Where other nodes come in.

Anybody who reaches the port can open a connection, so those that have not proved to be a node are few, few of one
address, and have little time. Where a bound is reached, the oldest gives way, as among clients (protocol/strangers.py):
of the new one's address if that has too many, else of the address that has most. So a crowd that says nothing keeps no
node out: a node says its Hello within milliseconds, and its address has one connection. A node that is proven no longer
counts here (`settled`).

A stranger can come as often as it likes: the log has the first one, and then how many there were (turned_away.py).
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from headwater.node.access.limits import host_of
from headwater.node.links.channels import add_tls, open_channel
from headwater.node.links.contexts import LinkContexts
from headwater.node.links.settings import ClusterSettings
from headwater.node.links.turned_away import TurnedAway
from headwater.node.plane.channel import Channel, Entrance, Peer
from headwater.node.plane.timers import Timer
from headwater.node.protocol.core import Core
from headwater.node.transports.sockets import address_text, close_all, is_loopback, listen_tcp, listen_unix
from headwater.web.addresses import network_of

log = logging.getLogger("headwater.links")

MOST_UNPROVEN: Final = 64
"""Connections that have not said a Hello."""
MOST_UNPROVEN_OF_ONE_ADDRESS: Final = 8
HELLO_TIMEOUT: Final = 5.0
"""Seconds for the TLS handshake and the Hello together."""
LATER: Final = 1.0
"""Seconds for which nobody is accepted when that has failed."""
UNIX_MODE: Final = 0o660


class LinkDoor(Entrance):
    """Listens from `open` to `close`, and accepts from `start` on. `accepted` says who deals with a new channel, before
    anything is read from it; whoever that is calls `settled` when a node is proven, or loses the channel."""

    def __init__(
        self,
        core: Core,
        settings: ClusterSettings,
        contexts: LinkContexts | None,
        accepted: Callable[[Channel], Peer],
    ) -> None:
        super().__init__()
        self._core = core
        self._settings = settings
        self._contexts = contexts
        self._accepted = accepted
        self._sockets: list[socket.socket] = []
        self._unproven: dict[Channel, Timer] = {}
        """And when their time is over, the oldest first. Those that have gone stay here until the next one comes."""
        self.cut_off = TurnedAway(log)
        """Connections that gave way to newer ones, or said nothing in time."""

    def __str__(self) -> str:
        settings = self._settings
        return f"unix:{settings.unix}" if settings.unix else address_text(settings.host, settings.port)

    @property
    def port(self) -> int:
        """0 for a Unix socket, and before `open`."""
        return 0 if self._settings.unix or not self._sockets else int(self._sockets[0].getsockname()[1])

    @property
    def addresses(self) -> list[str]:
        """Where it listens, as others dial it; an address that stands for all of them is there as it is."""
        if self._settings.unix:
            return [str(self)] if self._sockets else []
        return [address_text(*each.getsockname()[:2]) for each in self._sockets]

    @property
    def unproven(self) -> int:
        """Connections that have not said a Hello."""
        self._forget_gone()
        return len(self._unproven)

    def open(self) -> None:
        """Raises OSError, whose `filename` says where it could not listen."""
        settings = self._settings
        try:
            if settings.unix:
                self._sockets = [listen_unix(settings.unix, UNIX_MODE)]
            else:
                self._sockets = listen_tcp(settings.host, settings.port)
        except OSError as error:
            error.filename = str(self)
            raise

    def start(self) -> None:
        for each in self._sockets:
            self._listen(each)

    def close(self) -> None:
        """Nobody is let in any more, and who is not proven is closed."""
        for each in self._sockets:
            self._core.plane.unlisten(each.fileno())
        close_all(self._sockets)
        self._sockets = []
        waiting, self._unproven = self._unproven, {}
        for channel, timer in waiting.items():
            self._core.timers.cancel(timer)
            self._core.lost(channel)

    def settled(self, channel: Channel) -> None:
        """It is a node, by its Hello: it does not count any more, and has all the time that it wants."""
        timer = self._unproven.pop(channel, None)
        if timer is not None:
            self._core.timers.cancel(timer)
            channel.known = True

    # ---- accepting ---------------------------------------------------------------------------------------------

    def _listen(self, listening: socket.socket) -> None:
        """If the broker has not stopped meanwhile."""
        if not self._core.stopping and listening.fileno() >= 0:
            self._core.plane.listen(listening.fileno(), partial(self._accept, listening))

    def _accept(self, listening: socket.socket) -> None:
        hot = self._core.hot
        hot.now = time.monotonic()  # the time for the Hello counts from now, also in an event loop that slept
        while self._accept_one(listening) and time.monotonic() < hot.until:
            pass  # those who are connected come first
        self._core.plane.wake()

    def _accept_one(self, listening: socket.socket) -> bool:
        """False: nobody is there."""
        core = self._core
        try:
            connection, peer = listening.accept()
        except BlockingIOError:
            return False
        except OSError as error:
            # Out of file descriptors, most likely: leave the queue alone for a while instead of spinning.
            log.error("cannot accept a link: %s; raise the limit of open files (ulimit -n)", error.strerror)
            core.plane.unlisten(listening.fileno())
            core.timers.at(core.hot.now + LATER, partial(self._listen, listening))
            return False
        try:
            connection.setblocking(False)
            self._serve(connection, peer)
        except Exception:
            core.stats.failures += 1
            log.exception("serving a new link failed")
        return True

    def _serve(self, connection: socket.socket, peer: tuple[str, int] | str) -> None:
        core = self._core
        host = "" if isinstance(peer, str) else peer[0]
        address = str(self) if isinstance(peer, str) else address_text(peer[0], peer[1])
        self._make_room(network_of(host))
        channel = open_channel(core, self, connection, address, not host or is_loopback(host))
        if self._contexts is not None:
            add_tls(core, channel, self._contexts.server, _nothing_more, True)
        try:
            channel.peer = self._accepted(channel)
        except BaseException:
            core.lost(channel)
            raise
        self._unproven[channel] = core.timers.at(core.hot.now + HELLO_TIMEOUT, partial(self._time_is_over, channel))

    def _make_room(self, network: str) -> None:
        """For one more connection of there ("": by a Unix socket)."""
        self._forget_gone()
        crowds: dict[str, list[Channel]] = {}
        for channel in self._unproven:
            crowds.setdefault(_network(channel), []).append(channel)
        same = crowds.get(network, [])
        if network and len(same) >= MOST_UNPROVEN_OF_ONE_ADDRESS:
            self._cut_off(same[0], f"{len(same)} connections of its address have not said Hello")
        elif len(self._unproven) >= MOST_UNPROVEN:
            largest = max(crowds.values(), key=len)
            self._cut_off(largest[0], f"{MOST_UNPROVEN} connections have not said Hello")

    def _cut_off(self, channel: Channel, why: str) -> None:
        self._core.timers.cancel(self._unproven.pop(channel))
        self._core.lost(channel)
        self._tell(channel.address, why)

    def _tell(self, address: str, why: str) -> None:
        self.cut_off.tell(self._core.hot.now, f"{address} was cut off: {why}")

    def _forget_gone(self) -> None:
        for channel in [each for each in self._unproven if each.fd < 0]:
            self._core.timers.cancel(self._unproven.pop(channel))

    def _time_is_over(self, channel: Channel) -> None:
        del self._unproven[channel]
        if channel.fd >= 0:
            self._core.lost(channel)
            self._tell(channel.address, f"no Hello within {HELLO_TIMEOUT:g} s")


def _network(channel: Channel) -> str:
    return network_of(host_of(channel.address)) if channel.over_tcp else ""


def _nothing_more(channel: Channel) -> None:
    """Who it is, its Hello says."""
