"""What the tap tells of a client, from bytes alone; and SUBACKs that are held back, on real sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.node.proxy.tapping import LARGEST_KEPT, MOST_ALIASED, MOST_ALIASES, MOST_PENDING, Tap
from headwater.wire.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Properties,
    Publish,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
)
from tests.node.proxy.relaying import (
    Notes,
    Running,
    Way,
    connect_packet,
    does_not_come,
    in_version,
    listening,
    open_pair,
    port_of,
    read,
    relaying,
    rest,
)


class Tapped:
    """A tap with what it tells; `accepted` has heard CONNACK."""

    def __init__(self, connect: Connect | None = None, version: int = 4) -> None:
        self.version = version
        self.notes = Notes()
        self.resumed = 0
        self.tap = Tap(connect or Connect("c", version), self.notes, self.resume)

    def resume(self) -> None:
        self.resumed += 1

    @classmethod
    def accepted(cls, version: int = 4) -> Tapped:
        tapped = cls(version=version)
        tapped.broker(Connack())
        tapped.notes.told.clear()
        return tapped

    def client(self, *packets: Packet) -> None:
        self.tap.from_client(in_version(*packets, version=self.version))

    def broker(self, *packets: Packet) -> int:
        return self.tap.from_broker(in_version(*packets, version=self.version))

    @property
    def told(self) -> list[tuple[object, ...]]:
        return self.notes.told


def subscribe(packet_id: int, *filters: str) -> Subscribe:
    return Subscribe(packet_id, [SubscribeRequest(each, 1) for each in filters])


# ---- sessions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("connect", "connack", "persists"),
    [
        (Connect("c", 4, clean_start=True), Connack(), False),
        (Connect("c", 4, clean_start=False), Connack(), True),
        (Connect("c", 3, clean_start=False), Connack(), True),
        (Connect("c", 5, clean_start=False), Connack(), False),
        (Connect("c", 5, properties=Properties(session_expiry_interval=5)), Connack(), True),
        (Connect("c", 5), Connack(properties=Properties(session_expiry_interval=5)), True),
        (
            Connect("c", 5, properties=Properties(session_expiry_interval=5)),
            Connack(properties=Properties(session_expiry_interval=0)),
            False,
        ),
    ],
)
def test_whether_a_session_outlives_its_connection(connect: Connect, connack: Connack, persists: bool) -> None:
    version = 4 if connect.version == 3 else connect.version
    tapped = Tapped(connect, version)
    tapped.broker(connack)
    tapped.tap.close()
    assert tapped.told == [("opened", "c", version, persists, False), ("closed", "c", not persists)]


def test_a_goodbye_may_change_how_long_a_session_lives() -> None:
    tapped = Tapped(Connect("c", 5, properties=Properties(session_expiry_interval=5)), 5)
    tapped.broker(Connack())
    tapped.client(Disconnect(properties=Properties(session_expiry_interval=0)))
    tapped.tap.close()
    assert tapped.told[-1] == ("closed", "c", True)


def test_a_session_that_was_there() -> None:
    tapped = Tapped(Connect("c", 4, clean_start=False))
    tapped.broker(Connack(session_present=True))
    assert tapped.told == [("opened", "c", 4, True, True)]


def test_of_who_is_refused_nothing_is_told() -> None:
    for version, reason in ((4, 5), (5, 0x87)):
        tapped = Tapped(version=version)
        tapped.broker(Connack(reason=reason))
        assert not tapped.tap.is_accepted
        tapped.tap.close()
        assert tapped.told == []


def test_ids_that_the_broker_gives() -> None:
    tapped = Tapped(Connect("", 5), 5)
    tapped.broker(Connack(properties=Properties(assigned_client_identifier="given")))
    assert tapped.told == [("opened", "given", 5, False, False)]
    names = set()
    for _ in range(3):
        tapped = Tapped(Connect("", 4))
        tapped.broker(Connack())
        names.add(tapped.told[0][1])
    assert len(names) == 3


# ---- filters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 5])
def test_filters_count_from_their_acknowledgement_on(version: int) -> None:
    tapped = Tapped.accepted(version)
    tapped.client(subscribe(7, "a/+", "b", "c"))
    assert tapped.told == []
    assert tapped.broker(Publish("x"), Suback(7, [1, 0x80, 0])) == -1
    assert tapped.told == [("subscribing", "c", 7, [("a/+", 1), ("c", 0)])]
    tapped.client(Unsubscribe(8, ["a/+", "c"]))
    assert len(tapped.told) == 1
    tapped.broker(Unsuback(8, [0, 0] if version == 5 else []))
    assert tapped.told[1:] == [("unsubscribed", "c", ["a/+", "c"])]


def test_a_subscription_that_was_refused_is_none() -> None:
    tapped = Tapped.accepted()
    tapped.client(subscribe(7, "a"))
    tapped.broker(Suback(7, [0x80]), Suback(8, [0]))
    assert tapped.told == []


PACKETS = st.lists(
    st.sampled_from(
        [
            subscribe(1, "a"),
            subscribe(2, "b/#", "c"),
            Unsubscribe(3, ["a"]),
            Publish("t", b"x" * 50),
            Publish("r", b"y", retain=True),
            Publish("r", b"", 1, True, False, 9),
        ]
    ),
    max_size=8,
)


@given(PACKETS, st.lists(st.integers(0, 1 << 20), max_size=10))
def test_what_is_told_does_not_depend_on_how_bytes_are_cut(packets: list[Packet], where: list[int]) -> None:
    whole, parts = Tapped.accepted(), Tapped.accepted()
    sent = in_version(*packets)
    answers = in_version(Suback(1, [1]), Publish("x"), Suback(2, [0, 0]), Unsuback(3))
    for data, ways in (
        (sent, (whole.tap.from_client, parts.tap.from_client)),
        (answers, (whole.tap.from_broker, parts.tap.from_broker)),
    ):
        ways[0](data)
        at = sorted({each % (len(data) + 1) for each in where} | {0, len(data)})
        for a, b in pairwise(at):
            ways[1](data[a:b])
    assert whole.told == parts.told


# ---- retained messages ---------------------------------------------------------------------------------------------


def test_messages_to_be_retained_are_told() -> None:
    tapped = Tapped.accepted()
    tapped.client(Publish("a", b"1"), Publish("a", b"2", 1, True, False, 4), Publish("a", b"", retain=True))
    assert tapped.told == [("retained", "c", "a", b"2", 1), ("retained", "c", "a", b"", 0)]


def test_of_a_large_retained_message_the_topic_is_told() -> None:
    tapped = Tapped.accepted()
    tapped.client(Publish("a", bytes(LARGEST_KEPT), retain=True), Publish("b", b"", retain=True))
    assert tapped.told == [("retained", "c", "a", None, 0), ("retained", "c", "b", b"", 0)]
    assert not tapped.tap.is_blind


def test_topic_aliases_of_retained_messages() -> None:
    tapped = Tapped.accepted(5)
    alias = Properties(topic_alias=3)
    tapped.client(Publish("a", b"1", retain=True, properties=alias), Publish("", b"2", retain=True, properties=alias))
    assert [each[2:4] for each in tapped.told] == [("a", b"1"), ("a", b"2")]


def test_aliases_that_are_remembered_are_bounded() -> None:
    tapped = Tapped.accepted(5)
    for alias in range(1, MOST_ALIASES + 2):
        tapped.client(Publish(f"t/{alias}", b"", retain=True, properties=Properties(topic_alias=alias)))
    tapped.told.clear()
    for alias in (MOST_ALIASES, MOST_ALIASES + 1):
        tapped.client(Publish("", b"", retain=True, properties=Properties(topic_alias=alias)))
    assert [each[2] for each in tapped.told] == [f"t/{MOST_ALIASES}"]


def test_the_topics_of_aliases_are_bounded() -> None:
    tapped = Tapped.accepted(5)
    for alias in range(1, 20):
        tapped.client(Publish("t" * 60_000, b"", retain=True, properties=Properties(topic_alias=alias)))
    assert tapped.tap.kept <= MOST_ALIASED
    tapped.client(Publish("short", b"", retain=True, properties=Properties(topic_alias=1)))
    tapped.told.clear()
    for alias in (1, 2):
        tapped.client(Publish("", b"", retain=True, properties=Properties(topic_alias=alias)))
    assert [each[2] for each in tapped.told] == ["short"]


# ---- what is not understood --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [b"\x82\x01\x00", b"\x80\x06\x00\x01\x00\x01a\x00", b"\x30\xff\xff\xff\xff\x7f", b"\x82\x02\x00\x01"],
    ids=["cut short", "flags", "length", "no filters"],
)
def test_what_is_not_understood_makes_the_tap_blind(data: bytes) -> None:
    tapped = Tapped.accepted()
    tapped.tap.from_client(data)
    assert tapped.tap.is_blind
    tapped.client(subscribe(1, "a"))
    assert tapped.broker(Suback(1, [0])) == -1
    assert tapped.told == []
    tapped.tap.close()
    assert tapped.told == [("closed", "c", True)]


def test_who_cannot_be_understood_is_logged_when_the_broker_has_accepted_it(caplog: pytest.LogCaptureFixture) -> None:
    """Strangers write no log, and nobody much of it."""
    tapped = Tapped(Connect("\x01" * 60_000, 4))
    tapped.tap.from_client(b"\x82\x01\x00")
    assert tapped.tap.is_blind
    assert not caplog.records
    tapped.broker(Connack())
    assert [len(each.getMessage()) < 1000 for each in caplog.records] == [True]


def test_what_comes_behind_connect_may_come_again() -> None:
    """From its beginning, where the broker that had it first has not taken it."""
    tapped = Tapped()
    first = in_version(subscribe(1, "a"), subscribe(2, "b"))
    tapped.tap.from_client(first[:-3])
    tapped.tap.begin()
    tapped.tap.from_client(first[:-3])
    tapped.tap.from_client(first[-3:])
    tapped.broker(Connack(), Suback(1, [0]), Suback(2, [0]))
    assert [each[3] for each in tapped.told[1:]] == [[("a", 0)], [("b", 0)]]


def test_filters_that_wait_for_the_broker_are_bounded() -> None:
    tapped = Tapped.accepted()
    size = 60_000
    number = MOST_PENDING // size
    for packet_id in range(1, number + 1):
        tapped.client(subscribe(packet_id, "x" * size))
    assert not tapped.tap.is_blind
    tapped.client(subscribe(number + 1, "x" * size))
    assert tapped.tap.is_blind


def test_filters_that_were_acknowledged_make_room() -> None:
    tapped = Tapped.accepted()
    for packet_id in range(1, 200):
        tapped.client(subscribe(packet_id, "x" * 60_000))
        tapped.broker(Suback(packet_id, [0]))
    assert not tapped.tap.is_blind


@given(st.lists(st.binary(max_size=60), max_size=10), st.lists(st.binary(max_size=60), max_size=10))
def test_hostile_bytes_raise_nothing(up: list[bytes], down: list[bytes]) -> None:
    tapped = Tapped.accepted()
    for data in up:
        tapped.tap.from_client(data)
    for data in down:
        tapped.tap.from_broker(data)
    tapped.tap.close()


# ---- held back ---------------------------------------------------------------------------------------------------


@pytest.fixture
def held(way: Way) -> Iterator[tuple[Running, socket.socket, socket.socket]]:
    with listening() as server, relaying(port_of(server), short_way=way) as running:
        client, broker = open_pair(running, server)
        running.notes.holds = True
        with client, broker:
            client.sendall(in_version(subscribe(1, "a"), subscribe(2, "b")))
            sent = in_version(subscribe(1, "a"), subscribe(2, "b"))
            assert read(broker, len(sent)) == sent
            yield running, client, broker


def test_a_suback_waits_for_its_release_and_all_behind_it_in_order(
    held: tuple[Running, socket.socket, socket.socket],
) -> None:
    running, client, broker = held
    before, behind = in_version(Publish("x", b"before")), in_version(Suback(1, [0]), Publish("a", b"behind"))
    broker.sendall(before + behind)
    assert read(client, len(before)) == before
    running.wait_until(lambda: len(running.notes.releases) == 1)
    later = in_version(Publish("a", b"later"))
    broker.sendall(later)
    assert does_not_come(client)
    running.call(running.notes.releases[0])
    assert read(client, len(behind + later)) == behind + later
    running.call(running.notes.releases[0])  # more than once is as once
    broker.sendall(before)
    assert read(client, len(before)) == before


def test_two_subacks_in_the_same_bytes(held: tuple[Running, socket.socket, socket.socket]) -> None:
    running, client, broker = held
    both = in_version(Suback(1, [0]), Suback(2, [0]))
    broker.sendall(both)
    running.wait_until(lambda: len(running.notes.releases) == 2)
    running.call(running.notes.releases[1])
    assert does_not_come(client)
    running.call(running.notes.releases[0])
    assert read(client, len(both)) == both


def test_a_suback_that_is_held_when_the_broker_ends(held: tuple[Running, socket.socket, socket.socket]) -> None:
    running, client, broker = held
    broker.sendall(in_version(Suback(1, [0])))
    broker.shutdown(socket.SHUT_WR)
    running.wait_until(lambda: len(running.notes.releases) == 1)
    assert does_not_come(client)
    running.call(running.notes.releases[0])
    assert rest(client) == in_version(Suback(1, [0]))


def test_a_client_that_goes_while_its_suback_is_held(held: tuple[Running, socket.socket, socket.socket]) -> None:
    running, client, broker = held
    broker.sendall(in_version(Suback(1, [0])))
    running.wait_until(lambda: len(running.notes.releases) == 1)
    client.close()
    assert rest(broker) == b""
    broker.close()
    running.call(running.notes.releases[0])
    running.wait_until(lambda: not running.relay.ends)
    assert running.notes.told[-1] == ("closed", "c", True)


def test_without_an_answer_of_the_broker_nothing_is_told() -> None:
    with listening() as server, relaying(port_of(server)) as running, running.connect() as client:
        client.sendall(connect_packet())
        server.accept()[0].close()
        rest(client)
        assert running.notes.told == []
