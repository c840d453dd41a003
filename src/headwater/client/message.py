"""A message as the application gets it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headwater.wire.packets import Properties, Publish

NOT_TAKEN: Final = -1.0


class ReceivedMessage:
    """`duplicate` says that the server sent it before, on this connection or an earlier one (DUP); `packet_id` is 0
    with QoS 0. `properties` are those of MQTT 5.0, all None in 3.1.1; a topic alias is resolved already."""

    __slots__ = ("_properties", "duplicate", "packet_id", "payload", "qos", "retain", "topic")

    def __init__(self, packet: Publish) -> None:
        self.topic = packet.topic
        self.payload = packet.payload
        self.qos = packet.qos
        self.retain = packet.retain
        self.duplicate = packet.dup
        self.packet_id = packet.packet_id
        self._properties = packet.properties

    @property
    def properties(self) -> Properties:
        if self._properties is None:
            self._properties = Properties()
        return self._properties

    def __repr__(self) -> str:
        flags = ", retain" * self.retain + ", duplicate" * self.duplicate
        return f"{type(self).__name__}({self.topic!r}, {len(self.payload)} B, qos {self.qos}{flags})"


class Message(ReceivedMessage):
    """`is_done` says that the application is done with it: it was acknowledged, or with QoS 0 followed by another."""

    __slots__ = ("_done", "is_done", "is_loose", "taken_at")

    def __init__(self, packet: Publish, done: Callable[[Message], None]) -> None:
        super().__init__(packet)
        self._done = done
        self.is_done = False
        self.is_loose = False
        self.taken_at = NOT_TAKEN

    async def ack(self) -> None:
        """Tell the server that the message is dealt with and need not be sent again.

        To do it again does nothing, nor does it with QoS 0. Acknowledgements leave in the order in which the messages
        came, as the standard demands, so this one waits inside the client until those before it are given. If the
        connection on which the message came has gone, the server is told when it sends the message again.
        """
        self._done(self)
