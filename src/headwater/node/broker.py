"""A broker as an object for asyncio programs:

    async with Broker(Config(port=1883)):
        await asyncio.Event().wait()

Run under `headwater.run` it serves its sockets inside the event loop's wait (node/selector.py); under any other asyncio
loop it is a guest there, and slower.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from functools import partial
from types import TracebackType

from headwater.message import Message
from headwater.node.config import Config
from headwater.node.group_view import GroupView, view_groups
from headwater.node.hooks import Hooks
from headwater.node.loop import EpollPlane, GuestPlane
from headwater.node.selector import HotEventLoop
from headwater.node.server import Server
from headwater.node.statistics import Statistics
from headwater.node.sys_topics import SysTopics
from headwater.routing.topics import check_name
from headwater.wire.reasons import SERVER_SHUTTING_DOWN

log = logging.getLogger("headwater.broker")

BACKLOG = 1024
ACCEPTS_PER_TURN = 64
HOUSEKEEPING = 5.0
"""Seconds between looks for retained messages that expired."""


class Broker:
    """An MQTT 3.1.1 and 5.0 broker. Add hooks before it starts or at any time."""

    def __init__(self, config: Config | None = None, hooks: Hooks | None = None) -> None:
        self.config = config or Config()
        self.hooks = hooks or Hooks()
        self.server = Server(self.config, self.hooks)
        self.addresses: list[tuple[str, int]] = []
        self._listeners: list[socket.socket] = []
        self._started_at = 0.0
        self._sys: SysTopics | None = None

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self.addresses[0][1]

    async def __aenter__(self) -> Broker:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen. Raises OSError when an address cannot be listened on."""
        loop = asyncio.get_running_loop()
        server = self.server
        listeners = _listen(self.config.host, self.config.port)
        if isinstance(loop, HotEventLoop) and loop.hot_selector.plane is None:
            plane = EpollPlane(server.hot, server.timers, loop.hot_selector.epoll)
            loop.hot_selector.plane = plane
            server.plane = plane
        else:
            server.plane = GuestPlane(server.hot, server.timers, loop)
        self._started_at = time.monotonic()
        self.hooks.on_change = self._hooks_changed
        self._hooks_changed()
        for listener in listeners:
            self._listeners.append(listener)
            address = listener.getsockname()
            self.addresses.append((address[0], address[1]))
            server.plane.listen(listener.fileno(), partial(self._accept, listener))
        self._housekeeping()
        if self.config.sys_interval:
            self._sys = SysTopics(server, self._started_at)
            self._sys_tick()
        server.plane.wake()
        self.hooks.tell("started", self)

    async def stop(self) -> None:
        """Stop listening, tell every client (DISCONNECT 0x8B) and close."""
        server = self.server
        if server.stopping:
            return
        server.stopping = True
        for listener in self._listeners:
            server.plane.unlisten(listener.fileno())
            listener.close()
        server.hot.now = time.monotonic()
        for channel in list(server.channels):
            server.disconnect(channel, SERVER_SHUTTING_DOWN)
        server.plane.wake()
        deadline = time.monotonic() + 2.0
        while server.channels and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        for channel in list(server.channels):
            server.lost(channel)
        server.timers.clear()
        server.plane.close()
        loop = asyncio.get_running_loop()
        if isinstance(loop, HotEventLoop) and loop.hot_selector.plane is server.plane:
            loop.hot_selector.plane = None
        self.hooks.tell("stopped", self)

    def publish(self, message: Message) -> None:
        """Route a message of the program's own, as if a client had published it. ValueError: no topic name."""
        check_name(message.topic, self.config.max_topic_levels)
        self.server.hot.now = time.monotonic()
        self.server.publishing.route(message, None)
        self.server.plane.wake()

    def disconnect(self, client_id: str, reason: int, server_reference: str | None = None) -> bool:
        """End a client's connection with this reason, perhaps sending it elsewhere; False when it has none."""
        self.server.hot.now = time.monotonic()
        session = self.server.sessions.get(client_id)
        for channel in self.server.channels:
            if session is not None and channel.session is session:
                self.server.disconnect_soon(channel, reason, "", server_reference)
                self.server.plane.wake()
                return True
        return False

    def use_dispatcher(self, pattern: str, name: str) -> int:
        """From now on the groups that the pattern covers (`$share/+/jobs/#`), also those to come, choose by this
        dispatcher; returns how many groups changed. ValueError: no such dispatcher, or no pattern."""
        self.server.hot.now = time.monotonic()
        return self.server.sharing.use_dispatcher(pattern, name)

    def shared_groups(self) -> list[GroupView]:
        """What can be seen of the shared groups now."""
        return view_groups(self.server)

    def statistics(self) -> Statistics:
        return self.server.statistics(time.monotonic() - self._started_at)

    def _hooks_changed(self) -> None:
        self.server.hot.enabled = not self.hooks.slow

    def _accept(self, listener: socket.socket) -> None:
        self.server.hot.now = time.monotonic()  # the time to connect counts from now, also in an event loop that slept
        for _ in range(ACCEPTS_PER_TURN):
            try:
                connection, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._accept_failed(listener, error)
                return
            try:
                connection.setblocking(False)
                host = address[0]
                self.server.accept(connection, f"{host}:{address[1]}", _is_loopback(host))
            except Exception:
                self.server.stats.failures += 1
                log.exception("serving a new connection failed")
                connection.close()
            self.server.plane.wake()

    def _accept_failed(self, listener: socket.socket, error: OSError) -> None:
        """Out of file descriptors, most likely: leave the queue alone for a second instead of spinning."""
        log.error("cannot accept a connection: %s; raise the limit of open files (ulimit -n)", error.strerror)
        plane = self.server.plane
        plane.unlisten(listener.fileno())

        def again() -> None:
            if not self.server.stopping:
                plane.listen(listener.fileno(), partial(self._accept, listener))

        self.server.timers.at(self.server.hot.now + 1.0, again)

    def _housekeeping(self) -> None:
        now = self.server.hot.now
        self.server.timers.at(now + HOUSEKEEPING, self._housekeeping)
        for message in self.server.router.retained.expire(now):
            self.hooks.tell("retained_expired", message)

    def _sys_tick(self) -> None:
        if self._sys is not None:
            now = self.server.hot.now
            self.server.timers.at(now + self.config.sys_interval, self._sys_tick)
            self._sys.publish(now)


def _is_loopback(host: str) -> bool:
    return host.startswith(("127.", "::ffff:127.")) or host == "::1"


def _listen(host: str, port: int) -> list[socket.socket]:
    """Listening sockets on all addresses of a host, on one port. "localhost" without IPv6 is no error."""
    sockets: list[socket.socket] = []
    failed: OSError | None = None
    for family, kind, protocol, _, found in socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    ):
        address: tuple[object, ...] = found
        if port == 0 and sockets:
            address = (found[0], sockets[0].getsockname()[1], *found[2:])
        try:
            listener = socket.socket(family, kind, protocol)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6 and host != "::":
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted sockets inherit it
                listener.bind(address)
                listener.listen(BACKLOG)
            except OSError:
                listener.close()
                raise
        except OSError as error:
            failed = error
            if port and error.errno in (errno.EADDRINUSE, errno.EACCES):
                # Half of "localhost" would look like success, and clients would reach somebody else.
                for other in sockets:
                    other.close()
                raise
            continue
        listener.setblocking(False)
        sockets.append(listener)
    if not sockets:
        raise failed or OSError(f"no address for {host}")
    sockets.sort(key=lambda s: s.family != socket.AF_INET)
    return sockets
