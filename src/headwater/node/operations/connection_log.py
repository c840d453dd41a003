"""Who comes and goes, and who may not subscribe, in the log at the level `debug`: as watchers, so that nothing else has
to know of it."""

from __future__ import annotations

import logging
from typing import Final

from headwater.message import Subscription
from headwater.node.hooks import Hooks
from headwater.node.plane.channel import Channel
from headwater.wire.words import reason_words

log = logging.getLogger("headwater.connections")

VERSIONS: Final = {3: "3.1", 4: "3.1.1", 5: "5.0"}
FIRST_REFUSAL: Final = 0x80


def log_connections(hooks: Hooks) -> None:
    hooks.add("session_established", _came)
    hooks.add("disconnect", _went)
    hooks.add("subscribed", _subscribed)


def _came(client: Channel, session_present: bool) -> None:
    if not log.isEnabledFor(logging.DEBUG):
        return  # before the name is quoted: one of 64 KiB takes 40 µs
    log.debug(
        "%r (%s) is connected%s: MQTT %s, keep alive %d s, %s",
        client.client_id,
        client.address,
        "" if client.username is None else f" as {client.username!r}",
        VERSIONS.get(client.version, "?"),
        client.keep_alive,
        "its session goes on" if session_present else "a new session",
    )


def _went(client: Channel, reason: int) -> None:
    if not log.isEnabledFor(logging.DEBUG):
        return
    why = "it said so" if reason == 0 else reason_words(reason)
    log.debug("%r (%s) is disconnected: %s", client.client_id, client.address, why)


def _subscribed(client: Channel, subscription: Subscription, reason: int) -> None:
    if reason >= FIRST_REFUSAL and log.isEnabledFor(logging.DEBUG):
        words = reason_words(reason)
        log.debug("%r (%s) may not subscribe to %r: %s", client.client_id, client.address, subscription.name, words)
