"""What a running broker takes over when its settings are read again (SIGHUP).

Most settings are looked up when they are needed; those take effect by being replaced, for connections and sessions to
come or at once, as `docs/operations.md` says. A few were copied and are copied again here. All others, such as ports,
stay as they are until a restart, and the log names those that have changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from headwater.node.admin.secret import read_token
from headwater.node.broker import Broker
from headwater.node.config import NEEDS_RESTART, RELOADABLE, Admin, Config
from headwater.node.protocol.core import POLICIES
from headwater.node.settings import ConfigError, leaves, value_of
from headwater.node.transports.contexts import CertificateError

log = logging.getLogger("headwater")


class HoldsToken(Protocol):
    """The admin API's guard."""

    def use(self, settings: Admin) -> None: ...


def changed_settings(before: Config, after: Config) -> list[str]:
    """Dotted names of all settings that differ."""
    return [name for name, _ in leaves(Config) if value_of(before, name) != value_of(after, name)]


def is_reloadable(name: str) -> bool:
    return name not in NEEDS_RESTART and (name in RELOADABLE or name.partition(".")[0] in RELOADABLE)


class Reloader:
    """`read` reads the settings again and raises ConfigError; `reopen_log` begins log files anew."""

    def __init__(self, broker: Broker, read: Callable[[], Config], reopen_log: Callable[[], None]) -> None:
        self._broker = broker
        self._read = read
        self._reopen_log = reopen_log
        self.token: HoldsToken | None = None

    def reload(self) -> None:
        """Take over what can be; what cannot be used changes nothing, and is logged."""
        self._reopen_log()
        try:
            config = self._read()
        except ConfigError as error:
            log.error("the settings cannot be used, and stay as they are: %s", error)
            return
        broker = self._broker
        changed = changed_settings(broker.config, config)
        usable = _taken_over(broker.config, config, [name for name in changed if is_reloadable(name)])
        with broker.server.turn():
            try:
                bridges = broker.bridges.prepare(usable)
                forwards = broker.forwards.prepare(usable)
                self._read_files(usable)
            except (ConfigError, CertificateError) as error:
                log.error("a file cannot be used, and the settings stay as they are: %s", error)
                return
            _apply(broker, usable)
            broker.bridges.use_soon(bridges)
            broker.forwards.use_soon(forwards)
        self._say(changed)

    def _read_files(self, config: Config) -> None:
        """All of them or none: nothing changes before everything could be read."""
        if self.token is not None:
            read_token(config.admin)
        certificates = [listener.load_certificates() for listener in self._broker.listeners]
        self._broker.server.access.reload(config.access)
        for use in certificates:
            use()
        if self.token is not None:
            self.token.use(config.admin)

    def _say(self, changed: list[str]) -> None:
        taken = [name for name in changed if is_reloadable(name)]
        waiting = [name for name in changed if not is_reloadable(name)]
        log.info("settings and files were read again; changed: %s", ", ".join(taken) or "nothing")
        if waiting:
            log.warning("changed, but only a restart takes them over: %s", ", ".join(waiting))


def _taken_over(before: Config, after: Config, names: list[str]) -> Config:
    """The settings of `before`, with these of `after`."""
    update: dict[str, Any] = {}
    for name in names:
        table, _, key = name.partition(".")
        if not key:
            update[name] = getattr(after, name)
        else:
            inner = update.get(table, getattr(before, table))
            update[table] = inner.model_copy(update={key: value_of(after, name)})
    return before.model_copy(update=update)


def _apply(broker: Broker, config: Config) -> None:
    server = broker.server
    if broker.cluster is not None and config.cluster.method != broker.config.cluster.method:
        broker.cluster.use_method(config.cluster.method)
    broker.config = server.config = config
    server.budget.limit = config.max_queue_memory
    server.access.quotas.limit = config.max_session_memory
    server.hot.max_connect_size = min(config.max_connect_size, config.max_packet_size)
    server.router.retained.max_messages = config.max_retained
    server.router.retained.max_bytes = config.max_retained_bytes
    server.policy = POLICIES[config.queue_full]
    logging.getLogger().setLevel(config.log_level.upper())
