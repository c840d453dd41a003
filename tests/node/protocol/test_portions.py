"""What takes longer than a turn has time for goes on in later ones: nothing of it is lost, doubled or out of order."""

from __future__ import annotations

import pytest

from headwater.message import NEVER, Message
from headwater.node.protocol.handing_over import MOST
from headwater.node.protocol.retained_sender import LOOKS
from headwater.node.protocol.sampling import TICK
from headwater.node.protocol.sharing import SOME as GROUPS_AT_ONCE
from headwater.node.protocol.subscribing import SOME
from headwater.wire import encode
from headwater.wire.packets import (
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Publish,
    Pubrec,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
)
from tests.fuzz.invariants import check
from tests.node.memory import Client, MemoryBroker

COUNT = 1000


class BusyBroker(MemoryBroker):
    """One whose turns have no time: each has as much of everything as the broker does without looking at the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = 0
        self.all_of_it = False

    def turn(self) -> None:
        hot = self.server.hot
        if self.all_of_it:
            hot.until = NEVER
            super().turn()
        hot.until = 0.0
        while hot.open or hot.dirty or hot.changed:
            hot.flush()

    def work(self) -> bool:
        """The slice of background tasks of one turn; False: there are none left."""
        self.server.hot.background.run(0.0)
        self.turn()
        self.turns += 1
        assert self.turns < 10 * COUNT
        return bool(self.server.hot.background.waiting)

    def settle(self) -> int:
        """The number of turns until all is done."""
        self.turns = 0
        while self.work():
            pass
        return self.turns

    def client(self, client_id: str, version: int = 5, **connect: object) -> Client:
        client = super().client(client_id, version, **connect)
        self.settle()
        return client


@pytest.fixture
def broker() -> BusyBroker:
    broker = BusyBroker()
    broker.server.hot.until = 0.0
    return broker


def subscribe(count: int, packet_id: int = 1, qos: int = 1) -> Subscribe:
    return Subscribe(packet_id, [SubscribeRequest(f"t/{number}", qos) for number in range(count)])


def subscribed(broker: BusyBroker, client_id: str, count: int) -> Client:
    client = broker.client(client_id)
    client.send(subscribe(count), Subscribe(2, [SubscribeRequest("$share/g/s", 1)]))
    broker.settle()
    assert [type(packet) for packet in client.packets()] == [Suback, Suback]
    return client


def test_a_long_subscribe_lets_others_go_first(broker: BusyBroker) -> None:
    client = broker.client("c")
    other = broker.client("o")
    client.send(subscribe(COUNT))
    assert client.packets() == [], "it is not done"
    other.send(Pingreq())
    assert other.packets() == [Pingresp()]
    assert broker.settle() > COUNT // SOME
    (suback,) = client.packets()
    assert isinstance(suback, Suback) and suback.reasons == [1] * COUNT
    assert broker.server.subscribing.count == COUNT


def test_what_comes_behind_it_waits(broker: BusyBroker) -> None:
    client = broker.client("c")
    client.send(subscribe(COUNT), Pingreq(), Publish("t/999", b"x"), Unsubscribe(3, [f"t/{n}" for n in range(COUNT)]))
    assert client.watched == (False, False), "more is not even read"
    client.feed(encode(Publish("t/1", b"y"), 5)[:3])  # but what was on its way is kept
    broker.settle()
    kinds: list[Packet] = client.packets()
    assert [type(packet) for packet in kinds] == [Suback, Pingresp, Publish, Unsuback]
    assert client.watched == (True, False)
    assert broker.server.subscribing.count == 0
    client.feed(encode(Publish("t/1", b"y"), 5)[3:])
    check(broker.server)


def test_many_packets_of_one_read(broker: BusyBroker) -> None:
    client = broker.client("c")
    other = broker.client("o")
    client.feed(b"".join(encode(Publish("q", b"x", 2, packet_id=number + 1), 5) for number in range(COUNT)))
    assert len(client.packets()) == 1
    other.send(Pingreq())
    assert other.packets() == [Pingresp()]
    broker.settle()
    assert [packet.packet_id for packet in client.packets() if isinstance(packet, Pubrec)] == list(range(2, COUNT + 1))


@pytest.mark.parametrize("count", [1, 2, 511, 512, 513, 514, 1024, 1025, 30_000])
def test_pings_of_one_read_are_answered_at_once(broker: BusyBroker, count: int) -> None:
    """Each by itself takes a microsecond, and a client may send millions; what stands between them stays in order."""
    client = broker.client("c")
    sends = broker.server.stats.sent
    client.send(*[Pingreq()] * count, Publish("t", b"x", 1, packet_id=1), Pingreq())
    assert client.packets()[:count] == [Pingresp()] * count
    broker.settle()
    assert broker.server.stats.sent == sends + count + 2
    client.feed(encode(Pingreq(), 5)[:1])
    assert client.packets()[1:] == []
    client.feed(encode(Pingreq(), 5)[1:])
    assert client.packets() == [Pingresp()]


def test_who_goes_in_the_middle_of_it(broker: BusyBroker) -> None:
    client = broker.client("c")
    client.send(subscribe(COUNT), Pingreq())
    while not broker.server.subscribing.count:  # it is decoded and checked first
        broker.work()
    assert broker.server.subscribing.count < COUNT
    client.lose()
    broker.settle()
    assert broker.server.subscribing.count == 0
    check(broker.server)


def test_what_breaks_the_protocol_in_the_middle_of_it(broker: BusyBroker) -> None:
    client = broker.client("c")
    data = encode(subscribe(COUNT), 5)
    client.feed(data[:-1] + b"\xc0")
    broker.settle()
    (said,) = client.packets()
    assert isinstance(said, Disconnect) and said.reason == 0x81
    assert broker.server.subscribing.count == 0


def test_the_subscriptions_of_a_session_that_ends(broker: BusyBroker) -> None:
    server = broker.server
    client = subscribed(broker, "c", COUNT)
    publisher = broker.client("p")
    client.send(Disconnect())
    assert "c" not in server.sessions
    assert COUNT - 2 * SOME < server.subscribing.count < COUNT, "but none of a shared group"
    publisher.send(*(Publish(f"t/{number}", b"x", 1, packet_id=number + 1) for number in range(10)))
    assert (server.budget.used, server.stats.publish_dropped) == (0, 0)
    assert broker.settle() >= COUNT // SOME - 2
    assert server.subscribing.count == 0
    check(server)


def test_its_client_comes_back_meanwhile(broker: BusyBroker) -> None:
    subscribed(broker, "c", COUNT).send(Disconnect())
    again = Client(broker)
    again.connect(Connect("c", 5))
    again.send(Subscribe(1, [SubscribeRequest("t/0", 1), SubscribeRequest("t/1", 1)]))
    assert broker.server.subscribing.count > 2
    broker.settle()
    assert broker.server.subscribing.count == 2
    again.packets()
    publisher = broker.client("p")
    publisher.send(Publish("t/0", b"x"), Publish("t/5", b"x"), Publish("t/1", b"y"))
    assert [message.payload for message in again.messages()] == [b"x", b"y"]
    check(broker.server)


def away_with_messages(broker: BusyBroker, count: int, expiry: int = 10) -> None:
    client = Client(broker)
    client.connect(Connect("c", 5, properties=Properties(session_expiry_interval=expiry)))
    client.send(Subscribe(1, [SubscribeRequest("t", 1)]))
    client.lose()
    publisher = broker.client("p")
    for number in range(count):
        publisher.send(Publish("t", b"%d" % number, 1, packet_id=number + 1))
    broker.settle()


def test_messages_that_wait_in_a_session_that_ends(broker: BusyBroker) -> None:
    server = broker.server
    away_with_messages(broker, COUNT)
    assert server.budget.used > 0
    server.hot.now += 11
    server.timers.run(server.hot.now)
    assert (len(server.sessions), server.budget.used) == (1, 0)
    assert 0 < server.stats.publish_dropped < COUNT
    broker.settle()
    assert server.stats.publish_dropped == COUNT


def test_messages_that_wait_for_a_client_that_comes(broker: BusyBroker) -> None:
    away_with_messages(broker, COUNT)
    client = Client(broker)
    client.connect(Connect("c", 5, clean_start=False, properties=Properties(session_expiry_interval=10)))
    first = client.messages()
    assert 0 < len(first) < COUNT
    broker.client("p").send(Publish("t", b"last"))
    broker.settle()
    rest = client.messages()
    assert [message.payload for message in first + rest] == [*(b"%d" % number for number in range(COUNT)), b"last"]
    # None was acknowledged, so all of them go again.
    client.lose()
    again = Client(broker)
    again.connect(Connect("c", 5, clean_start=False, properties=Properties(session_expiry_interval=10)))
    broker.settle()
    assert [message.packet_id for message in again.messages()] == [message.packet_id for message in first + rest[:-1]]
    for message in first + rest[:-1]:
        again.send(Puback(message.packet_id))
    broker.settle()
    assert broker.server.budget.used == 0
    check(broker.server)


def retaining(broker: BusyBroker, count: int, payload: bytes = b"old") -> Client:
    """One who has left that many retained messages."""
    publisher = broker.client("p")
    for number in range(count):
        publisher.send(Publish(f"r/{number}", payload, 1, True, packet_id=number + 1))
    publisher.packets()
    return publisher


def test_many_retained_messages(broker: BusyBroker) -> None:
    publisher = retaining(broker, COUNT)
    client = broker.client("c")
    client.send(Subscribe(1, [SubscribeRequest("r/#", 0)]))
    first = client.packets()
    assert isinstance(first[0], Suback) and len(first) <= 1 + SOME
    # Others go on: what they replace meanwhile never comes in its old form behind the new one.
    publisher.send(Publish(f"r/{COUNT - 1}", b"new", 1, True, packet_id=1), Publish("r/3", b"", 1, True, packet_id=2))
    publisher.send(Publish("r/4", b"", 1, True, packet_id=2), Publish("r/x", b"later", 1, True, packet_id=3))
    broker.settle()
    seen: dict[str, bytes] = {}
    retained = 0
    for message in [packet for packet in first + client.packets() if isinstance(packet, Publish)]:
        seen[message.topic] = message.payload
        retained += message.retain
    assert seen == {f"r/{number}": b"old" for number in range(COUNT)} | {
        f"r/{COUNT - 1}": b"new",
        "r/3": b"",
        "r/4": b"",
        "r/x": b"later",
    }
    assert COUNT - 2 <= retained <= COUNT + 1


def test_retained_messages_wait_for_a_client_to_read(broker: BusyBroker) -> None:
    retaining(broker, COUNT, b"x" * 1000)
    client = broker.client("c")
    client.socket.room = 3000
    client.send(Subscribe(1, [SubscribeRequest("r/#", 0)]), Pingreq())
    broker.settle()
    assert client.channel.backlog_size < 2 * SOME * 1100, "no more is asked for than it reads"
    assert broker.server.stats.publish_dropped == 0
    while client.channel.busy:
        client.unblock(3000)
        broker.settle()
    client.unblock()
    *_, last = got = client.packets()
    assert last == Pingresp()
    assert len([packet for packet in got if isinstance(packet, Publish)]) == COUNT
    assert broker.server.stats.publish_dropped == 0
    check(broker.server)


def test_a_client_that_waits_for_its_retained_messages_goes(broker: BusyBroker) -> None:
    retaining(broker, COUNT, b"x" * 1000)
    client = broker.client("c")
    client.socket.room = 3000
    client.send(Subscribe(1, [SubscribeRequest("r/#", 0)]))
    broker.settle()
    assert client.channel.waits is not None
    client.lose()
    broker.settle()
    assert broker.server.budget.used == 0
    check(broker.server)


def test_filters_that_look_at_every_topic_and_find_nothing(broker: BusyBroker) -> None:
    """So many topics in a turn; others go first, and the client is not read from until it is done."""
    for number in range(COUNT):
        broker.server.router.retained.put(Message(f"{number}/x", b"kept"))
    client, other = broker.client("c"), broker.client("o")
    client.send(Subscribe(1, [SubscribeRequest(f"+/zz{number}", 1) for number in range(5)]))
    assert [type(packet) for packet in client.packets()] == [Suback]
    client.send(Pingreq())
    other.send(Pingreq())
    assert (client.packets(), other.packets()) == ([], [Pingresp()])
    assert client.watched == (False, False)
    assert broker.settle() >= 5 * COUNT // LOOKS
    assert client.packets() == [Pingresp()]
    check(broker.server)


# ---- one message for very many --------------------------------------------------------------------------------------

GROUPS = 500


def in_groups(broker: BusyBroker, qos: int = 1, version: int = 5, **connect: object) -> Client:
    member = broker.client("member", version, **connect)
    for start in range(0, GROUPS, 100):
        filters = [SubscribeRequest(f"$share/g{number}/t", qos) for number in range(start, start + 100)]
        member.send(Subscribe(1, filters))
        broker.settle()
    member.packets()
    return member


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_for_many_groups_lets_others_go_first(qos: int) -> None:
    """It comes to each group once, in the order of its publisher, who is told when all have it."""
    broker = BusyBroker()
    member = in_groups(broker)
    publisher, other = broker.client("p"), broker.client("other")
    for payload in (b"first", b"second"):
        publisher.send(Publish("t", payload, qos, packet_id=len(payload) if qos else 0))
    assert not [each for each in publisher.packets() if isinstance(each, Puback | Pubrec)]
    other.send(Pingreq())
    assert other.packets() == [Pingresp()], "it does not wait"
    assert broker.settle() > 10
    payloads: list[bytes] = []
    while got := [each for each in member.packets() if isinstance(each, Publish)]:
        payloads += [each.payload for each in got]
        member.send(*(Puback(each.packet_id) for each in got if each.qos))
        broker.settle()
    assert payloads == [b"first"] * GROUPS + [b"second"] * GROUPS
    told = [each.packet_id for each in publisher.packets() if isinstance(each, Puback | Pubrec)]
    assert told == ([] if qos == 0 else [5, 6])
    assert broker.server.publishing.long_ones == 0
    check(broker.server)


@pytest.mark.parametrize("qos", [0, 1])
def test_a_message_for_many_groups_whose_publisher_goes_comes_to_all(qos: int) -> None:
    broker = BusyBroker()
    member = in_groups(broker, 0)
    publisher = broker.client("p")
    publisher.send(Publish("t", b"x", qos, packet_id=qos), Disconnect())
    publisher.lose()
    broker.settle()
    assert [each.payload for each in member.packets() if isinstance(each, Publish)] == [b"x"] * GROUPS
    assert broker.server.publishing.long_ones == 0
    check(broker.server)


def test_a_large_message_for_recipients_with_aliases_lets_others_go_first() -> None:
    broker = BusyBroker()
    readers = [broker.client(f"r{number}", properties=Properties(topic_alias_maximum=9)) for number in range(20)]
    for each in readers:
        each.send(Subscribe(1, [SubscribeRequest("#", 0)]))
        each.packets()
    publisher = broker.client("p")
    publisher.send(Publish("t" * 30_000, b"x"))
    assert broker.server.publishing.long_ones == 1
    assert broker.settle() > 10
    assert [[packet.payload for packet in each.packets() if isinstance(packet, Publish)] for each in readers] == [
        [b"x"]
    ] * 20


def test_messages_for_very_many_are_handed_over_at_once_when_there_are_too_many_of_them() -> None:
    broker = BusyBroker()
    in_groups(broker, 0)
    broker.server.publishing.long_ones = MOST
    broker.client("p").send(Publish("t", b"x"))
    assert not broker.server.background.waiting


@pytest.mark.parametrize("version", [4, 5])
def test_what_waits_in_many_groups_comes_as_their_member_acknowledges(version: int) -> None:
    """In pieces, all of it, once, and nobody is forgotten that was blocked meanwhile."""
    broker = BusyBroker()
    window = Properties(receive_maximum=10) if version == 5 else None
    member = in_groups(broker, 1, version, properties=window)
    publisher = broker.client("p")
    for number in range(4):
        publisher.send(Publish("t", b"%d" % number, 1, packet_id=number + 1))
    broker.settle()
    got: list[bytes] = []
    while packets := [each for each in member.packets() if isinstance(each, Publish)]:
        assert len(packets) <= 10 or version == 4
        got += [each.payload for each in packets]
        for each in packets:
            member.send(Puback(each.packet_id))
            broker.work()
        broker.settle()
    assert sorted(got) == [b"%d" % number for number in range(4) for _ in range(GROUPS)]
    assert not broker.server.sharing.pulling and not broker.server.sharing.queues
    check(broker.server)


def test_room_in_the_middle_of_a_pull_from_many_groups_is_used() -> None:
    """Behind the group that has more for the member, and with nothing in flight whose end would make it look again."""
    broker = BusyBroker()
    member = broker.client("member", properties=Properties(receive_maximum=1))
    member.send(Subscribe(1, [SubscribeRequest(f"$share/g/t{number}", 1) for number in range(3 * GROUPS_AT_ONCE)]))
    broker.settle()
    member.packets()
    publisher = broker.client("p")
    for number in range(3):
        publisher.send(Publish("t0", b"%d" % number, 1, packet_id=number + 1))
    broker.settle()
    got: list[bytes] = []
    for _ in range(2):
        [packet] = [each for each in member.packets() if isinstance(each, Publish)]
        got.append(packet.payload)
        member.send(Puback(packet.packet_id))
        assert broker.work(), "the pull goes on"
    broker.settle()
    got += [each.payload for each in member.packets() if isinstance(each, Publish)]
    assert got == [b"0", b"1", b"2"]
    check(broker.server)


def test_a_look_at_the_connection_of_many_members_lets_others_go_first() -> None:
    broker = BusyBroker()
    in_groups(broker, 0)
    broker.client("p").send(Publish("t", b"x"))
    broker.settle()
    sampling = broker.server.sampling
    assert len(sampling.watched) == GROUPS
    broker.server.hot.now += TICK
    sampling.tick()
    assert broker.server.background.waiting, "the rest has to wait"
    assert broker.settle() > 10
    assert not sampling.watched
    members = [member for group in broker.server.router.groups.all() for member in group.members()]
    assert not any(member.watched for member in members)
