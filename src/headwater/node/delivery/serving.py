"""REST beside a broker, in one process, for programs of one's own; and what it shares with REST in another process
(node/http): its settings, sockets and certificate."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from typing import TYPE_CHECKING

from headwater.node.delivery.listening import context_of, listen_for_rest, read_rest_token, rest_url
from headwater.node.delivery.peers import Members, peer_token_of
from headwater.node.delivery.rest_settings import RestSettings
from headwater.store.rest.context import Limits
from headwater.store.rest.gate import Gate
from headwater.store.rest.others import Peers
from headwater.store.rest.serving import RestServer
from headwater.store.store import Store

if TYPE_CHECKING:
    from headwater.node.broker import Broker

log = logging.getLogger("headwater.rest")


class Rest:
    """Serves the store of a broker that has started. Stop it before the broker."""

    def __init__(self, broker: Broker, store: Store) -> None:
        self.settings = broker.config.rest
        self._broker = broker
        self._store = store
        self._server: RestServer | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.port

    @property
    def url(self) -> str:
        return rest_url(self.settings, self.port)

    async def start(self) -> None:
        """Listen. Raises OSError, whose `filename` says where it could not, ConfigError, CertificateError."""
        from headwater.node.delivery.gate import BrokerGate  # the broker, which is not where REST alone is

        settings = self.settings
        gate = BrokerGate(self._broker, settings, read_rest_token(settings))
        context = context_of(settings)
        peers = Members(settings, peer_token_of(self._broker.config))
        self._server = rest_server(self._store, gate, settings, listen_for_rest(settings), context, peers)
        await asyncio.to_thread(self._server.start)
        log.info("REST is at %s", self.url)

    async def stop(self) -> None:
        """Answers that are under way may ask the broker meanwhile."""
        if self._server is not None:
            await asyncio.to_thread(self._server.stop)


def rest_server(
    store: Store,
    gate: Gate,
    settings: RestSettings,
    sockets: list[socket.socket],
    context: ssl.SSLContext | None,
    peers: Peers | None = None,
) -> RestServer:
    limits = Limits(
        settings.max_limit,
        settings.max_tails,
        settings.max_streams,
        settings.max_streams_per_address,
        settings.max_answer_memory,
    )
    return RestServer(store, gate, sockets, limits=limits, bounds=settings.bounds("rest"), context=context, peers=peers)
