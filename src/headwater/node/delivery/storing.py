"""The delivery store as a destination: it takes messages before anybody else gets them, and gives them positions."""

from __future__ import annotations

from headwater.message import Message, Subscription
from headwater.node.delivery.coordinator import Coordinator
from headwater.node.delivery.known_properties import KnownProperties
from headwater.node.delivery.properties import optional_columns
from headwater.node.destinations.destination import Run, Scope, StoreDestination
from headwater.node.persistence.journal import Journal
from headwater.node.plane.sending import Sending
from headwater.node.plane.turn import Turn
from headwater.session.session import Session
from headwater.store.intake import RETAIN


class Storing(StoreDestination):
    def __init__(self, turn: Turn, journal: Journal, coordinator: Coordinator, properties: KnownProperties) -> None:
        self.turn = turn
        self.journal = journal
        self.coordinator = coordinator
        self.properties = properties
        self.scope: Scope | None = None
        """None: all topics that are stored are stored here."""
        self.counts = False
        self.reaches_clients = False

    def within(self, scope: Scope) -> Storing:
        """The same store, for these topics alone."""
        found = Storing(self.turn, self.journal, self.coordinator, self.properties)
        found.scope = scope
        return found

    def stores(self, topic: str) -> bool:
        scope = self.scope
        return (scope is None or scope.has(topic)) and self.coordinator.stores(topic)

    def room_for(self, topic: bytes) -> bool:
        return self.coordinator.room_for(topic)

    def has_taken(self, topic: bytes) -> bool:
        return self.coordinator.has_taken(topic)

    def take0(self, run: Run) -> None:
        coordinator = self.coordinator
        intake = coordinator.intake
        run.commit = self.journal.sequence
        run.position = intake.next
        arrival = coordinator.arrival(self.turn.now)
        block = run.data[run.topic_end : run.body]
        optional = self.properties.optional_columns(block) if len(block) > 1 else None
        publisher = run.publisher
        topic = run.topic
        data = run.data
        size = run.size
        pos = run.start
        body = run.body - pos
        end = run.end
        while pos < end:
            intake.take(topic, data[pos + body : pos + size], 0, publisher, arrival, optional)
            pos += size
        self.turn.changed = True

    def take1(self, run: Run) -> None:
        """Its publisher has to be promised that it is on disk."""
        coordinator = self.coordinator
        block = run.tail[: run.properties]
        optional = self.properties.optional_columns(block) if len(block) > 1 else None
        run.commit = self.journal.sequence
        run.position = coordinator.intake.take(
            run.topic, run.tail[run.properties :], 1, run.publisher, coordinator.arrival(self.turn.now), optional
        )

    def deliver(self, message: Message, publisher: Session | None) -> None:
        coordinator = self.coordinator
        now = self.turn.now
        message.position = coordinator.intake.take(
            message.topic.encode(),
            message.payload,
            message.qos | RETAIN if message.retain else message.qos,
            message.publisher,
            coordinator.arrival(now),
            optional_columns(message, now),
        )
        message.commit = self.journal.sequence
        self.turn.changed = True


class ConditionalStoring(Storing):
    """Stores what meets a condition; what does not has neither position nor commit."""

    def __init__(
        self,
        sending: Sending,
        journal: Journal,
        coordinator: Coordinator,
        properties: KnownProperties,
        condition: Subscription,
    ) -> None:
        """`condition`: whose condition it is, with what it remembers; it is adopted already."""
        super().__init__(sending, journal, coordinator, properties)
        self.one_by_one = True
        self.sending = sending
        self.condition = condition

    def _holds(self, message: Message) -> bool:
        return self.sending.conditions.passes(self.condition, message, self.sending.now)

    def take0(self, run: Run) -> None:
        if self._holds(self.sending.message0(run)):
            super().take0(run)

    def take1(self, run: Run) -> None:
        run.commit = 0  # of the packet before
        run.position = 0
        if self._holds(self.sending.message1(run)):
            super().take1(run)

    def deliver(self, message: Message, publisher: Session | None) -> None:
        if self._holds(message):
            super().deliver(message, publisher)
