"""Whatever members do, a shared group loses nothing that it promised and sends nothing twice that it must not.

One member, the anchor, is never out of the group; it may be away. In the end all members come back, read and
acknowledge. Then somebody has got every QoS 1 message; nobody, or one, has got a QoS 0 message; and one has got a QoS 2
message, unless the session that it was begun with has ended [MQTT-4.8.2-5].
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headwater.node.config import Config
from headwater.routing.shared import DISPATCHERS
from headwater.wire.packets import (
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    SubscribeRequest,
    Unsubscribe,
)
from tests.fuzz.invariants import check
from tests.node.memory import Client, MemoryBroker

NAME = "$share/g/t/#"
MEMBERS = ["anchor", "one", "two", "three"]
members = st.sampled_from(MEMBERS)
others = st.sampled_from(MEMBERS[1:])


class Conservation(RuleBasedStateMachine):
    @initialize(dispatcher=st.sampled_from(sorted(DISPATCHERS)), window=st.integers(1, 3))
    def start(self, dispatcher: str, window: int) -> None:
        self.broker = MemoryBroker(Config(sys_interval=0, shared_dispatcher=dispatcher, max_inflight=window))
        self.publisher = self.broker.client("publisher")
        self.clients: dict[str, Client] = {}
        self.published: dict[bytes, int] = {}
        self.got: Counter[bytes] = Counter()
        self.lowest = 2  # QoS that some member has taken: with 0 a message is promised to nobody
        self.doubtful: set[bytes] = set()  # QoS 2, begun with a session that ended
        self.unanswered: dict[str, list[Publish | Pubrel]] = {name: [] for name in MEMBERS}
        self.connect("anchor", 4, False)
        self.subscribe("anchor", 2)

    def client(self, name: str) -> Client | None:
        client = self.clients.get(name)
        return None if client is None or client.channel.fd < 0 or client.channel.finishing else client

    def read(self, name: str) -> None:
        client = self.clients.get(name)
        for packet in client.packets() if client is not None else ():
            if isinstance(packet, Publish):
                # With QoS 2 and DUP it is perhaps the same delivery once more, which a receiver knows by its packet id.
                if packet.qos < 2 or not packet.dup or not self.got[packet.payload]:
                    self.got[packet.payload] += 1
                if packet.qos:
                    self.unanswered[name].append(packet)
            elif isinstance(packet, Pubrel):
                self.unanswered[name].append(packet)

    def session_ends(self, name: str) -> None:
        session = self.broker.server.sessions.get(name)
        for flight in session.outbound.flights.values() if session is not None else ():
            if flight.qos == 2 and not flight.released:
                assert session is not None
                self.doubtful.add(session.flight_delivery(flight).message.payload)

    @rule(name=members, version=st.sampled_from([4, 5]), clean=st.booleans())
    def connect(self, name: str, version: int, clean: bool) -> None:
        self.read(name)
        clean = clean and name != "anchor"
        session = self.broker.server.sessions.get(name)
        if clean or (session is not None and session.expiry_interval == 0 and session.connection is not None):
            self.session_ends(name)
        self.unanswered[name].clear()
        properties = Properties(session_expiry_interval=1000) if version == 5 else None
        self.clients[name] = self.broker.client(name, version, clean_start=clean, properties=properties)

    @rule(name=others, qos=st.integers(0, 2))
    def join(self, name: str, qos: int) -> None:
        self.lowest = min(self.lowest, qos)
        self.subscribe(name, qos)

    def subscribe(self, name: str, qos: int) -> None:
        client = self.client(name)
        if client is not None:
            client.send(Subscribe(1, [SubscribeRequest(NAME, qos)]))

    @rule(name=others)
    def leave(self, name: str) -> None:
        client = self.client(name)
        if client is not None:
            client.send(Unsubscribe(1, [NAME]))

    @rule(name=members)
    def lose(self, name: str) -> None:
        client = self.client(name)
        if client is not None:
            self.read(name)
            session = self.broker.server.sessions[name]
            if session.expiry_interval == 0:
                self.session_ends(name)
            client.lose()

    @rule(name=members, room=st.sampled_from([0, 1, 30, 1 << 60]))
    def block(self, name: str, room: int) -> None:
        client = self.client(name)
        if client is not None:
            client.unblock(room)

    @rule(qos=st.integers(0, 2), count=st.integers(1, 6), size=st.sampled_from([0, 10, 100_000]))
    def publish(self, qos: int, count: int, size: int) -> None:
        for number in range(count):
            payload = b"%d" % len(self.published) + b"." * size
            self.published[payload] = qos
            self.publisher.send(Publish(f"t/{number % 2}", payload, qos, packet_id=1 if qos else 0))
            if qos == 2:
                self.publisher.send(Pubrel(1))

    @rule(name=members, count=st.integers(1, 4))
    def answer(self, name: str, count: int) -> None:
        self.read(name)
        client = self.client(name)
        if client is None:
            return
        answered, self.unanswered[name] = self.unanswered[name][:count], self.unanswered[name][count:]
        for packet in answered:
            if isinstance(packet, Pubrel):
                client.send(Pubcomp(packet.packet_id))
            else:
                client.send(Puback(packet.packet_id) if packet.qos == 1 else Pubrec(packet.packet_id))

    @rule(seconds=st.sampled_from([0.001, 0.1, 61.0]))
    def wait(self, seconds: float) -> None:
        for name in MEMBERS:
            self.read(name)
            session = self.broker.server.sessions.get(name)
            if session is not None and session.expiry_interval == 0:
                self.session_ends(name)  # it may be cut off
        self.broker.later(seconds)

    @invariant()
    def whole(self) -> None:
        if hasattr(self, "broker"):
            check(self.broker.server)
            assert self.broker.server.stats.publish_dropped == 0

    def teardown(self) -> None:
        if not hasattr(self, "broker"):
            return
        for name in MEMBERS:
            self.block(name, 1 << 60)
            if self.client(name) is None and (name == "anchor" or name in self.broker.server.sessions):
                self.connect(name, 4, False)
        for _ in range(10_000):
            for name in MEMBERS:
                self.answer(name, 100)
            for name in MEMBERS:
                self.read(name)
            if not any(self.unanswered.values()):
                break
        assert not any(each.waiting() for each in self.broker.server.sharing.queues.values())
        server = self.broker.server
        assert server.budget.messages == sum(each.outbound.waiting() for each in server.sessions.values())
        for payload, qos in self.published.items():
            times = self.got[payload]
            if qos == 0:
                assert times <= 1, payload[:10]
            elif payload not in self.doubtful:
                assert times >= 1 or self.lowest == 0, payload[:10]
                assert times <= 1 or qos == 1 or self.lowest < 2, payload[:10]


Conservation.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestConservation = pytest.mark.slow(Conservation.TestCase)
