"""Where other code may look at, change or refuse what the broker does.

Three kinds. A *guard* may veto: every guard must agree, and one that raises has refused. A *filter* may transform: it
returns the new value, or None to leave it as it is. A *watcher* cannot affect anything. A hook that raises is
contained: counted in `failures`, logged with its traceback, and the broker goes on.

Hooks run in the order in which they were added, on the broker's thread, between two packets: they must not block. A
guard of `connect_authenticate` that has to ask somebody answers with something to wait for (it may be an `async def`):
the client waits, the others do not.
Nobody listening costs nothing: the hot path is only left for events that somebody added a hook to (`EVENTS`, `slow`).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, NamedTuple, TypeVar

from headwater.suggestion import unknown

log = logging.getLogger("headwater.hooks")

GUARD: Final = "guard"
FILTER: Final = "filter"
WATCHER: Final = "watcher"


class Event(NamedTuple):
    kind: str
    arguments: str
    doc: str
    slow: bool = False
    """Whether a hook here takes PUBLISH and PUBACK off the hot path."""


EVENTS: Final[dict[str, Event]] = {
    "started": Event(WATCHER, "broker", "The broker listens."),
    "stopped": Event(WATCHER, "broker", "The broker has stopped; all connections are closed."),
    "connect_authenticate": Event(
        GUARD,
        "client, connect",
        "May this CONNECT (user name, password, certificate) be accepted? The guard may answer later (`async def`).",
    ),
    "acl_check": Event(
        GUARD, "client, topic, write", "May this client publish to (write) or subscribe to this topic or filter?", True
    ),
    "sys_info_tick": Event(WATCHER, "statistics", "The `$SYS` figures were taken, once per `sys_interval`."),
    "connect": Event(GUARD, "client, connect", "A well-formed CONNECT came; asked before authentication."),
    "session_establish": Event(
        WATCHER, "client, connect", "The client is accepted; its session is about to be made or resumed."
    ),
    "session_established": Event(WATCHER, "client, session_present", "CONNACK was sent; the session is in place."),
    "disconnect": Event(WATCHER, "client, reason", "A connection ended, by DISCONNECT, error or loss."),
    "auth_packet": Event(
        GUARD,
        "client, method, data, reauthenticate",
        "A step of enhanced authentication: refuse, continue, or accept it and say who the client is (`Challenge`).",
    ),
    "packet_read": Event(FILTER, "packet, client", "A packet was decoded; the filter may replace it.", True),
    "packet_encode": Event(FILTER, "packet, client", "A packet is about to be encoded and sent.", True),
    "packet_sent": Event(WATCHER, "client, packet", "A packet was handed to the connection's send buffer.", True),
    "packet_processed": Event(WATCHER, "client, packet", "A received packet was dealt with.", True),
    "subscribe": Event(FILTER, "requests, client", "A SUBSCRIBE came; the filter may replace its list of requests."),
    "subscribed": Event(WATCHER, "client, subscription, reason", "One subscription was granted or refused."),
    "select_subscribers": Event(
        FILTER, "chosen, message", "Who gets a message: pairs of session and delivery, one for each shared group.", True
    ),
    "dispatched": Event(
        WATCHER,
        "group, client_id, message",
        "A shared group (`$share/…`) has given a message to this member.",
        True,
    ),
    "reported": Event(
        WATCHER,
        "client_id, waiting, seconds_per_message",
        "A member of shared groups has reported how it is doing; no time (None) if it has done nothing since.",
    ),
    "unsubscribe": Event(FILTER, "filters, client", "An UNSUBSCRIBE came; the filter may replace its list of filters."),
    "unsubscribed": Event(WATCHER, "client, filter", "One subscription was ended by the client."),
    "publish": Event(
        FILTER, "message, client", "A client's message is about to be routed; the filter may replace it.", True
    ),
    "published": Event(WATCHER, "message", "A message was routed to its subscribers.", True),
    "publish_dropped": Event(
        WATCHER,
        "client_id, message",
        "A message to this client, or to the shared group of that name, was dropped: full, too large or expired.",
        True,
    ),
    "retain_message": Event(WATCHER, "message", "A retained message was stored, replaced or (empty) removed."),
    "retain_published": Event(WATCHER, "client, message", "A retained message was sent to a new subscription."),
    "qos_publish": Event(
        WATCHER, "client_id, packet_id, message", "A QoS 1 or 2 message was sent and waits for its end.", True
    ),
    "qos_complete": Event(WATCHER, "client_id, packet_id", "A QoS 1 or 2 delivery was acknowledged to its end.", True),
    "qos_dropped": Event(WATCHER, "client_id, packet_id", "A QoS 1 or 2 delivery in flight was given up.", True),
    "packet_id_exhausted": Event(
        WATCHER, "client_id", "All 65,535 packet ids of a client are in use; the message waits."
    ),
    "will": Event(FILTER, "message, client_id", "A will is about to be published; the filter may replace it."),
    "will_sent": Event(WATCHER, "message, client_id", "A will was published."),
    "client_expired": Event(WATCHER, "client_id", "A session's expiry interval ended and the session was removed."),
    "retained_expired": Event(WATCHER, "message", "A retained message's expiry interval ended and it was removed."),
}


class Refusal(Exception):
    """What a guard raises to veto with a reason code of its own, and where to go instead (`server_reference`)."""

    def __init__(self, reason: int, text: str = "", server_reference: str | None = None) -> None:
        super().__init__(text or f"refused with 0x{reason:02X}")
        self.reason = reason
        self.text = text
        self.server_reference = server_reference


class Challenge(NamedTuple):
    """What an `auth_packet` guard returns to go on: `done` accepts, otherwise the client is asked again.

    `username` is who the exchange has proved the client to be; None: nobody. It alone counts, once it is done: neither
    the user name in CONNECT nor a certificate stands for what was not proved."""

    data: bytes | None = None
    done: bool = False
    username: str | None = None


Hook = Callable[..., Any]


def give_up(answer: Awaitable[Any]) -> None:
    """Nobody waits for this answer any more, if it has not come yet."""
    if isinstance(answer, Coroutine):
        answer.close()
    elif isinstance(answer, asyncio.Future):
        answer.cancel()


Value = TypeVar("Value")


class Hooks:
    def __init__(self) -> None:
        self.failures: dict[str, int] = {}
        self.slow = False
        self.on_change: Callable[[], None] | None = None
        self._hooks: dict[str, list[Hook]] = {}

    def add(self, event: str, hook: Hook) -> None:
        """Call `hook` at this event, with the arguments that `EVENTS` names."""
        if event not in EVENTS:
            raise ValueError(unknown("event", event, sorted(EVENTS)))
        self._hooks.setdefault(event, []).append(hook)
        self._changed()

    def remove(self, event: str, hook: Hook) -> None:
        hooks = self._hooks[event]
        hooks.remove(hook)
        if not hooks:
            del self._hooks[event]
        self._changed()

    def on(self, event: str) -> Callable[[Hook], Hook]:
        """`add` as a decorator."""

        def register(hook: Hook) -> Hook:
            self.add(event, hook)
            return hook

        return register

    def listens(self, event: str) -> bool:
        return event in self._hooks

    def _changed(self) -> None:
        self.slow = any(EVENTS[event].slow for event in self._hooks)
        if self.on_change is not None:
            self.on_change()

    def allow(self, event: str, *arguments: Any) -> Refusal | None:
        """Ask the guards: None when all agree, else the first refusal (reason 0x87 unless the guard gave another)."""
        for hook in self._hooks.get(event, ()):
            try:
                answer = hook(*arguments)
                if answer is False:
                    return Refusal(0x87)
                if answer is not None and inspect.isawaitable(answer):
                    give_up(answer)
                    raise TypeError(f"a guard of {event!r} cannot be waited for")
            except Refusal as refusal:
                return refusal
            except Exception:
                self._failed(event)
                return Refusal(0x83, "a guard failed")
        return None

    def ask(self, event: str, *arguments: Any) -> Refusal | Awaitable[Refusal | None] | None:
        """As `allow`, with guards that may answer later: by something to wait for, one behind the other."""
        later: list[Awaitable[Any]] = []
        for hook in self._hooks.get(event, ()):
            try:
                answer = hook(*arguments)
                refusal = Refusal(0x87) if answer is False else None
            except Refusal as raised:
                refusal = raised
            except Exception:
                self._failed(event)
                refusal = Refusal(0x83, "a guard failed")
            if refusal is not None:
                for other in later:
                    give_up(other)
                return refusal
            if inspect.isawaitable(answer):
                later.append(answer)
        return self._all_agree(event, later) if later else None

    async def _all_agree(self, event: str, answers: list[Awaitable[Any]]) -> Refusal | None:
        try:
            for answer in answers:
                if await answer is False:
                    return Refusal(0x87)
        except Refusal as refusal:
            return refusal
        except Exception:
            self._failed(event)
            return Refusal(0x83, "a guard failed")
        finally:
            for answer in answers:
                give_up(answer)
        return None

    def challenge(self, method: str, client: object, data: bytes | None, again: bool) -> Challenge | Refusal | None:
        """Ask the `auth_packet` guards for the next step; None when no guard knows the method."""
        for hook in self._hooks.get("auth_packet", ()):
            try:
                answer = hook(client, method, data, again)
            except Refusal as refusal:
                return refusal
            except Exception:
                self._failed("auth_packet")
                return Refusal(0x83, "a guard failed")
            if isinstance(answer, Challenge):
                return answer
            if answer is False:
                return Refusal(0x87)
        return None

    def transform(self, event: str, value: Value, *arguments: Any) -> Value:
        """Run the filters over a value."""
        for hook in self._hooks.get(event, ()):
            try:
                changed = hook(value, *arguments)
            except Exception:
                self._failed(event)
            else:
                if changed is not None:
                    value = changed
        return value

    def tell(self, event: str, *arguments: Any) -> None:
        """Tell the watchers."""
        for hook in self._hooks.get(event, ()):
            try:
                hook(*arguments)
            except Exception:
                self._failed(event)

    def _failed(self, event: str) -> None:
        self.failures[event] = self.failures.get(event, 0) + 1
        log.exception("a hook for %r raised; the broker goes on without it", event)
