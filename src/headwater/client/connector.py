"""The connection to the server: one link after another, as long as it is worth it.

    closed --open--> connecting --CONNACK--> connected --loss--> waiting --back-off--> connecting …
                        |                        |                   |
                        +-- refused -------------+-- in vain --------+--> over

Which reasons are worth another try, `reconnect` says. Without a Reconnect every loss is the end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from headwater.client.authentication import Authentication, answer, check
from headwater.client.conversation import Conversation
from headwater.client.errors import REASON_OF_RETURN_CODE, ConnectError, Disconnected, MqttError, explain, why
from headwater.client.heartbeat import Heartbeat
from headwater.client.link import Address, Link, open_link
from headwater.client.ping import PingSender
from headwater.client.reconnect import Reconnect
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import V5, Auth, Connack, Connect, Disconnect, Packet, Properties
from headwater.wire.reasons import PROTOCOL_ERROR, SUCCESS
from headwater.wire.status import interval_of

log: Final = logging.getLogger("headwater.client")


class Connector:
    """`make_connect` gives the CONNECT of the first connection (True) and of later ones (False); `accepted` hears
    of each CONNACK before anything that follows it, `refused` of the reason in one that says no. `on_change` is called
    with None when there is a connection, and with the error when one was lost or could not be made. Several addresses
    are tried in turn, beginning with the first."""

    def __init__(
        self,
        addresses: Sequence[Address],
        conversation: Conversation,
        make_connect: Callable[[bool], Connect],
        accepted: Callable[[Connack], None],
        refused: Callable[[int], None],
        on_change: Callable[[MqttError | None], None] | None,
        *,
        reconnect: Reconnect | None,
        ping_sender: PingSender | None,
        authentication: Authentication | None,
        timeout: float,
    ) -> None:
        self._addresses = addresses
        self._turn = 0
        self._conversation = conversation
        self._make_connect = make_connect
        self._accepted = accepted
        self._refused = refused
        self._on_change = on_change or (lambda error: None)
        self._reconnect = reconnect
        self._ping_sender = ping_sender
        self._authentication = authentication
        self._timeout = timeout
        self._link: Link | None = None
        self._connect: Connect | None = None
        self._connack: asyncio.Future[None] | None = None
        self._heartbeat: Heartbeat | None = None
        self._trying: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[None] | None = None
        self._is_leaving = False
        self.was_connected = False
        self._connected_at = 0.0
        self._failures = 0
        self._cause: MqttError | None = None
        self._is_wanted = asyncio.Event()
        self._is_wanted.set()
        self._is_parted = False
        """Whether the last connection ended because it was not wanted."""
        conversation.inbox.watcher = self if ping_sender is not None else None

    @property
    def _address(self) -> Address:
        return self._addresses[self._turn % len(self._addresses)]

    @property
    def is_connected(self) -> bool:
        return self._heartbeat is not None

    async def open(self) -> None:
        """Make the first connection; raises ConnectError if there is none, or none worth waiting for."""
        if self.was_connected or self._is_leaving:
            raise RuntimeError("a client connects once; make another one to connect again")
        while True:
            try:
                await self._attempt()
                return
            except ConnectError as error:
                if self._reconnect is None or not self._reconnect.from_start:
                    raise
                if not self._reconnect.is_worth_another_try(error):
                    raise
                await self._wait(self._reconnect, error)

    async def ready(self) -> Link:
        """The link, as soon as there is one; raises when there will be none."""
        while not self.is_connected:
            if self._conversation.error is not None:
                raise self._conversation.error
            if not self.was_connected:
                raise Disconnected("not connected")
            if self._opened is None or self._opened.done():
                self._opened = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._opened)
        assert self._link is not None
        return self._link

    def suspend(self) -> None:
        """Part from the server, and do not connect again before `resume`."""
        self._is_wanted.clear()
        link = self._link
        if link is not None and self.is_connected:
            self._is_parted = True
            link.send(Disconnect())
            link.end()

    def resume(self) -> None:
        self._is_wanted.set()

    async def close(self, farewell: Disconnect) -> None:
        """Say good-bye and leave for good. What waits for an answer gets none."""
        self._is_leaving = True
        if self._trying is not None:
            self._trying.cancel()
        link, was_connected = self._link, self.is_connected
        self._lost()
        self._conversation.end(None)
        self._wake_waiters()
        if link is None:
            return
        if link.is_open and was_connected:
            link.send(farewell)
        await link.close(self._timeout)

    async def _attempt(self) -> None:
        """One connection up to CONNACK; raises ConnectError."""
        self._connack = asyncio.get_running_loop().create_future()
        self._connect = self._make_connect(not self.was_connected)
        self._cause = None
        try:
            async with asyncio.timeout(self._timeout):
                link = await open_link(self._address, self._make_link)
                link.send(self._connect)
                await self._connack
        except TimeoutError:
            if self.is_connected:  # CONNACK came at the last moment
                return
            self._drop()
            raise ConnectError(f"{self._address} did not answer within {self._timeout:g} seconds") from None
        except (OSError, Disconnected) as error:
            self._link = None
            reason = error.reason if isinstance(error, Disconnected) else None
            raise ConnectError(f"cannot connect to {self._address}: {why(error)}", reason) from error
        except BaseException:
            self._drop()
            raise

    def _make_link(self) -> Link:
        assert self._connect is not None
        properties = self._connect.properties or Properties()
        link = Link(self._connect.version, properties.maximum_packet_size)
        link.on_packet = lambda packet: self._received(link, packet)
        link.on_end = lambda error: self._ended(link, error)
        self._link = link
        return link

    def _drop(self) -> None:
        """Give up what was begun, or what was made and is not wanted any more."""
        link, was_connected = self._link, self.is_connected
        self._lost()
        if was_connected:
            self._conversation.detach()
        if link is not None:
            link.abort()

    def _received(self, link: Link, packet: Packet) -> None:
        if link is not self._link:
            return
        assert self._connack is not None
        if self.is_connected:
            try:
                self._conversation.received(packet)
            except Disconnected as error:
                self._cause = error
                link.abort()
        elif isinstance(packet, Connack):
            self._answered(link, packet)
        elif isinstance(packet, Auth) and self._authentication is not None:
            link.send(answer(self._authentication, packet))
        else:
            raise RemoteProtocolError(PROTOCOL_ERROR, f"{type(packet).__name__} before CONNACK")

    def _answered(self, link: Link, connack: Connack) -> None:
        """What follows CONNACK may be in the same read, so all is made ready here and now."""
        assert self._connack is not None and self._connect is not None
        version = self._connect.version
        if connack.reason != SUCCESS:
            reason = connack.reason if version == V5 else REASON_OF_RETURN_CODE[connack.reason]
            text = f"{self._address} refused the connection: {explain(reason, connack.properties)}"
            self._refused(reason)
            if not self._connack.done():
                self._connack.set_exception(ConnectError(text, reason, connack.properties))
            return
        if self._authentication is not None:
            check(self._authentication, connack)
        if connack.session_present and self._connect.clean_start:  # [MQTT-3.2.2-4]
            raise RemoteProtocolError(PROTOCOL_ERROR, "a session is present though we asked for a new one")
        self._accepted(connack)
        keep_alive = (connack.properties or Properties()).server_keep_alive  # [MQTT-3.1.2-21]
        seconds = self._connect.keep_alive if keep_alive is None else keep_alive
        shortest = interval_of(connack.properties) if version == V5 else 0
        sender = self._ping_sender if shortest else None
        self._heartbeat = Heartbeat(link, seconds, lambda: self._silent(link, seconds), sender, shortest / 1000)
        self._connected_at = asyncio.get_running_loop().time()
        if self.was_connected:
            log.info("connected again to %s", self._address)
        self.was_connected = True
        self._conversation.attach(link, connack)
        if not self._connack.done():
            self._connack.set_result(None)
        self._wake_waiters()
        self._on_change(None)
        if not self._is_wanted.is_set():
            self.suspend()

    def _wake_waiters(self) -> None:
        """Who waits for a connection looks whether there is one, or will be none."""
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)

    def _silent(self, link: Link, seconds: float) -> None:
        self._cause = Disconnected(f"the server has not answered a ping for {seconds:g} seconds")
        link.abort()

    def _lost(self) -> None:
        self._link = None
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None

    def _ended(self, link: Link, cause: Exception | None) -> None:
        """A link has gone, for whatever reason."""
        if link is not self._link:
            return
        was_connected = self.is_connected
        self._lost()
        error = self._cause or _as_disconnected(cause)
        if not was_connected:
            assert self._connack is not None
            if not self._connack.done():
                self._connack.set_exception(error)
                self._connack.exception()  # it may be that nobody looks at it any more
            return
        self._conversation.detach()
        if self._reconnect is None or not self._reconnect.is_worth_another_try(error):
            self._give_up(error)
            return
        self._turn = -1
        lasted = asyncio.get_running_loop().time() - self._connected_at
        if lasted > self._reconnect.longest_wait(self._failures):
            self._failures = 0
        if self._trying is None or self._trying.done():
            self._trying = asyncio.get_running_loop().create_task(self._try_again(self._reconnect, error))

    async def _try_again(self, reconnect: Reconnect, error: MqttError) -> None:
        while not self.is_connected:
            await self._wait(reconnect, error)
            try:
                await self._attempt()
            except ConnectError as failure:
                error = failure
                if not reconnect.is_worth_another_try(failure):
                    final = Disconnected(f"the connection was lost, and {failure}", failure.reason, failure.properties)
                    final.__cause__ = failure
                    self._give_up(final)
                    return

    async def _wait(self, reconnect: Reconnect, error: MqttError) -> None:
        self._on_change(error)
        if self._is_parted or not self._is_wanted.is_set():
            self._is_parted = False
            await self._is_wanted.wait()
            self._turn = self._failures = 0
            return
        self._turn += 1
        if self._turn % len(self._addresses):
            log.warning("%s; trying %s", error, self._address)
            return
        seconds = reconnect.wait(self._failures)
        self._failures += 1
        log.warning("%s; connecting again in %.1f seconds", error, seconds)
        await asyncio.sleep(seconds)

    def _give_up(self, error: MqttError) -> None:
        self._conversation.end(error)
        self._wake_waiters()
        self._on_change(error)

    def waiting_changed(self, waiting: int) -> None:
        if self._ping_sender is not None:
            self._ping_sender.waiting = waiting
            if self._heartbeat is not None:
                self._heartbeat.load_changed()

    def message_done(self, seconds: float) -> None:
        if self._ping_sender is not None:
            self._ping_sender.processed(seconds)
            if self._heartbeat is not None:
                self._heartbeat.load_changed()


def _as_disconnected(cause: Exception | None) -> Disconnected:
    if isinstance(cause, RemoteProtocolError):
        error = Disconnected(f"the server broke the protocol: {cause.text}", cause.reason)
    else:
        error = Disconnected("the connection was lost" + (f": {why(cause)}" if cause else ""))
    error.__cause__ = cause
    return error
