"""What CONNACK grants a client: the broker's limits, an id, and what it asked for and gets (3.2.2.3)."""

from __future__ import annotations

from typing import Final
from uuid import uuid4

from headwater.node.bridge.path import introduce
from headwater.node.plane.channel import Channel
from headwater.node.protocol.core import Core
from headwater.node.protocol.reporting import Reporting
from headwater.wire.packets import V5, Connack, Connect, Properties
from headwater.wire.reasons import SUCCESS

LARGEST_PACKET: Final = 268_435_460
"""What the standard allows, and a client need not be told."""


class Granting:
    def __init__(self, core: Core, reporting: Reporting) -> None:
        self.core = core
        self.reporting = reporting

    def grants(self, channel: Channel, packet: Connect) -> Properties:
        """What the client is told in CONNACK; sets what it is granted on the channel."""
        config = self.core.config
        grants = Properties(
            receive_maximum=config.receive_maximum,
            maximum_packet_size=None if config.max_packet_size == LARGEST_PACKET else config.max_packet_size,
        )
        entrance = channel.entrance
        aliases = None if entrance is None else entrance.topic_alias_maximum
        channel.alias_limit_in = config.topic_alias_maximum if aliases is None else aliases
        grants.topic_alias_maximum = channel.alias_limit_in or None
        if channel.max_qos < 2:
            grants.maximum_qos = channel.max_qos
        if not config.retain_available:
            grants.retain_available = 0
        if not config.wildcard_subscription_available:
            grants.wildcard_subscription_available = 0
        if not config.subscription_identifier_available:
            grants.subscription_identifier_available = 0
        if not config.shared_subscription_available:
            grants.shared_subscription_available = 0
        if not packet.client_id:
            prefix = None if entrance is None else entrance.auto_id_prefix
            assigned = channel.client_id or f"{config.auto_id_prefix if prefix is None else prefix}{uuid4()}"
            channel.client_id = grants.assigned_client_identifier = assigned  # [MQTT-3.1.3-6]
        # A 3.1.1 client could not be told of another keep alive, so it keeps its own.
        if config.max_keep_alive and packet.version == V5 and not 0 < packet.keep_alive <= config.max_keep_alive:
            channel.keep_alive = config.max_keep_alive
            grants.server_keep_alive = config.max_keep_alive  # [MQTT-3.2.2-21]
        asked = packet.properties
        if asked is not None:
            if (asked.session_expiry_interval or 0) > config.max_session_expiry:
                grants.session_expiry_interval = config.max_session_expiry
            if asked.request_response_information and config.response_information:
                grants.response_information = config.response_information.replace("%c", channel.client_id)
        self.reporting.grant(channel, packet, grants)
        introduce(packet, grants, self.core.broker_id)
        channel.max_in = config.max_packet_size
        channel.max_unseen = min(channel.max_in, config.max_payload_size or channel.max_in)
        return grants

    def send(self, channel: Channel, present: bool, grants: Properties) -> bool:
        """False if it is too large for the client, even without what the client can do without."""
        connack = Connack(present, SUCCESS, grants if channel.version == V5 else None)
        if self.core.send(channel, connack):
            return True
        return self.reporting.withdraw(channel, grants) and self.core.send(channel, connack) > 0
