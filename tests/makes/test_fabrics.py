"""Six makes in one fabric: what is published at one comes to the clients of all, as often as it was published.

aedes loses messages by itself (docs/brokers.md): of QoS 2 among QoS 0, and what is under way when a client with a
lasting session, as the proxy's own is, changes its subscriptions. So it is not counted exactly, but must hear all and
be heard.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from headwater.wire.packets import V5, V311, Connect, Publish, SubscribeRequest, Will
from headwater_lab.makes.fabric import Member, fabric
from headwater_lab.makes.hand import Closed, Hand
from headwater_lab.makes.looks.qos import GIVEN, lost_properties
from headwater_lab.makes.nodes import MAKES
from tests.makes.conftest import there

SENT = 30
PATIENCE = 30.0
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Member]]:
    names = [there(make).name for make in MAKES]
    with fabric(tmp_path_factory.mktemp("fabric"), names) as members:
        yield members


@pytest.fixture
def exact(members: list[Member]) -> list[Member]:
    return [member for member in members if member.name != "aedes"]


def client(member: Member, connect: Connect | None = None, version: int = V311) -> Hand:
    hand = Hand(member.port, version)
    assert hand.connect(f"fabric-client-{next(NUMBERS)}", connect).reason == 0
    return hand


@contextlib.contextmanager
def everywhere(members: Sequence[Member], topic: str, qos: int = 1) -> Iterator[dict[str, Hand]]:
    """A client at each door that has subscribed, by the name of its make. SUBACK says that all doors know of it."""
    with contextlib.ExitStack() as stack:
        hands = {member.name: stack.enter_context(client(member)) for member in members}
        for hand in hands.values():
            hand.subscribe(SubscribeRequest(topic, qos))
        yield hands


def topics_of(hand: Hand) -> Counter[str]:
    return Counter(each.topic for each in hand.messages)


def wait_for(hands: dict[str, Hand], topics: Counter[str]) -> None:
    """Until each has as many of each topic, at least."""
    for name, hand in hands.items():
        try:
            hand.until(lambda hand=hand: topics_of(hand) >= topics, patience=PATIENCE)  # type: ignore[misc]
        except Closed as problem:
            raise AssertionError(f"at {name}: {problem}; there lack {topics - topics_of(hand)}") from None


@pytest.mark.parametrize("qos", [0, 1])
def test_the_same_payload_comes_as_often_as_it_was_published(exact: list[Member], qos: int) -> None:
    """Nothing is taken for a loop, and nothing loops: what a second round brings comes once."""
    with everywhere(exact, f"same{qos}/#", qos) as hands:
        expected: Counter[str] = Counter()
        for times in (SENT, 1):
            for name, publisher in hands.items():
                expected[f"same{qos}/{name}"] += times
                for _ in range(times):
                    publisher.publish(Publish(f"same{qos}/{name}", b"the same", qos))
            wait_for(hands, expected)
        for name, hand in hands.items():
            hand.barrier()
            assert topics_of(hand) == expected, f"at {name}"


def test_a_will_comes_to_all(exact: list[Member]) -> None:
    with everywhere(exact, "will/#") as hands:
        for member in exact:
            client(member, Connect(will=Will(f"will/{member.name}", b"gone", 1))).cut()
        expected = Counter(f"will/{member.name}" for member in exact)
        wait_for(hands, expected)
        for name, hand in hands.items():
            assert topics_of(hand) == expected, f"at {name}"


def test_properties_come_where_makes_know_them(members: list[Member]) -> None:
    of_version_5 = [member for member in members if "mqtt5" in member.make.features]
    assert len(of_version_5) == 2
    for far, near in itertools.permutations(of_version_5, 2):
        topic = f"properties/{far.name}"
        with client(near, version=V5) as hand, client(far, version=V5) as publisher:
            hand.subscribe(SubscribeRequest(topic, 1))
            publisher.publish(Publish(topic, b"with", 1, properties=GIVEN))
            hand.until(lambda hand=hand: bool(hand.messages), patience=PATIENCE)  # type: ignore[misc]
            assert lost_properties(hand.messages[0]) == []


def test_the_quality_of_service_is_the_lower_one_of_the_makes(exact: list[Member]) -> None:
    """Published with QoS 2, subscribed with 2, as far as makes let clients do so."""
    highest = {member.name: 2 if "qos2" in member.make.features else 1 for member in exact}
    with everywhere(exact, "qos/#", 2) as hands:
        for name, publisher in hands.items():
            publisher.publish(Publish(f"qos/{name}", b"", highest[name]))
        expected = Counter(f"qos/{name}" for name in hands)
        wait_for(hands, expected)
        for name, hand in hands.items():
            came = {each.topic.removeprefix("qos/"): each.qos for each in hand.messages}
            if name == "amqtt":  # which delivers with the QoS of the subscription
                assert set(came.values()) == {2}
            else:
                assert came == {other: min(highest[name], highest[other]) for other in hands}


def test_aedes_hears_all_and_is_heard_and_nothing_loops(members: list[Member]) -> None:
    with everywhere(members, "loose/#") as hands:
        sent: Counter[str] = Counter()
        lacking = set(hands)
        for _ in range(int(PATIENCE)):
            for name, publisher in hands.items():
                publisher.publish(Publish(f"loose/{name}", b"the same", 1))
                sent[f"loose/{name}"] += 1
            with contextlib.suppress(Closed):
                for name in sorted(lacking):
                    hands[name].until(lambda hand=hands[name]: topics_of(hand).keys() == sent.keys(), patience=1)  # type: ignore[misc]
                    lacking.discard(name)
            if not lacking:
                break
        assert not lacking
        for hand in hands.values():
            hand.barrier()
        assert {name: topics_of(hand) - sent for name, hand in hands.items()} == {name: Counter() for name in hands}
