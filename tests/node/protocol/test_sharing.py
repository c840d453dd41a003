"""A shared group's messages are the group's until they are sent, and come back from members that go."""

from __future__ import annotations

import pytest

from headwater.node.config import Config
from headwater.node.plane.unsent import packet_end
from headwater.node.protocol.sharing import BEHIND
from headwater.routing.dispatcher import Dispatcher, Member
from headwater.wire import encode
from headwater.wire.packets import (
    Properties,
    Puback,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    SubscribeRequest,
    Unsubscribe,
)
from tests.fuzz.invariants import check
from tests.node.memory import Client, MemoryBroker

NAME = "$share/g/t"


class Fleet:
    """A broker, a publisher and members m0, m1 …; every check looks at the whole broker as well."""

    def __init__(self, dispatcher: str = "round_robin", **settings: object) -> None:
        self.broker = MemoryBroker(Config(sys_interval=0, shared_dispatcher=dispatcher, **settings))  # type: ignore[arg-type]
        self.publisher = self.broker.client("p")
        self.count = 0

    def connect(self, name: str, window: int = 10, expiry: int = 100, clean: bool = False) -> Client:
        properties = Properties(session_expiry_interval=expiry, receive_maximum=window)
        return self.broker.client(name, clean_start=clean, properties=properties)

    def member(self, name: str, qos: int = 1, window: int = 10, expiry: int = 100) -> Client:
        client = self.connect(name, window, expiry, True)
        client.send(Subscribe(1, [SubscribeRequest(NAME, qos)]))
        client.packets()
        return client

    def publish(self, count: int, qos: int = 1, size: int = 0, properties: Properties | None = None) -> None:
        for _ in range(count):
            payload = b"%d" % self.count + b"." * size
            self.publisher.send(Publish("t", payload, qos, packet_id=1 if qos else 0, properties=properties))
            if qos == 2:
                self.publisher.send(Pubrel(1))
            self.count += 1
        check(self.broker.server)

    def waiting(self) -> int:
        check(self.broker.server)
        return sum(queue.waiting() for queue in self.broker.server.sharing.queues.values())

    @property
    def dropped(self) -> int:
        return self.broker.server.stats.publish_dropped


def numbers(client: Client) -> list[int]:
    return [int(packet.payload.rstrip(b".")) for packet in client.messages()]


def acknowledge(client: Client, count: int) -> list[int]:
    """Take and acknowledge messages until `count` are done; the numbers of all that arrived."""
    got = []
    while len(got) < count:
        arrived = client.messages()
        assert arrived, got
        for packet in arrived:
            got.append(int(packet.payload))
            client.send(Puback(packet.packet_id))
    return got


def test_what_nobody_has_room_for_waits_and_goes_to_the_first_that_has() -> None:
    """Receive Maximum is honoured, and a slow member holds nothing back that it has not been sent."""
    fleet = Fleet()
    quick, slow = fleet.member("quick", window=2), fleet.member("slow", window=2)
    fleet.publish(10)
    assert numbers(slow) == [1, 3]
    assert fleet.waiting() == 6
    assert acknowledge(quick, 8) == [0, 2, 4, 5, 6, 7, 8, 9]
    assert fleet.waiting() == 0
    fleet.publish(2)
    assert acknowledge(quick, 2) == [10, 11]
    assert numbers(slow) == []


def test_a_full_member_is_asked_again_when_it_has_room() -> None:
    fleet = Fleet()
    one, other = fleet.member("one", window=1), fleet.member("other", window=1)
    fleet.publish(2)
    fleet.publish(1)
    assert (numbers(one), numbers(other), fleet.waiting()) == ([0], [1], 1)
    one.send(Puback(1))
    other.send(Puback(1))
    assert (numbers(one), fleet.waiting()) == ([2], 0)
    fleet.publish(1)
    assert (numbers(one), numbers(other)) == ([], [3])


@pytest.mark.parametrize("qos", [1, 2])
def test_a_group_without_online_members_waits_for_the_first_to_come(qos: int) -> None:
    fleet = Fleet()
    for name in ("m0", "m1"):
        fleet.member(name, qos=2).lose()
    fleet.publish(5, qos)
    fleet.publish(5, 0)  # these are for nobody, as with a session that is away
    assert (fleet.waiting(), fleet.dropped) == (5, 0)
    back = fleet.connect("m1")
    assert numbers(back) == [0, 1, 2, 3, 4]
    assert fleet.waiting() == 0
    assert numbers(fleet.connect("m0")) == []


