"""Packets of the hot path on their way into the delivery store, before anybody else gets them."""

from __future__ import annotations

from headwater.node.channel import Channel
from headwater.node.collecting import Collecting
from headwater.node.known_properties import KnownProperties
from headwater.node.stats import Stats
from headwater.session.waiting import Budget


class Taking(Collecting):
    def __init__(self, stats: Stats, budget: Budget) -> None:
        super().__init__(stats, budget)
        self.properties = KnownProperties()
        self.no_room = False
        """The disk has too little room: who publishes is not read from until it has."""

    def take0(
        self, channel: Channel, topic: bytes, data: bytes, pos: int, end: int, size: int, te: int, body: int
    ) -> int:
        """QoS 0 packets, all of the same form: of each `size` bytes, the first with its properties at `te` and its
        payload at `body`. Returns the position of the first; the others follow."""
        coordinator = self.coordinator
        assert coordinator is not None
        intake = coordinator.intake
        position = intake.next
        arrival = coordinator.arrival(self.now)
        properties = self.properties.description(data[te:body]) if body > te + 1 else b""
        publisher = channel.client_id
        body -= pos
        while pos < end:
            intake.take(topic, data[pos + body : pos + size], 0, publisher, arrival, properties)
            pos += size
        self.changed = True
        return position

    def take1(self, channel: Channel, topic: bytes, payload: bytes, props: bytes) -> int:
        """A QoS 1 packet; its position. Its publisher has to be promised that it is on disk."""
        coordinator = self.coordinator
        assert coordinator is not None
        properties = self.properties.description(props) if len(props) > 1 else b""
        return coordinator.intake.take(topic, payload, 1, channel.client_id, coordinator.arrival(self.now), properties)

    def look_at_store(self, channel: Channel, position: int) -> None:
        """The next position was this one before the packets of the channel were dealt with."""
        coordinator = self.coordinator
        if coordinator is not None and coordinator.intake.next != position and coordinator.too_much:
            self.slow.outruns_store(channel)
