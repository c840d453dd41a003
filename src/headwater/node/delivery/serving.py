"""REST beside a broker: its settings, sockets and certificate. Imported only where it is configured."""

from __future__ import annotations

import asyncio
import logging
import ssl

from headwater.node.admin.secret import read_token_file
from headwater.node.broker import Broker
from headwater.node.delivery.gate import BrokerGate
from headwater.node.delivery.rest_settings import RestSettings
from headwater.node.transports.contexts import make_context
from headwater.node.transports.settings import TlsSettings
from headwater.node.transports.sockets import address_text, listen_tcp
from headwater.store.rest.context import Limits
from headwater.store.rest.serving import RestServer
from headwater.store.store import Store

log = logging.getLogger("headwater.rest")


class Rest:
    """Serves the store of a broker that has started. Stop it before the broker."""

    def __init__(self, broker: Broker, store: Store, settings: RestSettings | None = None) -> None:
        self.settings = settings or broker.config.rest
        self._broker = broker
        self._store = store
        self._server: RestServer | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.port

    @property
    def url(self) -> str:
        scheme = "https" if self.settings.certificate else "http"
        return f"{scheme}://{address_text(self.settings.host, self.port)}"

    async def start(self) -> None:
        """Listen. Raises OSError, whose `filename` says where it could not, ConfigError, CertificateError."""
        settings = self.settings
        gate = BrokerGate(self._broker, settings, read_rest_token(settings))
        context = context_of(settings)
        try:
            sockets = listen_tcp(settings.host, settings.port)
        except OSError as error:
            error.filename = f"http://{address_text(settings.host, settings.port)} for REST (rest.host, rest.port)"
            raise
        self._server = RestServer(
            self._store,
            gate,
            sockets,
            limits=Limits(
                settings.max_limit,
                settings.max_tails,
                settings.max_streams,
                settings.max_streams_per_address,
                settings.max_answer_memory,
            ),
            bounds=settings.bounds("rest"),
            context=context,
        )
        await asyncio.to_thread(self._server.start)
        log.info("REST is at %s", self.url)

    async def stop(self) -> None:
        """Answers that are under way may ask the broker meanwhile."""
        if self._server is not None:
            await asyncio.to_thread(self._server.stop)


def read_rest_token(settings: RestSettings) -> str:
    """Empty: there is none. Raises ConfigError."""
    token = settings.token.get_secret_value()
    return read_token_file(settings.token_file, "rest.token_file") if settings.token_file else token


def context_of(settings: RestSettings) -> ssl.SSLContext | None:
    """Raises CertificateError."""
    if not settings.certificate:
        return None
    return make_context(TlsSettings(certificate=settings.certificate, key=settings.key), "http")