def test_who_joins_takes_what_waits() -> None:
    fleet = Fleet()
    fleet.member("m0").lose()
    fleet.publish(3)
    late = fleet.connect("late")
    late.send(Subscribe(1, [SubscribeRequest(NAME, 1)]))
    assert (numbers(late), fleet.waiting()) == ([0, 1, 2], 0)


def test_who_renews_its_subscription_with_qos_0_has_room_whatever_is_in_flight() -> None:
    fleet = Fleet()
    client = fleet.member("m0", window=1)
    fleet.publish(2)
    assert (numbers(client), fleet.waiting()) == ([0], 1)
    client.send(Subscribe(2, [SubscribeRequest(NAME, 0)]))
    assert (numbers(client), fleet.waiting()) == ([1], 0)
    fleet.publish(2)
    assert (numbers(client), fleet.waiting()) == ([2, 3], 0)


def test_a_group_that_could_only_get_qos_0_does_not_wait() -> None:
    fleet = Fleet()
    fleet.member("m0", qos=0).lose()
    fleet.publish(3, 1)
    assert fleet.waiting() == 0


@pytest.mark.parametrize(
    ("policy", "kept"), [("drop_newest", [0, 1, 2]), ("drop_oldest", [2, 3, 4]), ("disconnect", [0, 1, 2])]
)
def test_what_waits_in_a_group_is_bounded_as_in_a_session(policy: str, kept: list[int]) -> None:
    fleet = Fleet(max_queued_messages=3, queue_full=policy)
    fleet.member("m0").lose()
    fleet.publish(5)
    assert (fleet.waiting(), fleet.dropped) == (3, 2)
    assert numbers(fleet.connect("m0")) == kept


def test_bytes_that_wait_in_a_group_are_bounded() -> None:
    fleet = Fleet(max_queued_bytes=3_000)
    fleet.member("m0").lose()
    fleet.publish(5, size=1_000)
    assert (fleet.waiting(), fleet.dropped) == (2, 3)


def test_what_expires_in_a_group_is_not_delivered() -> None:
    fleet = Fleet()
    fleet.member("m0").lose()
    fleet.publish(2, properties=Properties(message_expiry_interval=5))
    fleet.publish(1)
    fleet.broker.later(6)
    assert numbers(fleet.connect("m0")) == [2]
    assert (fleet.waiting(), fleet.dropped) == (0, 2)


def test_the_last_member_takes_what_waits_with_it() -> None:
    fleet = Fleet()
    fleet.member("m0", expiry=10).lose()
    fleet.publish(3)
    fleet.broker.later(11)
    assert (fleet.waiting(), fleet.dropped, fleet.broker.server.budget.used) == (0, 3, 0)


def test_unacknowledged_qos_1_of_a_member_that_goes_away_is_sent_to_another() -> None:
    """And not again to the one that was away."""
    fleet = Fleet()
    leaves, stays = fleet.member("leaves"), fleet.member("stays")
    fleet.publish(6)
    assert numbers(leaves) == [0, 2, 4]
    leaves.send(Puback(1))
    leaves.lose()
    assert acknowledge(stays, 5) == [1, 3, 5, 2, 4]
    assert fleet.connect("leaves").messages() == []
    assert fleet.broker.server.budget.used == 0


def test_unacknowledged_qos_1_of_the_last_member_that_was_there_is_kept_for_it() -> None:
    fleet = Fleet()
    client = fleet.member("m0")
    fleet.member("away").lose()
    fleet.publish(2)
    assert numbers(client) == [0, 1]
    client.lose()
    fleet.publish(1)
    again = fleet.connect("m0").messages()
    assert [(int(packet.payload), packet.dup) for packet in again] == [(0, True), (1, True), (2, False)]


