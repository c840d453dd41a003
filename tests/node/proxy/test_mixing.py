"""One client and two servers: all three streams stay MQTT, whatever comes in whatever pieces."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.node.proxy import mixing
from headwater.node.proxy.cutting import LONGEST_HEAD, RAW, Cutter
from headwater.node.proxy.mixing import Mixed, Mixer
from headwater.wire.decode import FROM_CLIENT, FROM_SERVER, decode
from headwater.wire.encode import encode
from headwater.wire.framing import PacketReader
from headwater.wire.packets import (
    PUBLISH,
    SUBSCRIBE,
    V5,
    V311,
    Connack,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
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

versions = pytest.mark.parametrize("version", [V311, V5])


class Stream:
    """Of packets, in pieces."""

    def __init__(self, version: int, role: int) -> None:
        self.version = version
        self.role = role
        self.data = b""
        self._reader = PacketReader()

    def put(self, packet: Packet) -> None:
        self.data += encode(packet, self.version)

    def take(self, size: int) -> bytes:
        taken, self.data = self.data[:size], self.data[size:]
        return taken

    def feed(self, data: bytes) -> list[Packet]:
        self._reader.feed(data)
        return [decode(first, body, self.version, self.role) for first, body in self._reader]


class Server:
    """One of two: publishes to the client, answers what is asked."""

    def __init__(self, version: int, first_id: int, window: int, most_qos: int, name: str) -> None:
        self.out = Stream(version, FROM_SERVER)
        self.into = Stream(version, FROM_CLIENT)
        self.version = version
        self.flights: dict[int, str] = {}
        self.window = window
        self.most_qos = most_qos
        self.name = name
        self.number = 0
        self.next_id = first_id
        self.asked: list[Subscribe | Unsubscribe] = []
        self.acknowledged: list[int] = []
        self.sent: list[bytes] = []

    def publish(self, qos: int, size: int) -> None:
        qos = min(qos, self.most_qos)
        if qos and len(self.flights) >= self.window:
            return
        packet_id = 0
        if qos:
            while self.next_id in self.flights:
                self.next_id = self.next_id % 65535 + 1
            packet_id, self.next_id = self.next_id, self.next_id % 65535 + 1
            self.flights[packet_id] = "publish"
        self.number += 1
        payload = f"{self.name}{qos}{self.number}".encode() + bytes(size)
        self.sent.append(payload)
        self.out.put(Publish("t", payload, qos, packet_id=packet_id))

    def got(self, data: bytes) -> None:
        for packet in self.into.feed(data):
            if isinstance(packet, Puback):
                assert self.flights.pop(packet.packet_id) == "publish"
                self.acknowledged.append(packet.packet_id)
            elif isinstance(packet, Pubrec):
                assert self.flights[packet.packet_id] == "publish"
                if packet.reason >= 0x80:
                    del self.flights[packet.packet_id]
                    continue
                self.flights[packet.packet_id] = "release"
                self.out.put(Pubrel(packet.packet_id))
            elif isinstance(packet, Pubcomp):
                assert self.flights.pop(packet.packet_id) == "release"
            elif isinstance(packet, (Subscribe, Unsubscribe)):
                self.asked.append(packet)
            elif isinstance(packet, Pingreq):
                self.out.put(Pingresp())
            else:
                assert isinstance(packet, Publish)
                self.out.put(Puback(packet.packet_id))

    def answer(self) -> None:
        if not self.asked:
            return
        asked = self.asked.pop(0)
        if isinstance(asked, Subscribe):
            reasons = [(2 if self.name == "b" else 1) if each.filter[-1] != "!" else 0x80 for each in asked.requests]
            self.out.put(Suback(asked.packet_id, reasons))
        else:
            code = 0 if self.name == "b" else 17
            self.out.put(Unsuback(asked.packet_id, [code for _ in asked.filters] if self.version == V5 else []))


class World:
    def __init__(self, version: int, limit: int, random: Random, size: int) -> None:
        self.mixer = Mixer(version, limit)
        self.version = version
        self.limit = limit
        self.random = random
        self.size = size
        window = limit if version == V5 else 65535
        self.broker = Server(version, 65530, min(window, 40), 2, "b")
        self.leg = Server(version, 1, min(window, 40), 1, "l")
        self.out = Stream(version, FROM_CLIENT)
        self.into = Stream(version, FROM_SERVER)
        self.has: dict[int, str] = {}
        self.got: list[bytes] = []
        self.to_do: deque[Packet] = deque()
        self.asking: dict[int, list[Any]] = {}
        self.answered = 0
        self.pings = 0
        self.packet_id = 0
        self.out.put(Subscribe(60000, [SubscribeRequest("first", 2)]))
        self.asking[60000] = [2]
        self.mixer.from_client(self.out.take(1000))  # before, nobody may send it anything
        self.take_out()

    def take_out(self) -> None:
        mixer = self.mixer
        client, broker, leg = b"".join(mixer.to_client), b"".join(mixer.to_broker), b"".join(mixer.to_leg)
        mixer.to_client.clear()
        mixer.to_broker.clear()
        mixer.to_leg.clear()
        self.broker.got(broker)
        self.leg.got(leg)
        for packet in self.into.feed(client):
            self._client_gets(packet)

    def _client_gets(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self.got.append(packet.payload)
            if packet.qos:
                assert packet.packet_id not in self.has
                self.has[packet.packet_id] = "publish"
                assert len(self.has) <= self.limit
                self.to_do.append(Puback(packet.packet_id) if packet.qos == 1 else Pubrec(packet.packet_id))
        elif isinstance(packet, Pubrel):
            assert self.has[packet.packet_id] == "received"
            self.to_do.append(Pubcomp(packet.packet_id))
        elif isinstance(packet, (Suback, Unsuback)):
            expected = self.asking.pop(packet.packet_id)
            assert packet.reasons == expected
            self.answered += 1
        elif isinstance(packet, Pingresp):
            self.pings -= 1
        else:
            assert isinstance(packet, Puback)

    def client_answers(self) -> None:
        """One of its messages; not always in order."""
        if not self.to_do:
            return
        self.to_do.rotate(self.random.randrange(3))
        packet = self.to_do.popleft()
        packet_id = packet.packet_id  # type: ignore[attr-defined]
        if isinstance(packet, Pubrec) and self.version == V5 and self.random.random() < 0.2:
            packet.reason = 0x83
            del self.has[packet_id]
        elif isinstance(packet, Pubrec):
            self.has[packet_id] = "received"
        else:
            del self.has[packet_id]
            if isinstance(packet, Puback) and self.version == V5 and self.random.random() < 0.2:
                packet.properties = Properties(reason_string="r" * 200)
        self.out.put(packet)

    def client_asks(self) -> None:
        self.packet_id = self.packet_id % 50000 + 1
        names = self.random.sample(["a", "b!", "$share/g/f", "$share/h/f!", "$share/i/#", "$share/x", "c/#"], 4)
        names = names[: self.random.randrange(1, 4)]
        if self.random.random() < 0.5:
            self.asking[self.packet_id] = [
                0x80 if name[-1] == "!" else 1 if mixing.is_shared(name) else 2 for name in names
            ]
            self.out.put(Subscribe(self.packet_id, [SubscribeRequest(name, 2) for name in names]))
        else:
            # What it was subscribed to at the leg by then, in the order of its packets.
            self.asking[self.packet_id] = (
                [17 if name in self.subscribed() else 0 for name in names] if self.version == V5 else []
            )
            self.out.put(Unsubscribe(self.packet_id, names))

    def subscribed(self) -> set[str]:
        """By what it has said, sent or not."""
        found = set(self.mixer.names)
        for packet in Stream(self.version, FROM_CLIENT).feed(self.mixer_unread + self.out.data):
            if isinstance(packet, Subscribe):
                found |= {each.filter for each in packet.requests if mixing.is_shared(each.filter)}
            elif isinstance(packet, Unsubscribe):
                found -= set(packet.filters)
        return found

    mixer_unread = b""

    def move(self, chosen: int) -> None:
        size = self.random.randrange(1, self.size)
        if chosen == 0:
            data = self.out.take(size)
            self.mixer_unread += data
            self.mixer.from_client(data)
            self._forget_read()
        elif chosen == 1 and not self.mixer.is_stalled:
            self.mixer.from_broker(self.broker.out.take(size))
        elif chosen == 2 and not self.mixer.is_full:
            self.mixer.from_leg(self.leg.out.take(size))
        self.take_out()

    def _forget_read(self) -> None:
        """Keep what is not a whole packet yet."""
        reader, unread = PacketReader(), self.mixer_unread
        reader.feed(unread)
        at = sum(len(mixing._whole(first, body)) for first, body in reader)
        self.mixer_unread = unread[at:]

    def finish(self) -> None:
        """Everybody does what is to be done."""
        self.size = 10_000
        for _ in range(3000):
            for chosen in range(3):
                self.move(chosen)
            self.client_answers()
            self.broker.answer()
            self.leg.answer()
            is_over = not (self.out.data or self.broker.out.data or self.leg.out.data or self.to_do)
            if is_over and not (self.broker.flights or self.leg.flights or self.asking or self.broker.asked):
                return
        raise AssertionError("it does not come to an end")


@settings(max_examples=250, deadline=None)
@given(
    st.sampled_from([V311, V5]),
    st.sampled_from([1, 2, 5, 30]),
    st.lists(st.integers(0, 11), max_size=120),
    st.integers(0, 1 << 30),
    st.sampled_from([2, 9, 60, 4000]),
)
def test_all_streams_stay_mqtt(version: int, limit: int, steps: list[int], seed: int, size: int) -> None:
    """No packet id is used twice, each packet is answered once, and the receive maximum holds; every message comes, in
    the order of its server and QoS."""
    random = Random(seed)
    world = World(version, limit if version == V5 else 65535, random, size)
    for step in steps:
        if step < 3:
            world.move(step)
        elif step < 5:
            world.broker.publish(random.randrange(3), random.choice([0, 0, 0, 200, 5000]))
        elif step < 7:
            world.leg.publish(random.randrange(3), random.choice([0, 0, 0, 200, 5000]))
        elif step == 7:
            world.client_asks()
        elif step == 8:
            world.client_answers()
        elif step == 9:
            world.broker.answer()
        elif step == 10:
            world.leg.answer()
        else:
            world.out.put(Pingreq())
            world.pings += 1
    world.finish()
    assert world.pings == 0 and not world.has
    for server in (world.broker, world.leg):
        assert not server.flights
        for qos in "012":
            begin = f"{server.name}{qos}".encode()
            sent = [each for each in server.sent if each.startswith(begin)]
            assert [each for each in world.got if each.startswith(begin)] == sent


def active(version: int = V5, limit: int = 65535) -> Mixer:
    mixer = Mixer(version, limit)
    mixer.is_active = True
    return mixer


def packets(pieces: list[bytes], version: int, role: int) -> list[Packet]:
    found = Stream(version, role).feed(b"".join(pieces))
    pieces.clear()
    return found


@versions
def test_a_subscribe_is_divided_and_its_answers_are_put_together(version: int) -> None:
    mixer = Mixer(version, 65535)
    names = ["a", "$share/g/b", "c"]
    mixer.from_client(encode(Subscribe(9, [SubscribeRequest(each, 2) for each in names]), version))
    assert packets(mixer.to_leg, version, FROM_CLIENT) == [Subscribe(9, [SubscribeRequest("$share/g/b", 1)])]
    assert packets(mixer.to_broker, version, FROM_CLIENT) == [
        Subscribe(9, [SubscribeRequest("a", 2), SubscribeRequest("c", 2)])
    ]
    mixer.from_broker(encode(Suback(9, [2, 0x80]), version))
    assert not mixer.to_client
    mixer.from_leg(encode(Suback(9, [1]), version))
    assert packets(mixer.to_client, version, FROM_SERVER) == [Suback(9, [2, 1, 0x80])]


@versions
def test_if_nothing_is_left_the_home_broker_is_not_asked(version: int) -> None:
    mixer = Mixer(version, 65535)
    mixer.from_client(encode(Subscribe(9, [SubscribeRequest("$share/g/b", 0)]), version))
    assert not mixer.to_broker
    mixer.from_leg(encode(Suback(9, [0]), version))
    assert packets(mixer.to_client, version, FROM_SERVER) == [Suback(9, [0])]
    mixer.to_leg.clear()
    mixer.from_client(encode(Unsubscribe(10, ["$share/g/b"]), version))
    assert not mixer.to_broker and packets(mixer.to_leg, version, FROM_CLIENT) == [Unsubscribe(10, ["$share/g/b"])]


def test_what_comes_back_to_a_name_that_only_the_broker_knows() -> None:
    """From before the proxy kept groups."""
    mixer = active()
    packet = encode(Unsubscribe(3, ["$share/g/b"]), V5)
    mixer.from_client(packet)
    assert mixer.to_broker == [packet] and not mixer.to_leg


def test_a_message_of_the_leg_waits_for_the_end_of_a_packet() -> None:
    mixer = active()
    packet = encode(Publish("t", bytes(100)), V5)
    mixer.from_broker(packet[:50])
    mixer.from_leg(encode(Publish("s", b"x"), V5))
    assert b"".join(mixer.to_client) == packet[:50]
    mixer.from_broker(packet[50:])
    assert [each.topic for each in packets(mixer.to_client, V5, FROM_SERVER)] == ["t", "s"]  # type: ignore[attr-defined]


def test_who_waits_for_puback_before_it_acknowledges_does_not_wait_for_ever() -> None:
    mixer = active(limit=1)
    mixer.from_leg(encode(Publish("s", b"x", 1, packet_id=1), V5))
    mixer.from_broker(encode(Publish("t", b"y", 1, packet_id=1), V5) + encode(Puback(7), V5))
    first, second = packets(mixer.to_client, V5, FROM_SERVER)
    assert isinstance(first, Publish) and first.topic == "s" and second == Puback(7)
    mixer.from_client(encode(Puback(first.packet_id), V5))
    assert packets(mixer.to_leg, V5, FROM_CLIENT) == [Puback(1)]
    [third] = packets(mixer.to_client, V5, FROM_SERVER)
    assert isinstance(third, Publish) and third.topic == "t"


def test_a_large_message_that_has_to_wait_stalls_its_broker() -> None:
    mixer = active(limit=1)
    mixer.from_leg(encode(Publish("s", b"x", 1, packet_id=1), V5))
    [first] = packets(mixer.to_client, V5, FROM_SERVER)
    assert isinstance(first, Publish)
    large = encode(Publish("t", bytes(mixing.LARGEST_KEPT + 1), 1, packet_id=1), V5)
    mixer.from_broker(large[:100_000])
    assert mixer.is_stalled and not mixer.to_client
    mixer.from_broker(large[100_000:] + encode(Pingresp(), V5))
    mixer.from_client(encode(Puback(first.packet_id), V5))
    assert not mixer.is_stalled
    second, third = packets(mixer.to_client, V5, FROM_SERVER)
    assert isinstance(second, Publish) and second.topic == "t" and third == Pingresp()


def test_what_the_leg_ends_ends_the_client() -> None:
    for packet in (Connack(False, 0x87), Disconnect(0x82)):
        with pytest.raises(Mixed):
            active().from_leg(encode(packet, V5))


def test_packets_without_answers_are_bounded() -> None:
    mixer = Mixer(V5, 10)
    for number in range(mixing.MOST_PENDING):
        mixer.from_client(encode(Subscribe(number + 1, [SubscribeRequest("$share/g/b", 0)]), V5))
    with pytest.raises(Mixed):
        mixer.from_client(encode(Subscribe(60000, [SubscribeRequest("$share/g/b", 0)]), V5))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400), st.lists(st.integers(1, 50)), st.booleans())
def test_whatever_comes_nothing_is_raised_but_mixed(data: bytes, cuts: list[int], is_broker: bool) -> None:
    """And what is not divided passes as it is."""
    mixer = active()
    at = 0
    for size in [*cuts, len(data)]:
        piece = data[at : at + size]
        at += size
        if is_broker:
            mixer.from_broker(piece)
        else:
            mixer.from_client(piece)
    passed = b"".join(mixer.to_client if is_broker else mixer.to_broker)
    assert len(passed) <= len(data)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 90_000)), max_size=6), st.integers(1, 70_000))
def test_a_cutter_loses_no_byte(sizes: list[tuple[int, int]], piece: int) -> None:
    made = [
        encode(Publish("t" * (size % 5 + 1), bytes(size), qos and 1, packet_id=qos and 7), V5) for qos, size in sizes
    ]
    data = b"".join(made)
    cutter = Cutter(0)
    found: list[tuple[int, bytes]] = []
    for at in range(0, len(data), piece):
        found += cutter.cut(data[at : at + piece], 1 << PUBLISH | 1 << SUBSCRIBE)
    assert b"".join(each for _, each in found) == data and cutter.is_between
    whole = [each for first, each in found if first != RAW and len(each) <= LONGEST_HEAD]
    assert (
        whole == [each for each in made if each[0] & 6 and len(each) <= LONGEST_HEAD]
        or max(map(len, made)) > LONGEST_HEAD
    )
