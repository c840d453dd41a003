"""`GET /metrics` and `GET /healthz` of a pipeline process, in a thread of its own.

Anybody may read `/healthz`; `/metrics` asks for the token, if there is one. Connections, times and heads are bounded as
those of a node (headwater/web), and no request has a body that is read. Elsewhere than on loopback there has to be a
token: figures name stores and tables.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
import time
from collections.abc import Callable
from typing import Any, Final

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from headwater.pipeline.monitoring.figures import PREFIX, PipelineFigures, Seen, StoreFigures, TableFigures
from headwater.pipeline.monitoring.lineage import LineageSeen
from headwater.prometheus import families
from headwater.web.admission import Bounds
from headwater.web.serving import Receive, Scope, Send, WebServer

BOUNDS: Final = Bounds(connections=32, per_address=16, head_size=16 << 10, heads_size=256 << 10)
PLAIN: Final = b"text/plain; version=0.0.4; charset=utf-8"
LATE: Final = 60.0
"""Seconds without a round after which it is unhealthy, at least."""


class MetricsError(Exception):
    """Figures cannot be served as asked; the text says why."""


def address_of(text: str) -> tuple[str, int]:
    """Of `host:port` or `[::1]:port`. Raises MetricsError."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 <= int(port) <= 65_535:
        raise MetricsError(f"metrics is {text!r}; it has to be HOST:PORT, such as 127.0.0.1:9464")
    return host, int(port)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class PipelineCollector(Collector):
    def __init__(self, seen: Callable[[], Seen]) -> None:
        self._seen = seen

    def describe(self) -> list[Family]:
        return []  # so that registering does not ask for figures

    def collect(self) -> Any:
        now = self._seen()
        yield from families(PipelineFigures, [now.pipeline], prefix=PREFIX)
        yield from families(TableFigures, now.tables, "table", prefix=PREFIX)
        yield from families(StoreFigures, now.stores, "store", prefix=PREFIX)
        yield from families(LineageSeen, [now.lineage], prefix=PREFIX)


class Endpoint:
    """Serves from `start` to `stop`. Healthy is a pipeline whose last round ended less than `late` seconds ago, or that
    has started less than that ago. `clock` is that of the figures."""

    def __init__(
        self,
        seen: Callable[[], Seen],
        address: tuple[str, int],
        *,
        token: str | None = None,
        late: float = LATE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        host, port = address
        if token is None and not is_loopback(host):
            raise MetricsError(f"metrics on {host} can be read by others: set metrics_token, or use 127.0.0.1")
        self._seen = seen
        self._token = token
        self._late = late
        self._clock = clock
        self._began = clock()
        self._registry = CollectorRegistry()
        self._registry.register(PipelineCollector(seen))
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        try:
            listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except OSError as error:
            raise MetricsError(f"cannot serve metrics at {host}:{port}: {error.strerror or error}") from None
        self._server = WebServer(self._answer, [listening], BOUNDS, name="pipeline-metrics", open_paths=["/healthz"])

    @property
    def port(self) -> int:
        return self._server.port

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    # ---- in the server's thread --------------------------------------------------------------------------------

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return
        status, body = self._respond(scope)
        headers = [(b"content-type", PLAIN), (b"cache-control", b"no-store")]
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _respond(self, scope: Scope) -> tuple[int, bytes]:
        path = scope["path"]
        if path not in ("/metrics", "/healthz"):
            return 404, b"there are /metrics and /healthz\n"
        if scope["method"] not in ("GET", "HEAD"):
            return 405, b"only GET\n"
        if path == "/healthz":
            return self._health()
        if not self._may_read(dict(scope["headers"]).get(b"authorization", b"")):
            return 401, b"a bearer token is needed: metrics_token of the pipeline\n"
        return 200, generate_latest(self._registry)

    def _may_read(self, given: bytes) -> bool:
        return self._token is None or hmac.compare_digest(given, b"Bearer " + self._token.encode())

    def _health(self) -> tuple[int, bytes]:
        ago = self._clock() - max(self._began, self._seen().pipeline.round_time)
        if ago < self._late:
            return 200, b"ok\n"
        return 503, f"no round has ended for {ago:.0f} s\n".encode()