@pytest.mark.parametrize("expiry", [0, 10])
def test_when_the_session_ends_all_it_had_is_the_groups_again(expiry: int) -> None:
    """At once, or when it expires: also if nobody is there to take it."""
    fleet = Fleet()
    fleet.member("away").lose()
    client = fleet.member("m0", expiry=expiry)
    fleet.publish(3)
    client.lose()
    fleet.broker.later(11)
    assert fleet.waiting() == 3
    assert numbers(fleet.connect("away")) == [0, 1, 2]


def test_a_qos_2_delivery_that_has_begun_stays_with_its_member() -> None:
    """[MQTT-4.8.2-4, 4.8.2-5] Released or not."""
    fleet = Fleet()
    leaves, stays = fleet.member("leaves", 2), fleet.member("stays", 2)
    fleet.publish(4, 2)
    assert numbers(leaves) == [0, 2]
    leaves.send(Pubrec(1))
    leaves.lose()
    assert numbers(stays) == [1, 3]
    pubrel, again = fleet.connect("leaves").packets()
    assert isinstance(pubrel, Pubrel) and isinstance(again, Publish)
    assert (int(again.payload), again.dup) == (2, True)


def test_what_waits_for_one_member_goes_to_others_when_it_unsubscribes() -> None:
    """With a dispatcher that waits for the member it has chosen."""
    fleet = Fleet("sticky")
    clients = [fleet.member("m0", window=1), fleet.member("m1", window=1)]
    clients[0].send(Subscribe(2, [SubscribeRequest("own", 1)]))
    clients[1].send(Subscribe(2, [SubscribeRequest("own", 1)]))
    fleet.publish(3)
    fleet.publisher.send(Publish("own", b"100", 1, packet_id=1))
    [favourite] = [client for client in clients if len(client.messages()) == 1 and client.channel.held]
    other = clients[1 - clients.index(favourite)]
    other.send(Puback(1))  # its own message
    favourite.send(Unsubscribe(3, [NAME]))
    check(fleet.broker.server)
    favourite.send(Puback(1))
    assert numbers(favourite) == [100]
    assert acknowledge(other, 2) == [1, 2]


@pytest.mark.parametrize("dispatcher", ["sticky", "hash_topic"])
def test_what_waits_for_one_member_goes_to_others_when_it_goes_away(dispatcher: str) -> None:
    fleet = Fleet(dispatcher)
    clients = [fleet.member("m0", window=1), fleet.member("m1", window=1)]
    fleet.publish(4)
    [favourite] = [client for client in clients if client.messages()]
    other = clients[1 - clients.index(favourite)]
    assert fleet.waiting() == 0, "it waits for its member"
    favourite.lose()
    assert acknowledge(other, 4) == [0, 1, 2, 3]


