"""Passages of a relay on real sockets: when there are any, and that the tap learns what it learns without them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.node.proxy.pair import Pair
from headwater.wire.packets import Packet, Publish, Suback, Subscribe, SubscribeRequest, Unsuback, Unsubscribe
from tests.node.proxy.relaying import (
    Running,
    Way,
    does_not_come,
    in_version,
    listening,
    open_pair,
    port_of,
    read,
    relaying,
    rest,
)

MESSAGE = in_version(Publish("t", b"x" * 50))
SUBSCRIBE = in_version(Subscribe(1, [SubscribeRequest("a", 1)]))


class Opened:
    """A relay with a client that its broker has accepted."""

    def __init__(self, running: Running, server: socket.socket) -> None:
        self.running = running
        self.client, self.broker = open_pair(running, server)

    @property
    def pair(self) -> Pair:
        return next(iter(self.running.relay.ends.values())).pair

    def has_passages(self) -> list[bool]:
        """From the client, from the broker."""
        return self.running.call(lambda: [end is not None and end.has_passage for end in self.ends()])  # type: ignore[no-any-return]

    def ends(self) -> list[object]:
        return [self.pair.client, self.pair.broker]

    def pass_up(self, data: bytes) -> None:
        """To the broker, in one piece."""
        self.client.sendall(data)
        assert read(self.broker, len(data)) == data

    def pass_down(self, data: bytes) -> None:
        self.broker.sendall(data)
        assert read(self.client, len(data)) == data

    def close(self) -> None:
        self.client.close()
        self.broker.close()


@pytest.fixture
def opened(passing: ModuleType) -> Iterator[Opened]:
    with listening() as server, relaying(port_of(server), short_way=passing.Passages) as running:
        made = Opened(running, server)
        yield made
        made.close()


def test_a_client_that_was_accepted_has_passages_and_what_is_in_parts_goes_the_other_way(opened: Opened) -> None:
    assert opened.has_passages() == [True, True]
    opened.pass_up(MESSAGE + MESSAGE[:20])  # the middle of a packet that does not matter
    assert opened.has_passages() == [True, True]
    opened.pass_up(MESSAGE[20:] + SUBSCRIBE[:5])
    assert opened.has_passages() == [False, True]
    opened.pass_up(SUBSCRIBE[5:])
    assert opened.has_passages() == [True, True]
    opened.pass_down(in_version(Suback(1, [1])) + MESSAGE)
    opened.pass_up(MESSAGE)
    opened.pass_down(MESSAGE)
    assert opened.has_passages() == [True, True]
    assert opened.running.notes.told[1:] == [("subscribing", "c", 1, [("a", 1)])]
    counters = opened.running.relay.counters
    assert counters.bytes_from_broker == 4 + len(in_version(Suback(1, [1]))) + 2 * len(MESSAGE)


def test_what_was_learned_of_reads_comes_back(opened: Opened) -> None:
    """How large they are, where in a packet they end, and how many packets there were."""
    opened.pass_up(in_version(Publish("t", bytes(3000)))[:2048])
    pair = opened.pair
    running = opened.running
    assert pair.client is not None
    assert pair.tap is not None
    running.call(lambda: running.relay.passages.close(pair))  # type: ignore[union-attr]
    assert opened.has_passages() == [False, False]
    assert pair.client.read_size == 4096
    assert pair.tap.of_client.simple_skip == 3000 + 6 - 2048
    assert pair.tap.of_client.packets == 1
    opened.pass_up(in_version(Publish("t", bytes(3000)))[2048:] + SUBSCRIBE)
    opened.pass_down(in_version(Suback(1, [1])))
    assert len(running.notes.told) == 2


def test_no_passage_leads_to_a_descriptor_that_is_closed(opened: Opened) -> None:
    """The client gets the words, and what it still sends goes nowhere, not even to who has the descriptor next."""
    running = opened.running
    pair = opened.pair
    opened.pass_down(MESSAGE)

    def part() -> tuple[socket.socket, socket.socket]:
        """And two sockets, one of which has the broker's descriptor."""
        running.relay.part(pair, b"words")
        assert pair.client is not None
        assert not pair.client.has_passage
        running.relay.close_sockets()
        return socket.socketpair()

    first, second = running.call(part)
    assert rest(opened.broker) == b""
    assert read(opened.client, 5) == b"words"
    opened.client.sendall(MESSAGE)
    with first, second:
        assert does_not_come(first)
        assert does_not_come(second)


def test_the_words_do_not_come_within_a_packet(opened: Opened) -> None:
    opened.pass_down(MESSAGE[:-1])
    pair = opened.pair
    opened.running.call(lambda: opened.running.relay.part(pair, b"words"))
    assert rest(opened.client) == b""


# ---- never a second meaning --------------------------------------------------------------------------------------

UP: list[Packet] = [
    Publish("t", b"x" * 50),
    Publish("r", b"y", retain=True),
    Subscribe(1, [SubscribeRequest("a", 1)]),
    Subscribe(2, [SubscribeRequest("b/#", 0), SubscribeRequest("c", 0)]),
    Unsubscribe(3, ["a"]),
]
DOWN: list[Packet] = [Publish("t", b"x" * 50), Suback(1, [1]), Suback(2, [0, 0x80]), Unsuback(3)]
STEPS = st.lists(
    st.tuples(st.booleans(), st.lists(st.integers(0, 4), min_size=1, max_size=4), st.lists(st.integers(0, 99))),
    max_size=6,
)


@pytest.fixture(scope="module")
def both(passing: ModuleType) -> Iterator[list[tuple[Running, socket.socket]]]:
    """A relay of its own way, and one with passages."""
    with (
        listening() as one,
        listening() as other,
        relaying(port_of(one)) as own,
        relaying(port_of(other), short_way=passing.Passages) as short,
    ):
        yield [(own, one), (short, other)]


@settings(max_examples=40, deadline=None)
@given(STEPS, st.binary(max_size=40))
def test_the_tap_learns_the_same_whatever_is_between(
    both: list[tuple[Running, socket.socket]], steps: list[tuple[bool, list[int], list[int]]], last: bytes
) -> None:
    """Packets both ways in whatever pieces, each read alone, and something that is no MQTT at the end."""
    told = []
    for running, server in both:
        running.notes.told.clear()
        opened = Opened(running, server)
        for is_up, numbers, cuts in steps:
            known = UP if is_up else DOWN
            data = in_version(*[known[each % len(known)] for each in numbers])
            at = 0
            for cut in [*sorted({each % len(data) for each in cuts}), len(data)]:
                if cut > at:
                    (opened.pass_up if is_up else opened.pass_down)(data[at:cut])
                    at = cut
        if last:
            opened.pass_up(last)
        tap = opened.pair.tap
        assert tap is not None
        is_blind = tap.is_blind
        opened.close()
        running.wait_until(lambda running=running: not running.relay.ends)  # type: ignore[misc]
        told.append((running.notes.told.copy(), is_blind))
    assert told[0] == told[1]


def test_a_way_is_taken(way: Way) -> None:
    with listening() as server, relaying(port_of(server), short_way=way) as running:
        opened = Opened(running, server)
        opened.pass_up(MESSAGE)
        assert opened.has_passages() == [way is not None] * 2
        opened.close()
