"""The hot path is an optimisation, never a second meaning: with and without it, traffic gives the same bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.node.config import Config
from headwater.node.delivery.settings import StoreSettings
from headwater.node.protocol.retained_sender import pending_of
from headwater.routing.shared import DISPATCHERS
from headwater.routing.topics import matches
from headwater.store.entry import Entry
from headwater.store.memory import MemoryStore
from headwater.store.query import Query
from headwater.wire import encode
from headwater.wire.packets import (
    Connect,
    Packet,
    Pingreq,
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
from tests.node.memory import Client, MemoryBroker
from tests.node.persistence.durable import DurableBroker

CLIENTS = 4
TOPICS = ["a", "a/b", "a/c", "b", "b/c/d", "$x/a"]
FILTERS = ["a", "a/b", "a/+", "a/#", "#", "+", "b/c/d", "b/#", "$x/#", "$share/g/a/#", "$share/h/#"]

SHARED_FILTERS = ["$share/g/a/#", "$share/g/a/#", "$share/h/#", "a/+"]
# Not those with chance in them, nor the one that is told of many acknowledgements at once on the hot path: what it
# believes then may differ in the last digit, and so who of two equal ones is next.
SURE_DISPATCHERS = sorted(DISPATCHERS.keys() - {"random", "sticky", "capacity", "adaptive"})

Step = Callable[["Run"], None]


class Run:
    """One broker with its clients, driven by steps."""

    def __init__(self, hot: bool, dispatcher: str) -> None:
        config = Config(
            sys_interval=0,
            max_inflight=3,
            max_queued_messages=5,
            outbound_buffer=4096,
            receive_maximum=2,
            shared_dispatcher=dispatcher,
        )
        self.broker = MemoryBroker(config, hot=hot)
        self.clients: list[Client | None] = [None] * CLIENTS
        self.log: list[bytes] = [b""] * CLIENTS

    def user(self, number: int) -> str | None:
        """The user name that a client gives."""
        return None

    def settle(self) -> None:
        """The disk does what it has to do."""

    def gone(self, number: int) -> None:
        client = self.clients[number]
        if client is not None:
            self.log[number] += bytes(client.socket.sent)
            self.clients[number] = None

    def results(self) -> list[bytes]:
        for number in range(CLIENTS):
            self.gone(number)
        return self.log


def connecting(number: int, version: int, clean: bool, receive: int, limited: int) -> Step:
    def step(run: Run) -> None:
        run.gone(number)
        client = run.clients[number] = Client(run.broker)
        properties = None
        if version == 5:
            properties = Properties(session_expiry_interval=100, receive_maximum=receive)
            if limited == 1:
                properties.topic_alias_maximum = 1
            elif limited == 2:
                properties.maximum_packet_size = 64
        client.version = version
        client.send(Connect(f"c{number}", version, clean, username=run.user(number), properties=properties))

    return step


def leaving(number: int) -> Step:
    def step(run: Run) -> None:
        client = run.clients[number]
        if client is not None:
            client.lose()
            run.gone(number)

    return step


def sending(number: int, packets: list[Callable[[int], Packet]]) -> Step:
    def step(run: Run) -> None:
        client = run.clients[number]
        if client is not None and not client.channel.finishing:
            client.feed(b"".join(encode(make(client.version), client.version) for make in packets))

    return step


def acknowledging(number: int, count: int) -> Step:
    """Answer the first of what arrived, and leave the rest unanswered for ever."""

    def step(run: Run) -> None:
        client = run.clients[number]
        if client is None or client.channel.finishing:
            return
        answers: list[Packet] = []
        for packet in client.packets():
            if isinstance(packet, Publish) and packet.qos == 1:
                answers.append(Puback(packet.packet_id))
            elif isinstance(packet, Publish) and packet.qos == 2:
                answers.append(Pubrec(packet.packet_id))
            elif isinstance(packet, Pubrel):
                answers.append(Pubcomp(packet.packet_id))
        if answers[:count]:
            client.send(*answers[:count])

    return step


def at_once(parts: list[Step]) -> Step:
    def step(run: Run) -> None:
        with run.broker.one_turn():
            for part in parts:
                part(run)

    return step


def blocking(number: int, room: int) -> Step:
    def step(run: Run) -> None:
        client = run.clients[number]
        if client is not None:
            client.unblock(room)

    return step


@st.composite
def publishes(draw: st.DrawFn) -> list[Callable[[int], Packet]]:
    """Runs of equal packets, as batching clients send, and changes between them."""
    packets: list[Callable[[int], Packet]] = []
    for _ in range(draw(st.integers(1, 4))):
        topic = draw(st.sampled_from(TOPICS))
        qos = draw(st.sampled_from([0, 0, 0, 1, 1, 2]))
        retain = draw(st.sampled_from([False, False, False, True]))
        size = draw(st.sampled_from([0, 1, 5, 200]))
        properties = draw(
            st.sampled_from(
                [
                    None,
                    None,
                    Properties(user_properties=[("k", "v"), ("a", "b")]),
                    Properties(content_type="t", user_properties=[("k", "v")]),
                    Properties(message_expiry_interval=50),
                    Properties(response_topic="r", correlation_data=b"c"),
                    Properties(user_properties=[("headwater-position", "faked:1")]),
                ]
            )
        )
        for repeat in range(draw(st.integers(1, 4))):
            packet_id = draw(st.integers(1, 5)) if qos else 0
            payload = bytes([65 + repeat]) * size

            def make(
                version: int,
                topic: str = topic,
                payload: bytes = payload,
                qos: int = qos,
                retain: bool = retain,
                packet_id: int = packet_id,
                properties: Properties | None = properties,
            ) -> Packet:
                carried = properties if version == 5 else None
                return Publish(topic, payload, qos, retain, False, packet_id, carried)

            packets.append(make)
    if draw(st.booleans()):
        packets.append(lambda version: Pubrel(draw_id))
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
        packets.insert(draw(st.integers(0, len(packets))), lambda version: Pingreq())
    draw_id = draw(st.integers(1, 5))
    return packets


def subscription(
    filter: str, qos: int, no_local: bool, published: bool, identifier: int, positions: bool = False
) -> Callable[[int], Packet]:
    def make(version: int) -> Packet:
        if version != 5:
            return Subscribe(1, [SubscribeRequest(filter, qos)])
        local = no_local and not filter.startswith("$share")
        properties = Properties(subscription_identifiers=[identifier]) if identifier else None
        if positions:
            properties = properties or Properties()
            properties.user_properties = [("headwater-position", "yes")]
        return Subscribe(1, [SubscribeRequest(filter, qos, local, published)], properties)

    return make


numbers = st.integers(0, CLIENTS - 1)
joining = [sending(number, [subscription("$share/g/a/#", 1 + number % 2, False, False, 0)]) for number in range(3)]
asking = [
    sending(0, [subscription("a/#", 1, False, False, 0, True)]),
    sending(1, [subscription("$share/g/a/#", 1, False, False, 0, True)]),
    sending(2, [subscription("$share/g/a/#", 2, False, False, 0)]),
    sending(3, [subscription("a/+", 0, False, False, 0, True)]),
]
"""Who asks for positions, and who does not."""
arrivals = st.one_of(
    st.builds(sending, numbers, publishes()),
    st.builds(acknowledging, numbers, st.integers(1, 10)),
    st.builds(leaving, numbers),
)


def steps_with(filters: list[str]) -> st.SearchStrategy[Step]:
    return st.one_of(
        st.builds(
            connecting,
            numbers,
            st.sampled_from([4, 5]),
            st.booleans(),
            st.integers(1, 4),
            st.sampled_from([0, 0, 0, 1, 2]),
        ),
        st.builds(leaving, numbers),
        st.builds(
            lambda number, make: sending(number, [make]),
            numbers,
            st.builds(
                subscription,
                st.sampled_from(filters),
                st.integers(0, 2),
                st.sampled_from([False, False, True]),
                st.booleans(),
                st.sampled_from([0, 0, 0, 7]),
                st.sampled_from([False, False, True]),
            ),
        ),
        st.builds(
            lambda number, filter: sending(number, [lambda version: Unsubscribe(1, [filter])]),
            numbers,
            st.sampled_from(filters),
        ),
        st.builds(sending, numbers, publishes()),
        st.builds(sending, numbers, publishes()),
        st.builds(sending, numbers, publishes()),
        st.builds(acknowledging, numbers, st.integers(1, 10)),
        st.builds(at_once, st.lists(arrivals, min_size=2, max_size=5)),
        st.builds(blocking, numbers, st.sampled_from([0, 1, 100, 1 << 60])),
    )


beginnings = st.tuples(
    *(
        st.builds(
            connecting,
            st.just(n),
            st.sampled_from([4, 5]),
            st.booleans(),
            st.integers(1, 4),
            st.sampled_from([0, 0, 1, 2]),
        )
        for n in range(CLIENTS)
    )
)


@settings(max_examples=400, deadline=None)
@given(beginnings, st.lists(steps_with(FILTERS), min_size=5, max_size=60))
def test_same_bytes_with_and_without(beginning: tuple[Step, ...], rest: list[Step]) -> None:
    compare("round_robin", [*beginning, *rest])


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(SURE_DISPATCHERS), beginnings, st.lists(steps_with(SHARED_FILTERS), min_size=5, max_size=60))
def test_same_bytes_to_shared_groups(dispatcher: str, beginning: tuple[Step, ...], rest: list[Step]) -> None:
    compare(dispatcher, [*beginning, *joining, *rest])


class StoredRun(Run):
    """With a delivery store for some of the topics."""

    filters = ("a/#", "$x/a")
    patience = 1
    """Steps that the clients make while the disk makes one."""

    def __init__(self, hot: bool, dispatcher: str) -> None:
        super().__init__(hot, dispatcher)
        store = StoreSettings(filters=list(self.filters), max_topics=3)
        config = self.broker.server.config.model_copy(update={"store": store})
        self.durable = DurableBroker(config=config, store=MemoryStore("s"), hot=hot)
        self.durable.server.hot.now = 1000.0
        self.durable.server.timers.clear()
        self.broker = self.durable
        self.steps = 0

    def settle(self) -> None:
        self.steps += 1
        if self.steps % self.patience == 0:
            self.durable.settle()

    def results(self) -> list[bytes]:
        self.durable.settle()
        return super().results()

    def rows(self) -> list[Entry]:
        assert self.durable.store is not None
        found = [entry for chunk in self.durable.store.select(Query()) for entry in chunk.entries()]
        return [entry._replace(time=0, arrival=0) for entry in found]  # by the wall clock


class SlowDiskRun(StoredRun):
    """All topics are stored: acknowledgements of others need not wait for the disk, and on the hot path do not."""

    filters = ("#", "$x/#")
    patience = 3


@pytest.mark.parametrize("kind", [StoredRun, SlowDiskRun])
@settings(max_examples=200, deadline=None)
@given(beginning=beginnings, rest=st.lists(steps_with([*FILTERS, *SHARED_FILTERS]), min_size=5, max_size=60))
def test_same_bytes_and_rows_with_a_store(kind: type[StoredRun], beginning: tuple[Step, ...], rest: list[Step]) -> None:
    hot, ordinary = compare("round_robin", [*beginning, *asking, *rest], kind)
    assert isinstance(hot, StoredRun)
    assert isinstance(ordinary, StoredRun)
    assert hot.rows() == ordinary.rows()
    assert [entry.position for entry in hot.rows()] == list(range(1, len(hot.rows()) + 1))
    assert all(any(matches(filter, entry.topic) for filter in kind.filters) for entry in hot.rows())


def compare(dispatcher: str, steps: list[Step], make: Callable[[bool, str], Run] = Run) -> list[Run]:
    runs = [make(True, dispatcher), make(False, dispatcher)]
    for step in steps:
        for run in runs:
            step(run)
            run.settle()
            run.broker.later(0.001)
    hot, ordinary = runs
    assert hot.results() == ordinary.results()
    assert hot.broker.server.access.refused_publishes == ordinary.broker.server.access.refused_publishes
    for run in runs:
        # Not the same in both: a message that waits for a 3.1.1 client has lost its properties on the hot path already.
        server = run.broker.server
        outbounds = [session.outbound for session in server.sessions.values()]
        in_sessions = sum(each.queued_bytes + each.flying_bytes() for each in outbounds)
        in_sessions += sum(queue.queued_bytes for queue in server.sharing.queues.values())
        in_sessions += sum(each.brought_bytes for each in map(pending_of, server.sessions.values()) if each is not None)
        of_channels = sum(channel.backlog_size + channel.counted for channel in server.channels)
        assert server.budget.used == in_sessions + of_channels
    for name in ("received", "sent", "messages_received", "messages_sent", "publish_dropped", "failures"):
        assert getattr(hot.broker.server.stats, name) == getattr(ordinary.broker.server.stats, name), name
    assert hot.broker.server.stats.failures == 0
    return runs


def test_properties_that_a_311_client_did_not_get_are_there_when_it_comes_back_as_5() -> None:
    """The message is in flight: its session has it with all that it had."""

    def message(version: int) -> Packet:
        return Publish("a", b"x", 1, False, False, 1, Properties(user_properties=[("k", "v")]))

    steps = [
        connecting(0, 4, False, 4, 0),
        sending(0, [subscription("a", 1, False, False, 0)]),
        connecting(1, 5, True, 4, 0),
        sending(1, [message]),
        leaving(0),
        connecting(0, 5, False, 4, 0),
    ]
    hot, _ = compare("round_robin", steps)
    assert b"\x00\x01k\x00\x01v" in hot.results()[0]
