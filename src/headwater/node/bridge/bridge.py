"""One bridge: a client at our own broker, a client at the remote one, and a pump for each direction.

    our broker ═ socket pair ═ local client ── out ──► remote client ═ network ═ remote broker
                                            ◄── in ──

Both clients connect again by themselves, for ever. While the remote is away, the local one goes away, too: then our
broker does with its session what it does with that of any absent client.

With each connection to the remote (`_greet`), the bridge subscribes unless the remote still knows, says that it is up,
and sends our retained messages if the remote may not have them: because it does not know us any more, or because the
session here is new.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from headwater.client import Client, MqttError, Reconnect, Rejected, Will
from headwater.message import Message
from headwater.node.bridge.converting import Converting
from headwater.node.bridge.inside import PREFIX, Inside
from headwater.node.bridge.mapping import inward, outward
from headwater.node.bridge.path import BRIDGE
from headwater.node.bridge.preparing import Prepared
from headwater.node.bridge.pump import Pump, Way
from headwater.node.bridge.view import Figures
from headwater.node.protocol.server import Server
from headwater.wire.packets import V5, V311, Properties, SubscribeRequest
from headwater.wire.primitives import FOR_EVER
from headwater.wire.reasons import UNSPECIFIED_ERROR

log: Final = logging.getLogger("headwater.bridge")

NO_RETAINED: Final = 2
RETAINED_IF_NEW: Final = 1
ALL_RETAINED: Final = 0
"""Retain handling of subscriptions."""
LOCAL_PATIENCE: Final = Reconnect(first=0.1, longest=5.0, from_start=True, always=True)
LAST_WORDS: Final = 2.0
"""Seconds to tell the remote that the bridge goes down, and to part."""


class Bridge:
    """`run` it once. `former` are filters that an earlier bridge of this name subscribed to at the remote."""

    def __init__(self, server: Server, prepared: Prepared, figures: Figures, former: list[str]) -> None:
        self._server = server
        self.prepared = prepared
        self._settings = settings = prepared.settings
        self._former = former
        self._out = outward(settings.topics)
        wanted = inward(settings.topics)
        self._missing = wanted.requests(RETAINED_IF_NEW) if settings.protocol == "5.0" else wanted.plain_requests()
        """Subscriptions that the remote has not granted."""
        self.error = "not connected yet"
        self._was_up = False
        self._is_subscribed = False
        self._is_new_here = False
        self._connected = asyncio.Event()
        self.keeps = asyncio.Event()
        """What is to go out reaches us: the subscriptions at our own broker are made."""
        self.is_to_be_forgotten = False
        """Whether the remote is to forget us when the bridge ends."""
        self._local = self._make_local()
        self._remote = self._make_remote()
        converting = Converting(settings, server, self._local, self._remote)
        most = server.config.outbound_buffer
        out = Way(self._local, self._remote, converting.outgoing, figures.sent)
        into = Way(self._remote, self._local, converting.incoming, figures.received)
        self._pumps = [
            Pump(settings.name, out, most, drops=True),
            Pump(settings.name, into, most, drops=False),
        ]

    @property
    def local_id(self) -> str:
        return PREFIX + self._settings.name

    @property
    def is_up(self) -> bool:
        return self._is_subscribed and self._remote.is_connected and self._local.is_connected

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for pump in self._pumps:
                    tasks.create_task(pump.take())
                    tasks.create_task(pump.acknowledge())
                tasks.create_task(self._converse())
        finally:
            await self._leave()

    # ---- the two clients ---------------------------------------------------------------------------------------

    def _make_local(self) -> Client:
        settings = self._settings
        return Client(
            f"bridge {settings.name}",
            open_socket=Inside(self._server, settings.name).open,
            client_id=self.local_id,
            clean_start=settings.clean_start,
            session_expiry=0 if settings.clean_start else FOR_EVER,
            keep_alive=0,
            acknowledge="manual",
            receive_maximum=settings.max_inflight,
            max_inflight=settings.max_inflight,
            reconnect=LOCAL_PATIENCE,
            on_change=self._changed,
        )

    def _make_remote(self) -> Client:
        settings, prepared = self._settings, self.prepared
        first, *others = settings.places
        is_v5 = settings.protocol == "5.0"
        ours = Properties(user_properties=[(BRIDGE, self._server.broker_id)])
        return Client(
            first.host,
            first.port,
            fallbacks=others,
            tls=prepared.context or False,
            transport="websocket" if settings.websocket_path else "tcp",
            websocket_path=settings.websocket_path,
            client_id=prepared.client_id,
            version=V5 if is_v5 else V311,
            username=settings.username,
            password=prepared.password,
            clean_start=settings.clean_start,
            session_expiry=0 if settings.clean_start else settings.session_expiry,
            keep_alive=settings.keep_alive,
            will=Will(prepared.notification_topic, b"0", 1, True) if self._notifies_remote else None,
            properties=ours if is_v5 else None,
            acknowledge="manual",
            receive_maximum=settings.max_inflight,
            max_inflight=settings.max_inflight,
            reconnect=Reconnect(settings.reconnect_first, settings.reconnect_longest, from_start=True, always=True),
            bridge=settings.announce and not is_v5,
            on_change=self._remote_changed,
        )

    # ---- connections -------------------------------------------------------------------------------------------

    def _remote_changed(self, error: MqttError | None) -> None:
        if error is None:
            self._local.resume()
            self._connected.set()
        else:
            self._local.suspend()
            self._is_subscribed = False
            self.error = str(error)
        self._changed(error)

    def _changed(self, error: MqttError | None) -> None:
        """A connection was made or lost, or used: tell, if the bridge is up or down by that."""
        if self.is_up == self._was_up:
            return
        self._was_up = self.is_up
        if self.is_up:
            log.info("bridge %r is up", self._settings.name)
        else:
            log.warning("bridge %r is down: %s", self._settings.name, error)
        self._notify_local(b"1" if self.is_up else b"0")

    async def _converse(self) -> None:
        await self._local.connect()
        self._is_new_here = not self._local.session_present
        await self._subscribe_here()
        self.keeps.set()
        self._notify_local(b"0")
        self._local.suspend()
        await self._remote.connect()
        while True:
            await self._connected.wait()
            self._connected.clear()
            await self._greet()

    async def _subscribe_here(self) -> None:
        """What another bridge of this name, or this one with other settings, has left in the session is taken off."""
        session = self._server.sessions.get(self.local_id)
        wanted = self._out.requests(NO_RETAINED)
        stale = [] if session is None else [each for each in session.subscriptions if each not in self._out.filters]
        if stale:
            await self._local.unsubscribe(stale)
        if wanted:
            reasons = await self._local.subscribe(wanted)
            self._complain("here", wanted, reasons)

    async def _greet(self) -> None:
        """There is a new connection to the remote."""
        remote = self._remote
        if self._former:
            await remote.unsubscribe(self._former)
            self._former = []
        if self._missing:
            asked = self._missing
            # One by one: some brokers take only a few filters in one packet.
            reasons = [reason for each in asked for reason in await remote.subscribe([each])]
            self._missing = self._complain("at the remote", asked, reasons)
        self._is_subscribed = True
        self._changed(None)
        if self._notifies_remote:
            with contextlib.suppress(Rejected):  # `$SYS` is not everywhere to be written to
                await remote.publish(self.prepared.notification_topic, b"1", qos=1, retain=True)
        if self._out.filters and (self._is_new_here or not remote.session_present):
            self._is_new_here = False
            await self._local.subscribe(self._out.requests(ALL_RETAINED))

    def _complain(self, where: str, asked: list[SubscribeRequest], reasons: list[int]) -> list[SubscribeRequest]:
        """Those that were refused, which the log is told of."""
        refused = [each for each, reason in zip(asked, reasons, strict=False) if reason >= UNSPECIFIED_ERROR]
        for each in refused:
            log.error("bridge %r may not subscribe to %r %s", self._settings.name, each.filter, where)
        return refused

    # ---- its state, published ----------------------------------------------------------------------------------

    @property
    def _notifies_remote(self) -> bool:
        return self._settings.notifications == "both"

    def _notify_local(self, state: bytes) -> None:
        server = self._server
        if self._settings.notifications != "none" and not server.stopping:
            with server.turn():
                server.publishing.announce(Message(self.prepared.notification_topic, state, 1, True))

    # ---- the end -----------------------------------------------------------------------------------------------

    async def _leave(self) -> None:
        remote, local = self._remote, self._local
        with contextlib.suppress(TimeoutError, MqttError):
            async with asyncio.timeout(LAST_WORDS):
                if self._notifies_remote and remote.is_connected:
                    await remote.publish(self.prepared.notification_topic, b"0", qos=1, retain=True)
        forget = Properties(session_expiry_interval=0) if self.is_to_be_forgotten and remote.version == V5 else None
        for client, properties in ((remote, forget), (local, None)):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS):
                    await client.disconnect(properties=properties)
        if self._was_up:
            self._was_up = False
            log.info("bridge %r is down: it was stopped", self._settings.name)
        self._notify_local(b"" if self.is_to_be_forgotten else b"0")
