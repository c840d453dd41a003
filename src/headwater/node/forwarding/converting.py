"""From a message of the store to the PUBLISH for a forward's remote: topic, QoS, retain flag, properties, path.

Each message says where it is from, in the user property `headwater-source`: the store's id and its position there. So
whoever gets it at the other side can tell a repeat from a new message, whatever broker is between. (The property
`headwater-position` is the remote's own to give: a node of ours replaces it.)
"""

from __future__ import annotations

import base64
import json
import time
from typing import Any, Final

from headwater.client import V5, Client, Properties, Publish
from headwater.node.bridge.path import broker_of, crossed
from headwater.node.forwarding.settings import ForwardSettings
from headwater.routing.topics import LONGEST_TOPIC
from headwater.store.entry import Entry
from headwater.wire.encode import encode

SOURCE_PROPERTY: Final = "headwater-source"


class Converting:
    """Says in a word why a message is not sent."""

    def __init__(self, settings: ForwardSettings, broker_id: str, store_id: str) -> None:
        self._settings = settings
        self._broker_id = broker_id
        self._store_id = store_id

    def __call__(self, entry: Entry, remote: Client, is_replaced: bool) -> Publish | str:
        settings, server = self._settings, remote.server
        topic = settings.remote_prefix + entry.topic.removeprefix(settings.local_prefix)
        if not topic or len(topic.encode()) > LONGEST_TOPIC:
            return "no_topic"
        retain = entry.retain and settings.retain and not is_replaced and server.retain_available != 0
        # One that takes QoS 0 only would promise nothing: the client refuses to send it, and it stays owed.
        qos = settings.qos if server.maximum_qos is None else max(1, min(settings.qos, server.maximum_qos))
        packet = Publish(topic, entry.payload, qos, retain)
        properties = _properties_of(entry.properties)
        expiry = properties.message_expiry_interval
        if expiry is not None:
            properties.message_expiry_interval = int(expiry - (time.time() - entry.arrival / 1e6))
            if properties.message_expiry_interval <= 0:
                return "expired"
        if remote.version == V5:
            path = crossed(properties.user_properties, self._broker_id, broker_of(server), settings.max_hops)
            if path is None:
                return "looped"
            properties.user_properties = [*path, (SOURCE_PROPERTY, f"{self._store_id}:{entry.position}")]
            packet.properties = properties
        if settings.max_packet_size and _size(packet, remote.version) > settings.max_packet_size:
            return "too_large"
        return packet


def _size(packet: Publish, version: int) -> int:
    packet.packet_id = 1 if packet.qos else 0
    return len(encode(packet, version))


def _properties_of(stored: bytes) -> Properties:
    """What delivery.properties has written."""
    if not stored:
        return Properties()
    fields: dict[str, Any] = json.loads(stored)
    data = fields.get("correlation_data")
    return Properties(
        content_type=fields.get("content_type"),
        response_topic=fields.get("response_topic"),
        correlation_data=None if data is None else base64.b64decode(data),
        payload_format_indicator=fields.get("payload_format"),
        message_expiry_interval=fields.get("expiry"),
        user_properties=[(name, value) for name, value in fields.get("user") or ()] or None,
    )
