"""Clients that subscribe: the receiver's half of QoS 1 and 2, kept over reconnects; some come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headwater.message import POSITION_PROPERTY
from headwater.wire.packets import (
    V5,
    Packet,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
)
from headwater_lab.chaos.client import Client
from headwater_lab.chaos.history import (
    Received,
    Subscribed,
    Subscribing,
    Unsubscribed,
    Unsubscribing,
    is_marked,
    message_in,
)

if TYPE_CHECKING:
    from headwater_lab.chaos.world import World

REFUSED: Final = 0x80
DO_NOT_SEND_RETAINED: Final = 2


class Subscriber(Client):
    """`lives_away` is how many of the broker's lives it may miss at a time, `window` its Receive Maximum (5.0)."""

    def __init__(
        self,
        world: World,
        name: str,
        version: int,
        filters: dict[str, int],
        *,
        expiry: int | None = None,
        window: int | None = None,
        lives_away: int = 0,
    ) -> None:
        super().__init__(world, name, version, expiry)
        self.filters = filters
        self.window = window
        self.lives_away = lives_away
        self.back_in = 0
        self.subscribed: set[str] = set()
        self.asked: dict[int, str] = {}
        """Filters of SUBSCRIBE and UNSUBSCRIBE that wait for an answer, by packet id."""
        self.open: dict[int, int] = {}
        """Messages of QoS 2 deliveries that are not released, by packet id [MQTT-4.3.3-10]."""
        self.unanswered: list[int] = []
        """Packet ids that count against the window."""
        self.laziness = 0.0
        self.next_id = 1
        self.identifier = self.random.choice((None, 1, 300)) if version == V5 else None
        self.in_group = any(topic_filter.startswith("$share/") for topic_filter in filters)
        self.asks_for_positions = world.stored and version == V5 and not name.endswith("3")

    # ---- connections -------------------------------------------------------------------------------------------

    def connect_properties(self) -> Properties:
        properties = super().connect_properties()
        properties.receive_maximum = self.window
        return properties

    def connect(self) -> None:
        if self.back_in <= self.world.life or self.calm:
            super().connect()
            if self.clean and self.connection is not None:
                self.open.clear()
                self.subscribed.clear()

    def connected(self, present: bool) -> None:
        self.asked.clear()
        self.unanswered.clear()
        self.laziness = self.random.choice((0.0, 0.001, 0.05, 10.0))
        if not present:
            self.open.clear()
            self.subscribed.clear()
        for topic_filter in self.filters:
            if topic_filter not in self.subscribed:
                self.subscribe(topic_filter)

    def finished(self) -> bool:
        return super().finished() and not self.asked and not self.open

    def state(self) -> str:
        return f"{super().state()}, asked: {self.asked}, not released: {self.open}"

    def act(self, now: float) -> None:
        if not self.calm and self.random.random() < 0.001:
            if self.lives_away and self.random.random() < 0.3:
                self.back_in = self.world.life + self.random.randint(1, self.lives_away)
            self.go()

    # ---- subscriptions -----------------------------------------------------------------------------------------

    def _take_id(self) -> int:
        self.next_id = self.next_id % 65535 + 1
        return self.next_id

    def subscribe(self, topic_filter: str) -> None:
        qos = self.filters[topic_filter]
        packet_id = self._take_id()
        self.asked[packet_id] = topic_filter
        self.note(Subscribing(self.world.now, self.name, topic_filter, qos))
        handling = DO_NOT_SEND_RETAINED if self.version == V5 else 0
        request = SubscribeRequest(topic_filter, qos, retain_handling=handling)
        properties = Properties() if self.version == V5 else None
        if properties is not None and self.identifier is not None:
            properties.subscription_identifiers = [self.identifier]
        if properties is not None and self.asks_for_positions:
            properties.user_properties = [(POSITION_PROPERTY, "yes")]
        self.send(Subscribe(packet_id, [request], properties))

    def unsubscribe(self, topic_filter: str) -> None:
        packet_id = self._take_id()
        self.asked[packet_id] = topic_filter
        self.note(Unsubscribing(self.world.now, self.name, topic_filter))
        self.send(Unsubscribe(packet_id, [topic_filter]))

    def _answered(self, packet: Suback | Unsuback) -> None:
        topic_filter = self.asked.pop(packet.packet_id, None)
        if topic_filter is None:
            self.odd(f"got {packet!r:.80} for something that it has not asked for")
        elif isinstance(packet, Suback):
            if packet.reasons != [self.filters[topic_filter]]:
                self.odd(f"was granted {packet.reasons} for {topic_filter}")
            self.subscribed.add(topic_filter)
            self.note(Subscribed(self.world.now, self.name, topic_filter))
        else:
            if packet.reasons and packet.reasons[0] >= REFUSED:
                self.odd(f"may not unsubscribe from {topic_filter}")
            self.subscribed.discard(topic_filter)
            self.note(Unsubscribed(self.world.now, self.name, topic_filter))

    # ---- messages ----------------------------------------------------------------------------------------------

    def packet(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self._received(packet)
        elif isinstance(packet, Pubrel):
            self.open.pop(packet.packet_id, None)
            self.answer(Pubcomp(packet.packet_id))
        elif isinstance(packet, Suback | Unsuback):
            self._answered(packet)
        else:
            self.odd(f"got {packet!r:.80}")

    def _received(self, packet: Publish) -> None:
        message = message_in(packet.payload)
        packet_id = packet.packet_id
        fresh = packet.qos < 2 or packet_id not in self.open
        if packet.qos == 2 and self.open.setdefault(packet_id, message) != message:
            self.odd(f"got message {message} with packet id {packet_id}, which message {self.open[packet_id]} has")
        properties = packet.properties or Properties()
        position = self._take_position(message, properties)
        if self.version == V5:
            self._check_properties(message, properties)
        self.note(
            Received(
                self.world.now,
                self.name,
                message,
                packet.topic,
                packet.qos,
                packet.dup,
                packet.retain,
                fresh,
                properties.message_expiry_interval,
                position,
            )
        )
        if packet.qos:
            self._count(packet_id)
            self.answer(Puback(packet_id) if packet.qos == 1 else Pubrec(packet_id))

    def _take_position(self, message: int, properties: Properties) -> int:
        """Out of the properties; all who asked have one. But a message that went to a member of a group that does not
        ask is kept without one, and may go to a member that asks after a restart."""
        pairs = properties.user_properties or []
        positions = [value for name, value in pairs if name == POSITION_PROPERTY]
        if positions:
            properties.user_properties = [pair for pair in pairs if pair[0] != POSITION_PROPERTY] or None
        if len(positions) != self.asks_for_positions and (positions or not self.in_group):
            self.odd(f"got message {message} with positions {positions}")
        return int(positions[0].rpartition(":")[2]) if positions else 0

    def _check_properties(self, message: int, properties: Properties) -> None:
        note = self.world.history.notes.get(message)
        if note is not None and note.marked and not is_marked(note, properties):
            self.odd(f"got message {message} with other properties: {properties!r}")
        if properties.subscription_identifiers != (None if self.identifier is None else [self.identifier]):
            self.odd(f"got identifiers {properties.subscription_identifiers}, and subscribed with {self.identifier}")

    def _count(self, packet_id: int) -> None:
        if packet_id in self.unanswered:
            self.odd(f"got packet id {packet_id} again before it was acknowledged")
        self.unanswered.append(packet_id)
        if self.window is not None and self.version == V5 and len(self.unanswered) > self.window:
            self.odd(f"got {len(self.unanswered)} messages at a time, and takes {self.window}")  # [MQTT-3.3.4-9]

    def answer(self, packet: Puback | Pubrec | Pubcomp) -> None:
        """Acknowledge now or later, in the order in which it came [MQTT-4.6.0-2]."""
        delay = self.random.uniform(0, self.laziness)
        last = self.later[-1][0] if self.later else 0.0
        self.later.append((max(last, self.world.now + delay), packet))

    def send(self, packet: Packet) -> None:
        super().send(packet)
        if isinstance(packet, Puback | Pubcomp) and packet.packet_id in self.unanswered:
            self.unanswered.remove(packet.packet_id)


class Churner(Subscriber):
    """Subscribes and unsubscribes all the time, one after the other."""

    def __init__(self, world: World, name: str, version: int, filters: dict[str, int]) -> None:
        super().__init__(world, name, version, filters)
        self.filters = {}
        self.pool = filters
        self.leaving: str | None = None

    def connected(self, present: bool) -> None:
        super().connected(present)
        if self.leaving is not None and present:
            self.unsubscribe(self.leaving)
        self.leaving = None

    def act(self, now: float) -> None:
        super().act(now)
        if self.calm or self.asked or not self.ready or self.random.random() > 0.05:
            return
        topic_filter = self.random.choice(list(self.pool))
        if topic_filter in self.filters:
            del self.filters[topic_filter]
            self.leaving = topic_filter
            self.unsubscribe(topic_filter)
        else:
            self.leaving = None
            self.filters[topic_filter] = self.pool[topic_filter]
            self.subscribe(topic_filter)
