"""A node's part in its cluster: its door, its links, and who the others are.

    listening.py --> links.py <-- redialing.py <-- seeking.py     (who comes in; whom to dial, and where to look)
                        ^
                   gossiping.py                                   (who the members are)

This is where the parts are made and know each other, and what the rest of the broker calls: start and stop, the orders
of people, and what they see (observing.py).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headwater.edge.status import EdgeStatus
from headwater.node.links.catching_up import CatchingUp
from headwater.node.links.contexts import LinkContexts, identities
from headwater.node.links.dialing import Dialer
from headwater.node.links.draining import Draining
from headwater.node.links.entry import Entry
from headwater.node.links.gossiping import Gossiping
from headwater.node.links.history import LinkHistory
from headwater.node.links.identity import begin_life
from headwater.node.links.link import Link
from headwater.node.links.links import Links
from headwater.node.links.listening import LinkDoor
from headwater.node.links.observing import Observer
from headwater.node.links.owning import Owning
from headwater.node.links.redialing import Redialing
from headwater.node.links.resolving import Resolver
from headwater.node.links.seeking import Seeking
from headwater.node.links.settings import SHORTEST_SECRET, ClusterSettings
from headwater.node.links.view import CATCHING_UP, ClusterView, RouteView
from headwater.node.links.wills import Wills
from headwater.node.persistence.folder import MESSAGES
from headwater.node.settings import ConfigError
from headwater.peering.methods.names import ANNOUNCEMENTS
from headwater.store.hand_over import read_fence

if TYPE_CHECKING:
    from headwater.node.plane.channel import Channel, Peer
    from headwater.node.protocol.server import Server

log = logging.getLogger("headwater.cluster")

ALL: Final = ("0.0.0.0", "::", "*")


class Cluster:
    """Made from settings; `open` listens, `start` begins when what is on disk has been recovered."""

    owning: Owning | None = None
    """None: the node is of no edge."""
    _links: Links | None = None
    """None until `start`, like the other parts."""
    _gossiping: Gossiping
    _seeking: Seeking
    _redialing: Redialing
    _observer: Observer
    _dialer: Dialer
    _draining: Draining
    _catching_up: CatchingUp

    def __init__(self, server: Server, settings: ClusterSettings, data_dir: str) -> None:
        """Raises CertificateError, ConfigError."""
        self.settings = settings
        self._server = server
        self._folder = Path(data_dir) if data_dir else None
        self._secret = _read_secret(settings)
        self._contexts = None if settings.tls is None else LinkContexts(settings.tls)
        self._door = LinkDoor(server, settings, self._contexts, self._accepted)
        self._history = LinkHistory()
        self._wills = Wills(server, settings)
        self._is_kept = True

    # ---- from start to stop --------------------------------------------------------------------------------------

    def open(self) -> None:
        """Raises OSError, whose `filename` says where it could not listen."""
        self._door.open()

    def start(self) -> None:
        """Raises ConfigError."""
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
        identity = begin_life(self._folder, self.settings.node)
        self._is_kept = identity.is_kept
        links = Links(self._server, self.settings, identity.node, identity.boot, self._secret)
        links.spooling.since = identity.since
        self._make_parts(links)
        self._join_edge(links)
        for node in links.spooling.members:
            links.join(node, is_known=True)
        links.start()
        if self.owning is not None:
            self._gossiping.declare(self.owning.values())
            self.owning.yielding.let_wait()
        self._wills.begin(links)
        self._seeking.begin()
        self._door.start()
        self._seeking.start()
        self._gossiping.start()
        self._redialing.start()
        self._catching_up.start()
        log.info("node %s of cluster %s, at %s", identity.node, self.settings.name, self.address)

    def _make_parts(self, links: Links) -> None:
        history, resolver = self._history, Resolver()
        self._dialer = dialer = Dialer(self._server, self._contexts, resolver)
        gossiping = Gossiping(links, self.address, self._is_kept, history.forget)
        seeking = Seeking(self.settings, links, resolver, self._own_addresses, gossiping.seek)
        redialing = Redialing(links, gossiping, seeking, history, dialer, lambda: self.address)
        gossiping.node_at = redialing.node_at
        links.gossip = gossiping.heard
        links.node_left = gossiping.node_left
        links.changed = self._link_changed
        links.objects = self._objection
        links.settled = self._door.settled
        self._gossiping, self._seeking, self._redialing = gossiping, seeking, redialing
        self._observer = Observer(links, gossiping, redialing, history, self._wills)
        entry = Entry(self._server)
        self._draining = Draining(
            *(links, entry, gossiping.others_that_serve, self._part, self._phase_changed),
            lambda: self._wills.held,
        )
        self._catching_up = CatchingUp(links, entry, self._is_alone, self._phase_changed, self.settings.catch_up_wait)
        self._links = links

    def _join_edge(self, links: Links) -> None:
        config = self._server.config
        if not config.edge.enabled:
            return
        fence = None if config.store.enabled or self._folder is None else read_fence(self._folder / MESSAGES)
        owning = self.owning = Owning(links, config.edge, fence)
        if not owning.rest_url and config.rest.enabled and config.rest.port:
            host = socket.gethostname() if config.rest.host in ALL else config.rest.host
            scheme = "https" if config.rest.certificate else "http"
            owning.rest_url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{config.rest.port}"
        owning.declared = self._gossiping.declare
        links.join_edge(owning)
        self._gossiping.looked = owning.look_at

    def serves_at(self, addresses: list[tuple[str, int]]) -> None:
        """Where this node's clients connect, for others to show, and never to be dialed."""
        if self._links is None:
            return
        config = self._server.config
        self._dialer.not_for_nodes = {port for _, port in addresses}
        self._dialer.not_for_nodes.update(each.port for each in (config.rest, config.admin) if each.enabled)
        if addresses:
            host, port = addresses[0]
            self._gossiping.serves_at(f"{socket.gethostname() if host in ALL else host}:{port}")

    def stop(self) -> None:
        if self._links is not None:
            self._gossiping.stop()
            self._seeking.stop()
            self._redialing.stop()
            self._links.stop(is_for_good=not self._is_kept)
        self._door.close()

    def load_certificates(self) -> Callable[[], None]:
        """Read them anew; nothing changes until the result is called. Raises CertificateError."""
        return _nothing if self._contexts is None else self._contexts.load()

    # ---- links ---------------------------------------------------------------------------------------------------

    def _accepted(self, channel: Channel) -> Peer:
        assert self._links is not None
        return self._links.open(channel, "")

    def _objection(self, link: Link) -> str:
        """Why a node may not be linked, as far as it has shown who it is."""
        tls = self.settings.tls
        if tls is not None:
            names = identities(link.channel.certificate or {}, tls.identity)
            if names is not None and link.node not in names:
                return f"the certificate is not of node {link.node} (cluster.tls.identity = {tls.identity!r})"
        elif not self._secret and not link.channel.loopback:
            return "links with other machines need cluster.tls or cluster.secret"
        return ""

    def _link_changed(self, link: Link) -> None:
        """It came up, or went down."""
        now = self._server.hot.now
        self._redialing.link_changed(link, now)
        if link.node and link.end is not None:
            self._history.changed(link, now)
            if not link.why:
                self._gossiping.linked(link)

    # ---- what others call ----------------------------------------------------------------------------------------

    @property
    def node(self) -> str:
        return "" if self._links is None else self._links.node

    @property
    def address(self) -> str:
        """Where other nodes reach this one."""
        if self.settings.advertise:
            return self.settings.advertise
        found = self._door.addresses
        if not found:
            return str(self._door)
        host, _, port = found[0].rpartition(":")
        return f"{socket.gethostname()}:{port}" if host.strip("[]") in ALL else found[0]

    def _own_addresses(self) -> list[str]:
        return [self.address, *self._door.addresses]

    def join(self, addresses: list[str]) -> None:
        """Look for a cluster there, too. Raises ValueError."""
        links = self._started()
        self._seeking.add(addresses)
        with self._server.turn():
            if links.has_left:
                links.has_left = False
                self._draining.take_back()
                self._gossiping.come_back()
                self._seeking.begin()
            self._redialing.again()
            self._seeking.start()

    def leave(self) -> None:
        """Say good-bye: this node is alone from now on, until it joins again."""
        if self._links is None or self._links.has_left:
            return
        with self._server.turn():
            self._part()

    def _part(self) -> None:
        self._seeking.clear()
        self._gossiping.leave()
        log.info("left cluster %s", self.settings.name)

    def drain(self, node: str, stays: bool) -> None:
        """Hand clients and sessions over to other nodes, then leave, unless it `stays`. Raises ValueError."""
        links = self._started()
        self._is_me(node)
        if links.has_left:
            raise ValueError(f"node {node} has left the cluster")
        if self._server.config.proxy.enabled:
            raise ValueError(
                f"node {node} is a proxy: clients and sessions are its home broker's; stop it, or have it leave"
            )
        if self.owning is not None and not stays:
            self.owning.may_leave()
        with self._server.turn():
            self._draining.begin(stays)
            self._catching_up.stop()

    def undrain(self, node: str) -> None:
        """Take clients again. Raises ValueError."""
        links = self._started()
        self._is_me(node)
        if links.has_left:
            raise ValueError(f"node {node} has left the cluster: have it join, or restart it")
        with self._server.turn():
            self._draining.take_back()

    def _is_me(self, node: str) -> None:
        if node == self.node:
            return
        address = self._gossiping.address_of(node)
        if not address:
            raise ValueError(f"this is node {self.node}; there is no node {node}")
        host = address.rpartition(":")[0]
        raise ValueError(
            f"this is node {self.node}: ask the admin API of node {node} (--admin URL), which is at {host}"
        )

    def _phase_changed(self) -> None:
        self._gossiping.is_in(self._draining.state or (CATCHING_UP if self._catching_up.is_on else ""))

    @property
    def not_ready(self) -> str:
        """Why this node takes no clients; "": it does."""
        if self._links is None:
            return "the cluster has not started"
        return self._draining.state or self._catching_up.why

    def _is_alone(self) -> bool:
        """Nobody is known, and nobody to look for."""
        links = self._links
        return links is None or (not links.spooling.ends and self._seeking.is_alone)

    def forget(self, node: str) -> None:
        """Raises ValueError if it is not known, or live."""
        self._started()
        with self._server.turn():
            self._gossiping.forget(node)

    def use_method(self, method: str) -> None:
        """Raises ValueError."""
        if method not in ANNOUNCEMENTS:
            raise ValueError(f"there is no method {method!r}; there are {', '.join(sorted(ANNOUNCEMENTS))}")
        links = self._started()
        with self._server.turn():
            links.use_method(method)

    def routes(self, topic: str) -> RouteView:
        links = self._started()
        is_local = self._server.hot.fanouts.of(topic).local > 0
        groups = {} if links.groups is None else links.groups.routes(topic)
        return RouteView(topic, is_local, list(links.coordination.links(topic)), links.coordination.is_exact, groups)

    def view(self) -> ClusterView:
        self._started()
        view = self._observer.view(self.address)
        return view._replace(not_ready=self.not_ready, drain=self._draining.view())

    # ---- its edge ------------------------------------------------------------------------------------------------

    def edge(self) -> EdgeStatus | None:
        """None: the node is of no edge. Raises ValueError if it has not started."""
        self._started()
        return None if self.owning is None else self.owning.status(self._gossiping.view(self._server.hot.now))

    async def own_filter(self, filter: str, to: str, is_dry: bool) -> str:
        """Have another node own a filter; "" for `to`: that of the filter around it. What has come of it. Raises
        ValueError."""
        if self.owning is None:
            raise ValueError(f"node {self.node} is part of no edge (edge.name)")
        answer: asyncio.Future[tuple[bool, str]] = asyncio.get_running_loop().create_future()

        def done(is_done: bool, text: str) -> None:
            if not answer.done():
                answer.set_result((is_done, text))

        with self._server.turn():
            node = to or self.owning.owner_around(filter)
            self.owning.order(node, filter, not to, is_dry, done)
        is_done, text = await answer
        if not is_done:
            raise ValueError(text)
        return text

    @property
    def links(self) -> Links:
        """Raises ValueError if it has not started."""
        return self._started()

    @property
    def contexts(self) -> LinkContexts | None:
        """TLS between nodes, where there is any."""
        return self._contexts

    def _started(self) -> Links:
        """Raises ValueError."""
        if self._links is None:
            raise ValueError("the cluster has not started")
        return self._links


def _read_secret(settings: ClusterSettings) -> bytes:
    if not settings.secret_file:
        return settings.secret.get_secret_value().encode()
    try:
        found = Path(settings.secret_file).read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"cluster.secret_file {settings.secret_file}: {error.strerror}") from None
    if len(found) < SHORTEST_SECRET:
        raise ConfigError(f"the secret in {settings.secret_file} has fewer than {SHORTEST_SECRET} characters")
    return found


def _nothing() -> None:
    pass
