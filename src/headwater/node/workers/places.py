"""Where the workers of a node listen together.

TCP: each worker has listening sockets of its own on the same port (SO_REUSEPORT), and the system spreads connections
over them by a hash of their addresses. A worker that dies takes its sockets with it, and new connections go to the
others. Two nodes could share a port by mistake that way, so the supervisor first listens there alone for a moment. Then
it keeps the port, bound and not listening, so that nobody else gets it while workers come and go; port 0 is chosen so.

Unix sockets: there is one, which the supervisor makes and all workers accept from; the first to come serves.
"""

from __future__ import annotations

import socket

from headwater.node.config import Config
from headwater.node.transports.accepting import listener_settings
from headwater.node.transports.settings import ListenerSettings
from headwater.node.transports.sockets import address_text, close_all, listen_tcp, listen_unix


class Places:
    """All of the settings' listeners, from `open` to `close`."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._sockets: list[socket.socket] = []
        self.unix: dict[str, int] = {}
        """Descriptors by paths."""

    def open(self) -> Config:
        """The settings, with the ports that were chosen. Raises OSError, whose `filename` says where it could not."""
        found = []
        for settings in listener_settings(self._config):
            try:
                found.append(self._open(settings))
            except OSError as error:
                scheme = "mqtt+unix" if settings.unix else "mqtt"
                error.filename = f"{scheme}://{settings.unix or address_text(settings.host, settings.port or 0)}"
                self.close()
                raise
        config = self._config.model_copy(update={"listeners": found})
        config.model_fields_set.difference_update(("host", "port"))  # they are among the listeners now
        return config

    def _open(self, settings: ListenerSettings) -> ListenerSettings:
        if settings.unix:
            opened = listen_unix(settings.unix, settings.unix_mode)
            self._sockets.append(opened)
            self.unix[settings.unix] = opened.fileno()
            return settings
        alone = listen_tcp(settings.host, settings.port or 0)
        port = alone[0].getsockname()[1]
        close_all(alone)
        self._sockets += listen_tcp(settings.host, port, is_shared=True)
        return settings.model_copy(update={"port": port})

    def close(self) -> None:
        close_all(self._sockets)
        self._sockets = []
