"""A broker as an object for asyncio programs:

    async with Broker(Config(port=1883)):
        await asyncio.Event().wait()

Run under `headwater.run` it serves its sockets inside the event loop's wait (node/plane/selector.py); under any other
asyncio loop it is a guest there, and slower.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from headwater.message import NEVER, Message
from headwater.node.access.limits import Ban
from headwater.node.access.settings import AccessSettings
from headwater.node.bridge.using import UsedBridges
from headwater.node.config import Config
from headwater.node.forwarding.using import UsedForwards
from headwater.node.hooks import Hooks
from headwater.node.links.checking import check_cluster
from headwater.node.persistence.storage import Storage
from headwater.node.plane.guest import GuestPlane
from headwater.node.plane.loop import EpollPlane
from headwater.node.plane.selector import HotEventLoop
from headwater.node.protocol.admission import PROGRAM, TOO_MANY_TOPICS, Publication
from headwater.node.protocol.group_view import GroupView, view_groups
from headwater.node.protocol.housekeeping import Housekeeping
from headwater.node.protocol.server import Server
from headwater.node.protocol.statistics import Statistics, statistics_of
from headwater.node.protocol.sys_topics import Others
from headwater.node.transports.accepting import Accepting, open_listeners
from headwater.node.transports.listener import Listener
from headwater.routing.topics import InvalidTopicName
from headwater.wire.reasons import SERVER_SHUTTING_DOWN

if TYPE_CHECKING:
    from headwater.disk.errors import StorageError
    from headwater.node.advice.advising import Receiver
    from headwater.node.advice.document import Advice
    from headwater.node.bridge.preparing import Prepared
    from headwater.node.delivery.handing_over import HandingOver
    from headwater.node.delivery.history import HistoryProcess
    from headwater.node.forwarding.preparing import Prepared as PreparedForward
    from headwater.node.links.cluster import Cluster
    from headwater.node.persistence.backend import Backend
    from headwater.node.persistence.backup import Snapshot
    from headwater.node.proxy.proxy import Proxy
    from headwater.store.store import Store

log = logging.getLogger("headwater.broker")


class TooManyTopics(ValueError):
    """A message would make one topic more than the delivery store may have."""


class Broker:
    """An MQTT 3.1.1 and 5.0 broker. Add hooks before it starts or at any time."""

    def __init__(
        self,
        config: Config | None = None,
        hooks: Hooks | None = None,
        backend: Backend | None = None,
        store: Store | None = None,
    ) -> None:
        """`backend`: where sessions and retained messages are kept, instead of `data_dir`. `store`: where messages go
        before they are delivered, beside a backend or `data_dir`; the broker closes both."""
        self.config = config or Config()
        self.hooks = hooks or Hooks()
        self.server = Server(self.config, self.hooks)
        self.addresses: list[tuple[str, int]] = []
        self.listeners: list[Listener] = []
        self._started_at = 0.0
        self._storage = Storage(self.server, backend, store)
        self.failure: StorageError | None = None
        """Why the broker has stopped serving by itself."""
        self.on_failure: Callable[[], None] | None = None
        self.handed: Mapping[str, int] | None = None
        """Set before the start: this is one of several processes that listen in the same places (node/workers), and
        these are the descriptors of Unix sockets, by their paths."""
        self.before_clients: Callable[[], Awaitable[None]] | None = None
        """Set before the start: waited for before clients are let in."""
        self.bridges = UsedBridges(self.server)
        self.forwards = UsedForwards(self.server, lambda: self._storage.store)
        self.others = Others()
        """What other processes of the same node have counted."""
        self.cluster: Cluster | None = None
        """None: the node is alone, or has not started."""
        self.proxy: Proxy | None = None
        """The same for its part as a proxy."""
        self._accepting: Accepting | None = None
        self._is_stopping = False

    @property
    def store(self) -> Store | None:
        """Where messages are stored; None, also before the start: nowhere."""
        return self._storage.store

    @property
    def history(self) -> HistoryProcess | None:
        """What brings stored messages to object storage; None: they stay."""
        return self._storage.history

    @property
    def port(self) -> int:
        """The port of the first listener that has one."""
        return self.addresses[0][1]

    async def __aenter__(self) -> Broker:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen. Raises OSError when an address cannot be listened on, CertificateError when TLS cannot be,
        ConfigError when a bridge's or a forward's files cannot be used, or the settings of a cluster do not go
        together."""
        loop = asyncio.get_running_loop()
        server = self.server
        check_cluster(self.config.cluster)
        bridges = self.bridges.prepare(self.config)
        forwards = self.forwards.prepare(self.config)
        self.listeners = open_listeners(self.config, self.handed)
        accepting = self._accepting = Accepting(server, [] if self.config.proxy.enabled else self.listeners)
        if isinstance(loop, HotEventLoop) and loop.hot_selector.plane is None:
            plane = EpollPlane(server.hot, server.timers, loop.hot_selector.epoll)
            loop.hot_selector.plane = plane
            server.plane = plane
        else:
            server.plane = GuestPlane(server.hot, server.timers, loop)
        self._started_at = time.monotonic()
        try:
            self._open_cluster()
            await self._serve(accepting, bridges, forwards)
        except BaseException:
            await self.stop()
            raise
        self.hooks.tell("started", self)

    async def _serve(self, accepting: Accepting, bridges: list[Prepared], forwards: list[PreparedForward]) -> None:
        server = self.server
        self._storage.open(self._storage_failed)
        if self.cluster is not None:
            self.cluster.start()
            self._open_proxy(self.cluster)
        self._take_advice()
        server.deciding.clock = self._look_at_the_clock
        self.hooks.on_change = self._hooks_changed
        self._hooks_changed()
        Housekeeping(server, self._started_at, self.others).start()
        await self.bridges.use(bridges)
        await self.forwards.use(forwards)
        if self.before_clients is not None:
            server.plane.wake()
            await self.before_clients()
        self.addresses = accepting.start() if self.proxy is None else await self.proxy.let_in()
        if self.cluster is not None:
            self.cluster.serves_at(self.addresses)
        server.plane.wake()

    def _open_cluster(self) -> None:
        if self.config.cluster.enabled:
            from headwater.node.links.cluster import Cluster  # only loaded where it is needed

            self.cluster = Cluster(self.server, self.config.cluster, self.config.data_dir)
            self.cluster.open()

    def _open_proxy(self, cluster: Cluster) -> None:
        if self.config.proxy.enabled:
            from headwater.node.proxy.proxy import Proxy  # only loaded where it is needed

            self.proxy = Proxy(self.server, self.config, cluster, self.listeners)
            self.proxy.start()

    async def stop(self) -> None:
        """Stop listening, tell every client (DISCONNECT 0x8B) and close."""
        server = self.server
        if self._is_stopping:
            return
        self._is_stopping = True
        await self.bridges.stop()
        await self.forwards.stop()
        self._let_nobody_in()
        server.hot.now = time.monotonic()
        await self._storage.settle()
        for channel in list(server.channels):
            server.disconnect(channel, SERVER_SHUTTING_DOWN)
        server.plane.wake()
        deadline = time.monotonic() + 2.0
        while (server.channels or server.has_wills_to_send()) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        for channel in list(server.channels):
            server.lost(channel)
        server.hot.until = NEVER
        server.background.finish()
        if self.proxy is not None:
            self.proxy.stop()
        if self.cluster is not None:
            await self._storage.settle()  # other nodes get the wills, too
            self.cluster.stop()
        if server.advising is not None:
            server.advising.stop()
        self._storage.close()
        server.timers.clear()
        if self._accepting is not None:
            self._accepting.stop()
        server.plane.close()
        server.access.stop()
        loop = asyncio.get_running_loop()
        if isinstance(loop, HotEventLoop) and loop.hot_selector.plane is server.plane:
            loop.hot_selector.plane = None
        self.hooks.tell("stopped", self)

    def _let_nobody_in(self) -> None:
        self.server.stopping = True
        if self._accepting is not None:
            self._accepting.close()
        if self.proxy is not None:
            self.proxy.let_nobody_in()

    def _take_advice(self) -> None:
        if self.config.advice.enabled:
            from headwater.node.advice.advising import Advising

            self._look_at_the_clock()
            self.server.advising = Advising(self.server, self.config.advice)
            self.server.advising.start()
            if self.cluster is not None and self.cluster.owning is not None and self.config.edge.follow_advice:
                self.server.advising.hand_to("split", self.cluster.owning.splits.advised)

    async def snapshot(self) -> Snapshot:
        """Copy sessions and messages, as they are on disk after the same commit, inside the data folder; who asks for
        it has to delete it. Raises StorageError, also if nothing is kept on disk."""
        return await self._storage.snapshot()

    def handing_over(self) -> HandingOver | None:
        """How the delivery store goes to another node; None: there is none on disk."""
        found = self._storage.handing_over()
        if found is not None and self.cluster is not None:
            found.owning = self.cluster.owning
        return found

    def _storage_failed(self, error: StorageError) -> None:
        """Nothing can be promised any more: all connections end without a word, and so should the process."""
        self.failure = error
        log.critical("stopped serving: %s", error)
        self._let_nobody_in()
        for channel in list(self.server.channels):
            self.server.lost(channel)
        if self.on_failure is not None:
            self.on_failure()

    def reload_certificates(self) -> None:
        """Read the certificates, keys and revocation lists of all listeners again, for connections to come; those that
        are there go on. CertificateError: something cannot be used, and nothing has changed."""
        ready = [listener.load_certificates() for listener in self.listeners]
        if self.cluster is not None:
            ready.append(self.cluster.load_certificates())
        for use in ready:
            use()

    def reload_access(self, settings: AccessSettings | None = None) -> None:
        """Read the files of `access` again, perhaps with other settings; live connections have their new rights when
        this returns. AccessError: something cannot be used, and nothing has changed."""
        with self.server.turn():
            self.server.access.reload(settings or self.server.access.settings)

    def ban(self, kind: str, value: str, seconds: float | None = None, reason: str = "") -> Ban:
        """Refuse an `address`, `user` or `client` (id) and end its connections, for some time or until it is lifted.
        ValueError: no such kind."""
        with self.server.turn():
            return self.server.access.ban(kind, value, seconds, reason)

    def lift_ban(self, kind: str, value: str) -> bool:
        """False when there is none."""
        return self.server.access.bans.lift(kind, value)

    def bans(self) -> list[Ban]:
        """The bans now; their `until` is of `time.monotonic`."""
        return self.server.access.bans.all(time.monotonic())

    def _look_at_the_clock(self) -> None:
        self.server.hot.now = time.monotonic()

    def publish(self, message: Message) -> int:
        """Route a message of the program's own, as if a client had published it. Returns its position, which holds when
        it is `committed`; 0 if its topic is not stored. ValueError: no topic name. TooManyTopics: nothing is done."""
        with self.server.turn():
            denied = self.server.admission.admit(Publication(PROGRAM, message, None))
            if denied is not None:
                raise (TooManyTopics if denied.why == TOO_MANY_TOPICS else InvalidTopicName)(denied.text)
            self.server.publishing.route(message, None)
        return message.position

    async def committed(self) -> None:
        """Return when all that has changed until now is on disk, a message of `publish` for example, if durability is
        `sync`; else at once. StorageError: the disk has failed, and it may not be there."""
        await self._storage.committed()

    def disconnect(self, client_id: str, reason: int, server_reference: str | None = None) -> bool:
        """End a client's connection with this reason, perhaps sending it elsewhere; False when it has none."""
        with self.server.turn():
            session = self.server.sessions.get(client_id)
            for channel in self.server.channels:
                if session is not None and channel.session is session:
                    self.server.disconnect_soon(channel, reason, "", server_reference)
                    return True
        return False

    def use_dispatcher(self, pattern: str, name: str) -> int:
        """From now on the groups that the pattern covers (`$share/+/jobs/#`), also those to come, choose by this
        dispatcher; returns how many groups changed. ValueError: no such dispatcher, or no pattern."""
        with self.server.turn():
            return self.server.sharing.use_dispatcher(pattern, name)

    def shared_groups(self) -> list[GroupView]:
        """What can be seen of the shared groups now."""
        return view_groups(self.server)

    def advice(self) -> list[Advice]:
        """What is in force of what was advised from outside."""
        return [] if self.server.advising is None else self.server.advising.in_force()

    def hand_advice_to(self, kind: str, receiver: Receiver) -> None:
        """Call `receiver` with the subject and what is advised for it (None: nothing any more), now and whenever that
        changes. ValueError: there is no such kind, or `advice.enabled` is not set, or the broker has not started."""
        if self.server.advising is None:
            raise ValueError("no advice is taken: set advice.enabled, and start the broker first")
        self.server.advising.hand_to(kind, receiver)

    def is_ready(self) -> bool:
        """Whether clients are let in."""
        return not self.why_not_ready()

    def why_not_ready(self) -> str:
        """Why clients are not let in; "": they are."""
        if self.failure is not None:
            return str(self.failure)
        if self.server.stopping or not self.listeners:
            return "the broker has not started, or stops"
        return "" if self.cluster is None else self.cluster.not_ready

    def statistics(self) -> Statistics:
        return statistics_of(self.server, time.monotonic() - self._started_at)

    def _hooks_changed(self) -> None:
        self.server.hot.enabled = not self.hooks.slow
