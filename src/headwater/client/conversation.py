"""What client and server have under way with each other, over one connection or several.

It gets each packet that comes after CONNACK and gives it to whom it concerns: a message to the inbox, an answer to
the publications or the requests. Connections come and go (`attach`, `detach`); `end` is for good.
"""

from __future__ import annotations

import asyncio
from typing import Final

from headwater.client.errors import Disconnected, MqttError, explain
from headwater.client.inbox import Inbox
from headwater.client.link import Link
from headwater.client.publications import Publications
from headwater.client.requests import Requests, Subscriptions
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import (
    V5,
    Connack,
    Disconnect,
    Packet,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Unsuback,
)
from headwater.wire.reasons import PACKET_IDENTIFIER_NOT_FOUND, PROTOCOL_ERROR, SUCCESS

NO_LIMIT: Final = 65535
BREATH: Final = 64
"""Messages after which a caller that never has to wait lets others run."""
WHILE_WE_WAIT: Final = 10
"""Times the bound of messages in memory that may be here while somebody waits for an answer of the server: the answer
comes behind them."""


class Conversation:
    """`max_inflight` bounds our publications under way, below what the server allows."""

    def __init__(
        self, version: int, ours: Properties, receive_maximum: int, max_inflight: int, keeps_record: bool = False
    ) -> None:
        self._version = version
        self._max_inflight = max_inflight
        self._link: Link | None = None
        self.server = Properties()
        self.publications = Publications(version, keeps_record)
        self.requests = Requests(self.publications.reserve_id, self.publications.give_back_id)
        self.subscriptions = Subscriptions()
        self.inbox = Inbox(version, receive_maximum, ours.topic_alias_maximum or 0, self._acknowledge, self.regulate)
        self.error: MqttError | None = None
        self._without_breath = 0

    def attach(self, link: Link, connack: Connack) -> None:
        """The server has accepted us on this link."""
        self._link = link
        self.server = connack.properties or Properties()
        link.on_writable = self.publications.pump
        self.inbox.attach(connack.session_present)
        largest = self.server.maximum_packet_size
        self.subscriptions.renew(link, self.requests, self._version, largest, connack.session_present)
        window = min(self.server.receive_maximum or NO_LIMIT, self._max_inflight)
        self.publications.attach(link, self.server, window, connack.session_present)
        self.regulate()

    def detach(self) -> None:
        """The link has gone."""
        self._link = None
        self.inbox.detach()
        self.publications.detach()
        self.requests.detach()

    def end(self, error: MqttError | None) -> None:
        """There will be no other; without an error, because we left."""
        self.error = error or Disconnected("the client has disconnected")
        self.detach()
        self.publications.end(self.error)
        self.inbox.end(error)

    def submit(self, packet: Publish, packet_id: int = 0, is_again: bool = False) -> asyncio.Future[int]:
        """Send a message in its turn; the future of its reason code."""
        answer = self.publications.submit(packet, packet_id, is_again)
        self.regulate()
        return answer

    async def publish(self, packet: Publish) -> int:
        """Send a message in its turn; with QoS 1 or 2, wait for the server's answer and return its reason code."""
        answer = self.submit(packet)
        self._without_breath = self._without_breath + 1 if answer.done() else 0
        if self._without_breath >= BREATH:
            self._without_breath = 0
            await asyncio.sleep(0)
        return await answer

    def regulate(self) -> None:
        """Stop reading when as much is in memory as was agreed, and go on when some of it is done."""
        link = self._link
        if link is None:
            return
        loose, bound = self.inbox.loose, self.inbox.receive_maximum
        if self.publications.in_flight or len(self.requests):
            bound *= WHILE_WE_WAIT
        if loose >= bound:
            link.pause_reading()
        elif link.is_paused:
            link.resume_reading()

    def received(self, packet: Packet) -> None:
        """A packet of the server; raises RemoteProtocolError if it may not come, and Disconnected for DISCONNECT."""
        if isinstance(packet, Publish):
            self.inbox.put(packet)
        elif isinstance(packet, Puback):
            self.publications.acknowledged(packet)
        elif isinstance(packet, Pubrec):
            assert self._link is not None
            self.publications.received(packet, self._link)
        elif isinstance(packet, Pubcomp):
            self.publications.completed(packet)
        elif isinstance(packet, Pubrel):
            unknown = not self.inbox.release(packet.packet_id) and self._version == V5
            self._acknowledge(Pubcomp(packet.packet_id, PACKET_IDENTIFIER_NOT_FOUND if unknown else SUCCESS))
        elif isinstance(packet, Suback | Unsuback):
            self.requests.answered(packet)
        elif isinstance(packet, Disconnect):
            text = f"the server ended the connection: {explain(packet.reason, packet.properties)}"
            raise Disconnected(text, packet.reason, packet.properties)
        elif not isinstance(packet, Pingresp):
            raise RemoteProtocolError(PROTOCOL_ERROR, f"{type(packet).__name__} was not expected")

    def _acknowledge(self, packet: Packet) -> None:
        if self._link is not None and self._link.is_open:
            self._link.send(packet)
