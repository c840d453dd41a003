"""Clients whose sessions end, whose wills are due, or who only look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headwater.wire.packets import (
    V5,
    V311,
    Packet,
    Properties,
    Publish,
    Suback,
    Subscribe,
    SubscribeRequest,
    Will,
)
from headwater_lab.chaos.client import Client
from headwater_lab.chaos.history import HEAD, Asked, Note, Shown, mark, message_in, payload_of
from headwater_lab.chaos.sessions import SLACK
from headwater_lab.chaos.subscriber import Subscriber

if TYPE_CHECKING:
    from headwater_lab.chaos.world import World

DELAY: Final = 30
"""Seconds of a will's delay, within which its client is back."""


class Forgetter(Subscriber):
    """Forgets its half of a session that has ended: if the broker is killed before it can answer the next CONNECT, the
    session of the CONNACK after that is another one."""

    def connect(self) -> None:
        self.forgot = self.has_ended()
        if self.forgot:
            self.open.clear()
            self.subscribed.clear()
        super().connect()

    def has_ended(self) -> bool:
        raise NotImplementedError


class Restarter(Forgetter):
    """Often asks for a clean start; then nothing of its old session may come back."""

    began_clean = False

    def connect(self) -> None:
        self.clean = not self.calm and self.random.random() < 0.4
        super().connect()
        if self.connection is not None:  # else no CONNECT was sent, and all is as it was
            self.began_clean = self.clean

    def has_ended(self) -> bool:
        return self.began_clean and self.version == V311  # with its connection


class Expirer(Forgetter):
    """Its session lasts longer than most lives of the broker: it is back in time, or much too late."""

    last_seen = 0.0

    def has_ended(self) -> bool:
        assert self.expiry is not None
        return self.world.now > self.last_seen + self.expiry + 2 * SLACK

    def turn(self, now: float) -> None:
        if self.ready:
            self.last_seen = now
        super().turn(now)

    def absence(self, away: float) -> float:
        return away if self.calm else self.random.choice((away, 0.3, 6.0))


class Testator(Client):
    """Leaves a will with each connection: one that is due at its end, or that a DISCONNECT calls off, or its return."""

    def __init__(self, world: World, name: str, version: int, topic: str, expiry: int, delay: int = 0) -> None:
        super().__init__(world, name, version, expiry)
        self.topic = topic
        self.delay = delay
        self.clean = version == V311

    def absence(self, away: float) -> float:
        """A short delay is sometimes over before it is back."""
        late = 0 < self.delay < DELAY and not self.calm and self.random.random() < 0.4
        return self.delay + 3 * SLACK if late else away

    def new_will(self) -> Will:
        history = self.world.history
        qos = self.random.choice((1, 2))
        marked = self.version == V5
        note = Note(history.next_message(), self.name, self.topic, qos, will=True, delay=self.delay, marked=marked)
        history.note(note)
        self.will = note.message
        properties: Properties | None = None
        if marked:
            properties = mark(note)
            properties.will_delay_interval = self.delay
        return Will(self.topic, payload_of(note.message, HEAD), qos, False, properties)

    def act(self, now: float) -> None:
        if self.calm or self.random.random() > 0.004:
            return
        away = self.random.uniform(0, 0.1)
        luck = self.random.random()
        if luck < 0.4:
            self.cut(away)
        else:
            self.leave(away, with_will=self.version == V5 and luck < 0.6)


class Prober(Client):
    """Asks a broker for its retained messages, once in a while, and goes."""

    def __init__(self, world: World, name: str, version: int, topic_filter: str) -> None:
        super().__init__(world, name, version, 0)
        self.clean = True
        self.filter = topic_filter
        self.found: dict[str, int] = {}
        self.asked: int | None = None
        self.looks = 0

    def connected(self, present: bool) -> None:
        self.found = {}
        self.pongs = 0
        self.asked = self.world.history.add(Asked(self.world.now, self.name, self.filter))
        self.send(Subscribe(1, [SubscribeRequest(self.filter)]))

    def packet(self, packet: Packet) -> None:
        if isinstance(packet, Suback):
            self.ping()  # its answer comes behind the retained messages
        elif isinstance(packet, Publish):
            if packet.retain:
                self.found[packet.topic] = message_in(packet.payload)
        else:
            self.odd(f"got {packet!r:.80}")

    def act(self, now: float) -> None:
        if self.pongs and self.asked is not None:
            self.note(Shown(self.world.now, self.name, self.filter, self.asked, self.found))
            self.asked = None
            self.pongs = 0
            self.looks += 1
            if not self.calm:
                self.leave(self.random.choice((0.0, 0.1)))

    def look_again(self) -> None:
        self.looks = 0
        self.cut(0.0)

    def finished(self) -> bool:
        return super().finished() and self.looks > 0