def test_a_member_whose_socket_takes_nothing_is_passed_over() -> None:
    fleet = Fleet()
    stalled, other = fleet.member("stalled", 0), fleet.member("other", 0)
    stalled.socket.room = 0
    fleet.publish(2 * (BEHIND // 100_000 + 2), 0, size=100_000)
    held = BEHIND // 100_000 + 1
    assert len(other.messages()) == fleet.count - held
    fleet.publish(10, 0)
    assert len(numbers(other)) == 10
    stalled.unblock()
    assert len(numbers(stalled)) == held
    fleet.publish(2, 0)
    assert len(numbers(stalled)) == len(numbers(other)) == 1


def test_when_no_socket_takes_anything_messages_wait_in_the_group_and_none_is_lost() -> None:
    fleet = Fleet()
    clients = [fleet.member("m0", 0), fleet.member("m1", 0)]
    for client in clients:
        client.socket.room = 0
    fleet.publish(2 * (BEHIND // 100_000 + 2) + 50, 0, size=100_000)
    assert fleet.waiting() > 0
    got: list[int] = []
    for client in clients:
        client.unblock()
        got += numbers(client)
    assert (sorted(got), fleet.waiting(), fleet.dropped) == (list(range(fleet.count)), 0, 0)


@pytest.mark.parametrize("room", [0, 1, 100, 150_000])
@pytest.mark.parametrize("more", [0, 1, 20_000, 33_333])
@pytest.mark.parametrize("how", ["cut off", "lost", "taken over"])
def test_what_a_socket_did_not_take_goes_to_another_member(how: str, room: int, more: int) -> None:
    """Of QoS 0 too: only the message that was sent in part is lost."""
    fleet = Fleet()
    stalled, other = fleet.member("stalled", 0, expiry=0), fleet.member("other", 0)
    stalled.send(Subscribe(2, [SubscribeRequest("own", 0)]))
    sent_before = len(stalled.socket.sent)
    stalled.socket.room = room
    fleet.publisher.send(Publish("own", b"x" * 50))
    fleet.publish(40, 0, size=20_000)
    stalled.unblock(more)
    if how == "cut off":
        fleet.broker.later(fleet.broker.server.config.write_timeout + 1)
    elif how == "lost":
        stalled.lose()
    else:
        fleet.connect("stalled", clean=True)
    missing = fleet.count - len(set(numbers(other)))
    begun = 0  # of the packets that the stalled one was sent, the group's that were at least begun
    sent = bytes(stalled.socket.sent[sent_before:])
    at = 0
    while at < len(sent):
        begun += sent[at : at + 1] == b"\x30" and b"\x00\x01t" in sent[at : at + 10]
        at = packet_end(sent + bytes(8), at)
    assert missing == begun
    check(fleet.broker.server)


def test_a_dispatcher_is_told_who_took_what_waited() -> None:
    class Notes(Dispatcher):
        def __init__(self) -> None:
            self.told: list[str] = []

        def choose(self, members: list[Member], topic: str, publisher: str, now: float) -> Member:
            return members[0]

        def taken(self, member: Member, now: float) -> None:
            self.told.append("taken")

        def sent(self, member: Member, size: int, qos: int, now: float) -> None:
            self.told.append("sent")

        def readied(self, member: Member, now: float) -> None:
            self.told.append("readied")

    fleet = Fleet()
    client = fleet.member("m0", window=1)
    group = fleet.broker.server.router.groups.get("g", "t")
    assert group is not None
    notes = Notes()
    group.use(notes)
    fleet.publish(2)
    assert notes.told == ["sent"]
    client.send(Puback(1))
    assert notes.told == ["sent", "taken", "sent"]
    client.send(Puback(2))
    assert notes.told == ["sent", "taken", "sent", "readied"]


def test_what_is_unsent_is_not_given_back_where_another_subscription_may_have_brought_it() -> None:
    fleet = Fleet()
    stalled, other = fleet.member("stalled", 0), fleet.member("other", 0)
    stalled.send(Subscribe(2, [SubscribeRequest("#", 0)]))
    stalled.socket.room = 0
    fleet.publish(10, 0)
    stalled.lose()
    assert numbers(other) == [1, 3, 5, 7, 9]


def test_a_stream_stays_whole_when_part_of_it_is_taken_back() -> None:
    """The rest of the packet sent in part, what is not the group's, and our last words still come, in order."""
    fleet = Fleet()
    stalled = fleet.member("stalled", 0, expiry=0)
    fleet.member("other", 0)
    stalled.send(Subscribe(2, [SubscribeRequest("own", 0)]))
    stalled.packets()
    stalled.socket.room = 10
    fleet.publish(8, 0, size=20)
    fleet.publisher.send(Publish("own", b"own"))
    fleet.broker.server.disconnect(stalled.channel, 0x8B)
    fleet.broker.turn()
    check(fleet.broker.server)
    stalled.unblock()
    first, own, goodbye = stalled.packets()
    assert isinstance(first, Publish) and isinstance(own, Publish)
    assert (first.topic, own.topic) == ("t", "own")
    assert encode(goodbye, 5)[:1] == b"\xe0"


def test_many_messages_at_once_are_spread_evenly_and_none_is_lost() -> None:
    """A dispatcher may give a member several of them without looking at the others in between."""
    fleet = Fleet("adaptive")
    clients = [fleet.member(f"m{number}", 0) for number in range(3)]
    packets = [Publish("t", b"%04d" % number) for number in range(1000)]
    fleet.publisher.send(*packets)
    shares = [numbers(client) for client in clients]
    assert sorted(number for share in shares for number in share) == list(range(1000))
    assert all(share == sorted(share) for share in shares), "each in order"
    assert min(len(share) for share in shares) > 250
    group = fleet.broker.server.router.groups.get("g", "t")
    assert group is not None
    assert sum(member.sent_messages for member in group.members()) == group.sent_messages == 1000
    assert fleet.broker.server.stats.messages_sent == 1000
