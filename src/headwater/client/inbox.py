"""Messages that have arrived: those that wait to be taken, and those taken and not yet acknowledged.

Theory. A message with QoS 1 or 2 is acknowledged when the application is done with it, not before: what it has not
finished, the server still has. From its arrival until then it is in `_unacknowledged`, in the order of arrival, and
acknowledgements leave from the front only [MQTT-4.6.0-2, 4.6.0-3]. So the number of such messages in memory is bounded
by the Receive Maximum that the server was told: a full queue stops acknowledging, and the server stops sending.

That window knows nothing of QoS 0, nor of MQTT 3.1.1. Messages that it does not bound are `loose`: when as many of them
are here as the Receive Maximum says, the conversation stops reading from the network, and TCP slows the server down.
Nothing is dropped in either case.

When a connection is lost, what was not acknowledged becomes `_stale`. If the session lives on, the server sends it
again under the same packet id [MQTT-4.4.0-1]; it is then not queued twice, but joined with what is here, and
acknowledged at once if the application has finished it meanwhile. With QoS 2 the id alone decides, because the server
cannot use it for anything else before we have said PUBREC; with QoS 1 the content has to be the same as well. If the
session is gone, nothing of this is valid: the messages stay with the application, and their acknowledgements go nowhere
[MQTT-3.2.2-5].
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from headwater.client.message import NOT_TAKEN, Message
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import V5, Packet, Puback, Publish, Pubrec
from headwater.wire.reasons import TOPIC_ALIAS_INVALID


class Watcher(Protocol):
    """Is told how the application gets on."""

    def waiting_changed(self, waiting: int) -> None: ...
    def message_done(self, seconds: float) -> None: ...


class Inbox:
    """`send` sends an acknowledgement on the present connection; `changed` is called when `loose` may have."""

    def __init__(
        self,
        version: int,
        receive_maximum: int,
        topic_alias_maximum: int,
        send: Callable[[Packet], None],
        changed: Callable[[], None],
    ) -> None:
        self._version = version
        self.receive_maximum = receive_maximum
        self._topic_alias_maximum = topic_alias_maximum
        self._send = send
        self._changed = changed
        self._clock: Callable[[], float] = lambda: 0.0
        self.watcher: Watcher | None = None
        self._queue: deque[Message] = deque()
        self._takers: deque[asyncio.Future[None]] = deque()
        self._aliases: dict[int, str] = {}
        self._unacknowledged: dict[int, Message] = {}
        self._stale: dict[int, Message] = {}
        self._received: set[int] = set()
        """QoS 2 ids for which PUBREC was sent on this connection and PUBREL has not come."""
        self._received_before: set[int] = set()
        """The same on earlier connections of the session; they do not count in this one's window (4.9)."""
        self._loose = 0
        self._is_over = False
        self._error: Exception | None = None

    def __len__(self) -> int:
        """How many wait to be taken."""
        return len(self._queue)

    @property
    def loose(self) -> int:
        """How many are in memory that no window bounds."""
        return self._loose

    def attach(self, session_present: bool) -> None:
        """A connection was made."""
        self._clock = asyncio.get_running_loop().time
        self._aliases.clear()  # [MQTT-3.3.2-7]
        if not session_present:  # [MQTT-3.2.2-5]
            for message in self._stale.values():
                self._loosen(message)
            self._stale.clear()
            self._received_before.clear()

    def detach(self) -> None:
        """The connection was lost."""
        for message in self._stale.values():  # not sent again, so far, on the connection that has just gone
            self._loosen(message)
        self._stale |= self._unacknowledged
        self._unacknowledged = {}
        self._received_before |= self._received
        self._received = set()

    def end(self, error: Exception | None) -> None:
        """No more will come. What is here can be taken; then takers get the error, or None."""
        self._is_over = True
        self._error = error
        while self._takers:
            self._wake_taker()

    def put(self, packet: Publish) -> None:
        """A message arrived."""
        self._resolve_alias(packet)
        if packet.qos and not self._is_new(packet):
            return
        message = Message(packet, self.done)
        if packet.qos == 0 or self._version != V5 or self._is_window_full():
            self._loosen(message)
        if packet.qos:
            self._unacknowledged[packet.packet_id] = message
        self._queue.append(message)
        self._wake_taker()
        self._waiting_changed()

    def _is_new(self, packet: Publish) -> bool:
        packet_id = packet.packet_id
        if packet.qos == 2 and (packet_id in self._received or packet_id in self._received_before):
            self._send(Pubrec(packet_id))  # [MQTT-4.3.3-10]
            return False
        if packet_id in self._unacknowledged:
            return False
        known = self._stale.pop(packet_id, None)
        if known is None:
            return True
        if not _is_same(known, packet):
            self._loosen(known)
            return True
        if self._version == V5:
            self._fasten(known)
        self._unacknowledged[packet_id] = known
        self._acknowledge()
        return False

    def _is_window_full(self) -> bool:
        """[MQTT-3.3.4-9] forbids the server to send more, but some do, by a message or two. They are not left for it,
        since nobody is harmed: such messages are bounded like those without a window."""
        return len(self._unacknowledged) + len(self._received) >= self.receive_maximum

    def release(self, packet_id: int) -> bool:
        """PUBREL has come; whether there was anything to release."""
        known = packet_id in self._received or packet_id in self._received_before
        self._received.discard(packet_id)
        self._received_before.discard(packet_id)
        return known

    async def take(self) -> Message:
        """The next message; StopAsyncIteration at the end. A taker that is cancelled has taken nothing."""
        while not self._queue:
            if self._is_over:
                raise self._error or StopAsyncIteration
            taker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                if not taker.cancelled() and self._queue:
                    self._wake_taker()  # it was our turn, but the caller has gone
                raise
        message = self._queue.popleft()
        message.taken_at = self._clock()
        if message.qos == 0:
            self._fasten(message)
        self._waiting_changed()
        return message

    def done(self, message: Message) -> None:
        """The application is done with a message it took."""
        if message.is_done:
            return
        message.is_done = True
        if self.watcher is not None and message.taken_at != NOT_TAKEN:
            self.watcher.message_done(self._clock() - message.taken_at)
        if message.qos:
            self._fasten(message)
            self._acknowledge()
            self._changed()

    def _acknowledge(self) -> None:
        """Send the acknowledgements that are due, in the order in which the messages came."""
        while self._unacknowledged:
            packet_id, message = next(iter(self._unacknowledged.items()))
            if not message.is_done:
                return
            del self._unacknowledged[packet_id]
            if message.qos == 1:
                self._send(Puback(packet_id))
            else:
                self._received.add(packet_id)
                self._send(Pubrec(packet_id))

    def _loosen(self, message: Message) -> None:
        if not message.is_loose and not message.is_done:
            message.is_loose = True
            self._loose += 1

    def _fasten(self, message: Message) -> None:
        if message.is_loose:
            message.is_loose = False
            self._loose -= 1

    def _wake_taker(self) -> None:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return

    def _waiting_changed(self) -> None:
        if self.watcher is not None:
            self.watcher.waiting_changed(len(self._queue))
        self._changed()

    def _resolve_alias(self, packet: Publish) -> None:
        alias = packet.properties.topic_alias if packet.properties is not None else None
        if alias is None:
            return
        if alias > self._topic_alias_maximum:  # [MQTT-3.3.2-11]
            raise RemoteProtocolError(TOPIC_ALIAS_INVALID, f"topic alias {alias}, at most {self._topic_alias_maximum}")
        if packet.topic:
            self._aliases[alias] = packet.topic
        elif alias in self._aliases:
            packet.topic = self._aliases[alias]
        else:
            raise RemoteProtocolError(TOPIC_ALIAS_INVALID, f"topic alias {alias} stands for nothing")


def _is_same(known: Message, packet: Publish) -> bool:
    """Whether a message of an earlier connection is the one that came now under its id."""
    if known.qos != packet.qos:
        return False
    return packet.qos == 2 or (packet.dup and known.topic == packet.topic and known.payload == packet.payload)
