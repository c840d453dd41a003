"""Nothing is left over and nothing is missing, whatever clients do.

Random devices use most of the protocol: sessions that are kept and that are not, begun anew, taken over, expired;
narrow windows, small packets, slow sockets; subscriptions that come and go with any QoS; groups whose members do;
wills; bounds that are reached; power cuts. Two things have to hold:

- whenever the disk is at rest, a broker that starts from it is in the state of the one that runs;
- when all is quiet and acknowledged, the disk has sessions, subscriptions, groups and retained messages and nothing
  else, no byte is counted as waiting, and when the sessions have ended too only retained messages are left.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.message import Delivery, Message, Subscription
from headwater.node.config import Config
from headwater.node.persistence.records import GROUP, RETAINED, SESSION, SUBSCRIPTION
from headwater.routing.shared import DISPATCHERS, Group
from headwater.session.connection import CLOSING
from headwater.session.journaled import AWAY, DurableDelivery
from headwater.session.outbound import Flight
from headwater.session.session import Session
from headwater.wire.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Properties,
    Publish,
    Pubrec,
    Subscribe,
    SubscribeRequest,
    Unsubscribe,
    Will,
)
from headwater.wire.reasons import ADMINISTRATIVE_ACTION
from tests.node.memory import Client
from tests.node.persistence.durable import Device, DurableBroker

TOPICS = ["t/a", "t/b", "x"]
FILTERS = ["t/#", "t/a", "+/b", "#", "x", "$share/g/t/#", "$share/g/x", "$share/h/#"]
LONG = 100_000


class Actor(Device):
    """A correct client that does not always want the same."""

    def __init__(self, client_id: str, version: int, chance: random.Random) -> None:
        super().__init__(client_id, version)
        self.chance = chance
        self.passing = client_id in ("4", "5")
        """Its sessions end with their connections."""

    @property
    def online(self) -> bool:
        """The broker does not look any more at what comes from a connection that it ended."""
        return self.client is not None and self.client.channel.fd >= 0 and self.client.channel.state != CLOSING

    def join(self, broker: DurableBroker, *, generous: bool = False, clean: bool = False, expiry: int = LONG) -> None:
        """Connect somehow; `generous`: whatever comes is taken."""
        chance = self.chance
        if self.passing:
            expiry = 0
        self.client = Client(broker)
        self.client.version = self.version
        properties = None
        will = None
        if not generous and not self.passing and chance.random() < 0.3 and self.version == 5:
            delay = Properties(will_delay_interval=50)
            will = Will("t/a", b"will", chance.randint(0, 2), chance.random() < 0.2, delay)
        if self.version == 5:
            properties = Properties(session_expiry_interval=expiry)
            if not generous:
                properties.receive_maximum = chance.choice([None, 1, 3])
                properties.maximum_packet_size = chance.choice([None, None, 200])
                properties.topic_alias_maximum = chance.choice([None, None, 1])
        self.client.send(Connect(self.client_id, self.version, clean_start=clean, properties=properties, will=will))
        self.to_answer = []
        self.welcome = False

    def _take(self, packet: Packet) -> None:
        if isinstance(packet, Connack) and not packet.session_present:
            self.publishing.clear()
            self.open_ids.clear()
            self.has_session = False
        super()._take(packet)

    def publish_some(self) -> None:
        chance = self.chance
        if not self.online or not self.welcome or len(self.publishing) > 10:
            return
        payload = chance.choice([b"", b"small", bytes(300), bytes(5000)])
        qos = chance.randint(0, 2)
        packet_id = min(set(range(1, len(self.publishing) + 2)) - set(self.publishing)) if qos else 0
        packet = Publish(chance.choice(TOPICS), payload, qos, chance.random() < 0.2, False, packet_id)
        if self.version == 5 and chance.random() < 0.1:
            packet.properties = Properties(message_expiry_interval=5, user_properties=[("a", "b")])
        if qos:
            self.publishing[packet_id] = packet
        self.send(packet)

    def subscribe_some(self) -> None:
        if not self.online or not self.welcome:
            return
        chance = self.chance
        v5 = self.version == 5
        name = chance.choice(FILTERS)
        handling = chance.randint(0, 2) if v5 else 0
        requests = [SubscribeRequest(name, chance.randint(0, 2), retain_handling=handling)]
        identified = v5 and chance.random() < 0.3
        self.send(Subscribe(1, requests, Properties(subscription_identifiers=[7]) if identified else None))

    def refuse_some(self) -> None:
        """A PUBREC with an error instead of the one that is due."""
        for number, packet in enumerate(self.to_answer):
            if isinstance(packet, Pubrec) and self.version == 5:
                self.to_answer[number] = Pubrec(packet.packet_id, 0x80)
                self.open_ids.discard(packet.packet_id)
                return

    def leave(self) -> None:
        draw = self.chance.random()
        properties = Properties(session_expiry_interval=0) if self.version == 5 and draw < 0.1 else None
        reason = 4 if self.version == 5 and draw > 0.8 else 0
        if self.welcome:
            self.send(Disconnect(reason, properties))


class World:
    def __init__(self, seed: int, config: Config) -> None:
        self.chance = random.Random(seed)
        self.hot = seed % 4 > 0  # some go the ordinary way only
        self.broker = DurableBroker(config=config)
        self.broker.server.hot.enabled = self.hot
        self.actors = [Actor(f"{number}", 4 if number % 3 == 0 else 5, self.chance) for number in range(6)]
        self.comparisons = 0
        for actor in self.actors:
            actor.join(self.broker)
        self.broker.settle()
        for actor in self.actors:
            actor.read()
            actor.subscribe_some()

    def happen(self) -> None:
        draw = self.chance.random()
        actor = self.chance.choice(self.actors)
        if draw < 0.35:
            actor.publish_some()
        elif draw < 0.42:
            actor.subscribe_some()
        elif draw < 0.44:
            if actor.online and actor.welcome:
                actor.send(Unsubscribe(1, [self.chance.choice(FILTERS)]))
        elif draw < 0.56:
            self.broker.step()
        elif draw < 0.62:
            actor.read()
        elif draw < 0.80:
            actor.read()
            if self.chance.random() < 0.1:
                actor.refuse_some()
            actor.answer(self.chance.randint(1, 3))
        elif draw < 0.89:
            self._come_or_go(actor)
        elif draw < 0.92:
            self._socket(actor)
        elif draw < 0.94:
            self._operate(actor)
        elif draw < 0.985:
            self.compare()
        else:
            self.crash()

    def _come_or_go(self, actor: Actor) -> None:
        draw = self.chance.random()
        if not actor.online or draw < 0.1:  # or is taken over
            clean = self.chance.random() < 0.05
            actor.join(self.broker, clean=clean, expiry=self.chance.choice([0, 20] + [LONG] * 8))
        elif draw < 0.6 and actor.client is not None:
            actor.client.lose()
        else:
            actor.leave()

    def _socket(self, actor: Actor) -> None:
        if actor.client is not None and actor.online:
            if self.chance.random() < 0.5:
                actor.client.socket.room = self.chance.choice([0, 10, 1000])
            else:
                actor.client.unblock()

    def _operate(self, actor: Actor) -> None:
        """What those who run the broker do."""
        server = self.broker.server
        draw = self.chance.random()
        session = server.sessions.get(actor.client_id)
        if draw < 0.3:
            self.broker.later(self.chance.choice([1, 10]))
        elif draw < 0.5:
            message = Message(self.chance.choice(TOPICS), b"ours", self.chance.randint(0, 2))
            server.publishing.route(message, None)
        elif draw < 0.7:
            server.sharing.use_dispatcher("$share/#", self.chance.choice(list(DISPATCHERS)))
        elif session is not None and session.connection is not None:
            if draw > 0.95:
                session.expiry_interval = 0
            server.disconnect_soon(session.connection, ADMINISTRATIVE_ACTION)  # type: ignore[arg-type]
        elif session is not None and draw > 0.95:
            server.ending.remove(session)
        self.broker.turn()

    def crash(self) -> None:
        self.broker = self.broker.crash(self.chance.choice([0, 1, None]))
        self.broker.server.hot.enabled = self.hot
        for actor in self.actors:
            actor.read()
            actor.client = None
            if self.chance.random() < 0.7:
                actor.join(self.broker)

    def compare(self) -> None:
        """What a start would find is what is there, unless some end with their connections, and so with the process."""
        self.broker.settle()
        sessions = self.broker.server.sessions.values()
        if any(session.number and not session.expiry_interval for session in sessions):
            return
        if any(each.journaled for session in sessions if not session.durable for each in _given(session)):
            return  # what passing members of groups have would be the groups' again
        self.comparisons += 1
        assert state(self.broker) == state(self.broker.crash(None))

    def quiet(self) -> None:
        """All come, read and acknowledge, until nothing happens any more."""
        for actor in self.actors:
            actor.read()
            actor.join(self.broker, generous=True)  # taking over, perhaps
        for _ in range(300):
            self.broker.later(0.5)  # publishers that wait for memory are looked at again, and cut off in the end
            self.broker.settle()
            for actor in self.actors:
                if not actor.online:  # cut off, because too much waited
                    actor.read()
                    actor.join(self.broker, generous=True)
                assert actor.client is not None
                actor.client.unblock()
                actor.read()
                actor.answer()
            if not self.broker.committer.batch and not any(
                actor.to_answer or actor.publishing or actor.unread for actor in self.actors
            ):
                break
        else:
            raise AssertionError("no end")
        self.broker.later(2)  # connections that have ended and read nothing are closed
        self.compare()

    def end(self) -> None:
        """All sessions end."""
        for actor in self.actors:
            actor.join(self.broker, generous=True, clean=True, expiry=0)
            self.broker.settle()
            if actor.client is not None:
                actor.client.lose()
        self.broker.later(LONG)
        self.broker.settle()

    def kinds(self) -> set[bytes]:
        return {key[:1] for key, _ in self.broker.backend.scan(b"")}

    def check_quiet(self) -> None:
        server = self.broker.server
        assert self.kinds() <= {SESSION, SUBSCRIPTION, GROUP, RETAINED}
        assert server.budget.used == 0
        assert server.hot.withholding == []
        assert server.stats.failures + server.timers.failures == 0
        assert server.stats.protocol_errors == 0
        assert not any(each.waiting() for each in server.sharing.queues.values())
        assert server.budget.messages == sum(each.outbound.waiting() for each in server.sessions.values())
        for session in server.sessions.values():
            assert not session.outbound.flights and not session.outbound.waiting() and not session.received
            assert session.outbound.queued_bytes == 0

    def check_end(self) -> None:
        assert self.kinds() <= {RETAINED}
        assert self.broker.journal._queues == {}
        assert self.broker.server.sessions == {}
        assert self.broker.server.budget.used == 0
        assert self.broker.server.sharing.queues == {}


def state(broker: DurableBroker) -> dict[str, Any]:
    """All that has to outlive the process."""
    server = broker.server
    kept = {session.client_id: session for session in server.sessions.values() if session.durable}
    groups = [group for group in server.router.groups.all() if _is_kept(group)]
    return {
        "sessions": {name: _session(broker, session) for name, session in kept.items()},
        "groups": {group.name: _waiting(broker, server.sharing.queues.get(group)) for group in groups},
        "retained": {message.topic: _message(message) for message in server.router.retained.match("#", 0.0)},
    }


def _session(broker: DurableBroker, session: Session) -> dict[str, Any]:
    outbound = session.outbound
    will = session.will
    return {
        "expiry": session.expiry_interval,
        "subscriptions": {name: _subscription(each) for name, each in session.subscriptions.items()},
        "received": session.received,
        "flights": {packet_id: _flight(broker, session, each) for packet_id, each in outbound.flights.items()},
        "order": list(outbound.flights),
        "waiting": _waiting(broker, outbound),
        "will": None if will is None else (_message(will), session.will_delay, session.will_expiry),
    }


def _given(session: Session) -> list[Flight | Delivery]:
    return [*session.outbound.flights.values(), *(session.outbound.queue or ())]


def _subscription(each: Subscription) -> tuple[Any, ...]:
    return (each.name, each.qos, each.no_local, each.retain_as_published, each.retain_handling, each.identifier)


def _flight(broker: DurableBroker, session: Session, flight: Flight) -> tuple[Any, ...]:
    if flight.released:
        return (flight.qos, "released", _group(broker, flight.group))
    delivery = flight.delivery
    if delivery is None:
        delivery = session.flight_delivery(
            Flight(flight.qos, None, flight.head, flight.tail, flight.version, flight.size)
        )
        delivery.group = flight.group
    kept = flight.journaled
    assert kept is not None
    return _delivery(broker, delivery, kept)


def _waiting(broker: DurableBroker, queue: Any) -> list[tuple[Any, ...]]:
    deliveries = () if queue is None or queue.queue is None else queue.queue
    return [_delivery(broker, each, each.journaled) for each in deliveries if each.qos and each.journaled is not None]


def _delivery(broker: DurableBroker, delivery: Delivery, kept: DurableDelivery) -> tuple[Any, ...]:
    message = broker.journal.message_of(kept.journaled) if delivery.message is AWAY else delivery.message
    return (*_message(message), delivery.qos, delivery.retain, delivery.identifiers, _group(broker, delivery.group))


def _group(broker: DurableBroker, group: object) -> str | None:
    """The group of this name that goes on, perhaps after all had left it and others came."""
    found = broker.server.router.groups.get(group.share, group.filter) if isinstance(group, Group) else None
    return found.name if found is not None and _is_kept(found) else None


def _is_kept(group: Group) -> bool:
    return any(isinstance(member.key, Session) and member.key.durable for member in group.members())


def _message(message: Message) -> tuple[Any, ...]:
    return (message.topic, message.payload, message.qos, message.user_properties)


def run(seed: int, steps: int, config: Config) -> World:
    world = World(seed, config)
    for _ in range(steps):
        world.happen()
    world.quiet()
    world.check_quiet()
    world.end()
    world.check_end()
    return world


CONFIGS: dict[str, dict[str, Any]] = {
    "ordinary": {},
    "away": {"queue_memory": 0, "max_inflight": 2},
    "separate": {"overlapping": "separate", "max_inflight": 3},
    "oldest": {"max_queued_messages": 3, "queue_full": "drop_oldest", "max_inflight": 1},
    "newest": {"max_queued_messages": 3, "queue_full": "drop_newest", "max_inflight": 1, "queue_memory": 0},
    "disconnect": {"max_queued_messages": 3, "queue_full": "disconnect", "max_inflight": 1},
    "little": {"max_queue_memory": 30_000, "queue_full": "drop_oldest", "queue_memory": 0, "outbound_buffer": 4096},
    "terse": {"terse": True, "shared_dispatcher": "hash_topic", "max_inflight": 2},
}


@pytest.mark.parametrize("name", CONFIGS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1 << 30), steps=st.integers(50, 600))
def test_nothing_is_left_over(name: str, seed: int, steps: int) -> None:
    run(seed, steps, Config(sys_interval=0, **CONFIGS[name]))


def test_states_were_compared() -> None:
    assert run(1, 1000, Config(sys_interval=0)).comparisons > 5
