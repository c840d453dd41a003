"""Connections that nobody has authenticated yet: how many there are, and what they have had us keep.

Theory. Anybody can open a socket and send half a CONNECT, so what is kept for strangers has a bound of its own
(`max_unauthenticated_memory`) and takes nothing from what clients have (`max_queue_memory`). It counts the connection
itself (`Entrance.weight`: TLS takes much before anything is known), what has come of a packet, and a CONNECT that is
being decided on. Where a bound is reached, of sockets, number, address or memory, the stranger that has been one for
longest gives way. So a crowd that says nothing keeps nobody out: a client is a stranger for a few milliseconds, and to
be the longest one it would have to be overtaken by as many as the bound allows.

What a proxy tells of its client's address is believed as soon as it is there (`moved`).
"""

from __future__ import annotations

import logging
from collections import OrderedDict

from headwater.message import OVERHEAD, PAIR_OVERHEAD, text_size
from headwater.node.access.limits import host_of
from headwater.node.bridge.inside import Inside
from headwater.node.plane.channel import Channel
from headwater.node.protocol.core import Core
from headwater.web.addresses import network_of
from headwater.wire.packets import Connect, Properties

log = logging.getLogger("headwater.server")

Crowd = OrderedDict[Channel, None]
"""The oldest first."""


class Strangers:
    def __init__(self, core: Core) -> None:
        self.core = core
        self.used = 0
        """Bytes: the sum of `Channel.charge`."""
        self.everybody: Crowd = OrderedDict()
        self.by_address: dict[str, Crowd] = {}
        self.cut_off = 0
        """How many gave way to newer ones."""

    def came(self, channel: Channel) -> None:
        """A socket was accepted."""
        entrance = channel.entrance
        if isinstance(entrance, Inside):
            channel.known = True
            return
        config = self.core.config
        if len(self.everybody) >= config.max_unauthenticated:
            self._cut_off(next(iter(self.everybody)), "max_unauthenticated")
        self.everybody[channel] = None
        if entrance is None or not entrance.behind_proxy:
            self.moved(channel)
        self.keeps(channel, OVERHEAD * 8 + (0 if entrance is None else entrance.weight))

    def give_way(self) -> bool:
        """There are as many sockets as there may be, and another one comes. False: all of them are clients."""
        oldest = next(iter(self.everybody), None)
        if oldest is not None:
            self._cut_off(oldest, "the bound of sockets")
        return oldest is not None

    def moved(self, channel: Channel) -> None:
        """Where it comes from is known."""
        if channel not in self.everybody or channel.address.startswith("unix:"):
            return
        address = network_of(host_of(channel.address))
        crowd = self.by_address.setdefault(address, OrderedDict())
        if len(crowd) >= self.core.config.max_unauthenticated_per_address:
            self._cut_off(next(iter(crowd)), "max_unauthenticated_per_address")
            crowd = self.by_address.setdefault(address, crowd)
        crowd[channel] = None
        channel.crowd = address

    def keeps(self, channel: Channel, size: int) -> bool:
        """So many bytes more (or fewer) are kept for it. False: there is no room, not even if all older ones go; it
        has been cut off."""
        if channel.known:
            return True
        self.used += size
        channel.charge += size
        while size > 0 and self.used > self.core.config.max_unauthenticated_memory:
            oldest = next(iter(self.everybody), channel)
            self._cut_off(oldest, "max_unauthenticated_memory")
            if oldest is channel:
                return False
        return True

    def left(self, channel: Channel) -> None:
        """It is a client now, or gone."""
        if channel.known:
            return
        channel.known = True
        self.used -= channel.charge
        channel.charge = 0
        channel.counted = 0
        self.everybody.pop(channel, None)
        crowd = self.by_address.get(channel.crowd)
        if crowd is not None:
            crowd.pop(channel, None)
            if not crowd:
                del self.by_address[channel.crowd]

    def _cut_off(self, channel: Channel, why: str) -> None:
        log.info("%s is cut off: %s is reached, and it has not connected", channel.address, why)
        self.cut_off += 1
        self.core.lost(channel)
        self.left(channel)


def connect_size(packet: Connect) -> int:
    """Bytes that a CONNECT takes while it is decided on."""
    size = OVERHEAD + text_size(packet.client_id) + text_size(packet.username or "") + len(packet.password or b"")
    size += _properties_size(packet.properties)
    will = packet.will
    if will is not None:
        size += OVERHEAD + text_size(will.topic) + len(will.payload) + _properties_size(will.properties)
    return size


def _properties_size(properties: Properties | None) -> int:
    if properties is None:
        return 0
    size = OVERHEAD
    for name, value in properties.user_properties or ():
        size += text_size(name) + text_size(value) + PAIR_OVERHEAD
    for data in (properties.authentication_data, properties.correlation_data):
        size += len(data or b"")
    for text in (properties.authentication_method, properties.response_topic, properties.content_type):
        size += text_size(text or "")
    return size
