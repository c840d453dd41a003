"""REST on sockets, in a thread and an event loop of its own: a long question keeps nobody else from being served."""

from __future__ import annotations

import socket
import ssl

from headwater.store.rest.app import OPEN, make_app
from headwater.store.rest.context import Context, Limits
from headwater.store.rest.gate import Gate
from headwater.store.rest.others import Peers
from headwater.store.store import Store
from headwater.web.admission import Bounds
from headwater.web.serving import WebServer


class RestServer:
    """Serves from `start` to `stop`, which may be called from any thread but its own. The sockets listen already; they
    are closed with it."""

    def __init__(
        self,
        store: Store,
        gate: Gate,
        sockets: list[socket.socket],
        *,
        limits: Limits | None = None,
        bounds: Bounds | None = None,
        context: ssl.SSLContext | None = None,
        peers: Peers | None = None,
    ) -> None:
        self.app = make_app(store, gate, limits, peers)
        self._context: Context = self.app.state.context
        self.web = WebServer(
            self.app,
            sockets,
            bounds or Bounds(),
            name="rest",
            open_paths=OPEN,
            context=context,
            stopping=self._stopping,
        )

    @property
    def port(self) -> int:
        return self.web.port

    def start(self) -> None:
        self.web.start()

    def stop(self) -> None:
        """Answers that are under way may take a moment more; then all connections end."""
        self.web.stop()
        self._context.others.stop()
        self._context.threads.stop()

    def _stopping(self) -> None:
        self._context.threads.stopping = True
        self._context.tails.wake()
