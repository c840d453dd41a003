"""From a message of one side of a bridge to the PUBLISH for the other: topic, QoS, retain flag, properties, path."""

from __future__ import annotations

import dataclasses

from headwater.client import Client, Message
from headwater.node.bridge.mapping import inward, outward
from headwater.node.bridge.path import broker_of, crossed
from headwater.node.bridge.settings import BridgeSettings
from headwater.node.protocol.server import Server
from headwater.wire.encode import encode
from headwater.wire.packets import V5, Properties, Publish


class Converting:
    """Both ways answer None for a message that is not to go on."""

    def __init__(self, settings: BridgeSettings, server: Server, local: Client, remote: Client) -> None:
        self._settings = settings
        self._server = server
        self._server_id = server.broker_id
        self._local = local
        self._remote = remote
        self._out = outward(settings.topics)
        self._in = inward(settings.topics)

    def outgoing(self, message: Message) -> Publish | None:
        settings, remote = self._settings, self._remote
        topic = self._out.map(message.topic)
        path = crossed(message.properties.user_properties, self._server_id, broker_of(remote.server), settings.max_hops)
        if topic is None or path is None:
            return None
        packet = _publish(message, topic, remote)
        packet.retain = packet.retain and settings.outgoing_retain
        if remote.version == V5:
            packet.properties = _carried(message.properties, path)
        largest = settings.max_packet_size
        if largest and len(encode(_numbered(packet), remote.version)) > largest:
            return None
        return packet if self._out.lets_through(message, self._server.hot.now) else None

    def incoming(self, message: Message) -> Publish | None:
        topic = self._in.map(message.topic)
        path = crossed(
            message.properties.user_properties,
            broker_of(self._remote.server),
            self._server_id,
            self._settings.max_hops,
        )
        # For a topic with a flaw, our broker would end the connection, again and again.
        if topic is None or path is None or self._server.admission.flaw(topic):
            return None
        packet = _publish(message, topic, self._local)
        packet.properties = _carried(message.properties, path)
        return packet if self._in.lets_through(message, self._server.hot.now) else None


def _publish(message: Message, topic: str, target: Client) -> Publish:
    """With the QoS and the retain flag that the target can do."""
    highest = target.server.maximum_qos
    qos = message.qos if highest is None else min(message.qos, highest)
    return Publish(topic, message.payload, qos, message.retain and target.server.retain_available != 0)


def _carried(properties: Properties, path: list[tuple[str, str]]) -> Properties:
    """All that belongs to the message and not to the connection that it came over."""
    return dataclasses.replace(properties, subscription_identifiers=None, topic_alias=None, user_properties=path)


def _numbered(packet: Publish) -> Publish:
    """As it will leave, for its size."""
    return dataclasses.replace(packet, packet_id=1 if packet.qos else 0)
