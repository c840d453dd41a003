"""Advice at work in a broker: who may give it, what it changes and by how much, and when that ends."""

from __future__ import annotations

import json
import logging
from collections import Counter
from typing import cast

import pytest

from headwater.message import Message, Subscription
from headwater.node.advice.advising import Advising
from headwater.node.advice.document import Advice, topic_of
from headwater.node.advice.settings import AdviceSettings
from headwater.node.config import Config
from headwater.node.protocol.sys_topics import SysTopics
from headwater.routing.dispatcher import Member
from headwater.routing.shared import Group, dispatcher
from headwater.wire.packets import Puback, Publish, Pubrec, Subscribe, SubscribeRequest
from tests.node.advice.documents import EPOCH, GROUP, TOPIC, payload
from tests.node.memory import Client, MemoryBroker

MEMBERS = ("one", "two")


def started(broker: MemoryBroker, **settings: object) -> Advising:
    """Take advice from now on; the wall clock goes with the broker's."""
    clock = lambda: EPOCH + broker.server.hot.now  # noqa: E731
    made = Advising(broker.server, AdviceSettings(**settings), clock)  # type: ignore[arg-type]
    broker.server.advising = made
    made.start()
    return made


def new_broker(dispatcher: str = "weighted_round_robin") -> MemoryBroker:
    return MemoryBroker(Config(sys_interval=0, shared_dispatcher=dispatcher))


def joined(broker: MemoryBroker, client_id: str) -> Client:
    client = broker.client(client_id)
    client.send(Subscribe(1, [SubscribeRequest(GROUP, 0)]))
    client.packets()
    return client


def advise(broker: MemoryBroker, content: bytes, topic: str = TOPIC) -> None:
    """As the broker's own, which is how the admin API publishes."""
    broker.server.publishing.route(Message(topic, content, 1, True), None)


def shares(broker: MemoryBroker, clients: dict[str, Client], count: int = 1200, pause: float = 0.0) -> dict[str, float]:
    """What part of so many messages of QoS 0, that come together or with pauses between them, each gets."""
    publisher = broker.client("p")
    if pause:
        for _ in range(count):
            publisher.send(Publish("t", b"x"))
            broker.later(pause)
    else:
        publisher.send(*[Publish("t", b"x")] * count)
    got = {name: len(client.messages()) for name, client in clients.items()}
    assert sum(got.values()) == count
    broker.later(1.0)
    return {name: number / count for name, number in got.items()}


def group_of_two(broker: MemoryBroker) -> dict[str, Client]:
    return {name: joined(broker, name) for name in MEMBERS}


EQUAL = {"one": 0.5, "two": 0.5}


@pytest.mark.parametrize(
    ("dispatcher", "pause", "within"),
    [
        ("weighted_round_robin", 0.0, 0.001),
        ("weighted_round_robin", 0.01, 0.001),
        ("capacity", 0.02, 0.06),
        ("adaptive", 0.0, 0.02),
    ],
)
def test_shares_follow_the_advice_and_return(dispatcher: str, pause: float, within: float) -> None:
    """`capacity` chooses by chance; `adaptive` takes advice for what it does not know: members that tell nothing, in a
    burst."""
    broker = new_broker(dispatcher)
    started(broker)
    clients = group_of_two(broker)

    def has(one: float, two: float) -> None:
        found = shares(broker, clients, 2400, pause)
        assert found == pytest.approx({"one": one, "two": two}, abs=within)

    has(0.5, 0.5)
    advise(broker, payload(1, weights={"one": 2.0, "two": 1.0}))
    has(2 / 3, 1 / 3)
    advise(broker, payload(2, weights={"one": 0.5, "two": 1.5}))
    has(0.25, 0.75)
    advise(broker, b"")
    has(0.5, 0.5)


def test_without_a_burst_adaptive_goes_on_as_it_did() -> None:
    """All are free when a message comes: nobody has to wait, whoever gets it."""
    broker = new_broker("adaptive")
    started(broker)
    clients = group_of_two(broker)
    advise(broker, payload(1, weights={"one": 2.0, "two": 0.5}))
    assert shares(broker, clients, 600, 0.01) == pytest.approx(EQUAL, abs=0.01)


def test_adaptive_counts_what_is_advised_in_each_choice() -> None:
    """Also of messages that do not come as a run of equal ones."""
    group = Group("g", "t", dispatcher("adaptive"))
    for name, advised in (("one", 2.0), ("two", 1.0)):
        group.join(name, Subscription("t", 0), advised=advised)
    got = Counter(str(cast(Member, group.choose_online("t", "p", 5.0)).key) for _ in range(300))
    assert got["one"] == pytest.approx(200, abs=3)


def test_advice_is_no_belief_of_adaptive() -> None:
    """It would be shown in `$SYS`, stored, and become the ground of the next advice."""
    broker = new_broker("adaptive")
    started(broker)
    group_of_two(broker)
    advise(broker, payload(1))
    group = broker.server.router.groups.all()[0]
    one, two = group.members()
    group.reported(one, 0, 0.01, broker.server.hot.now)
    believed = [group.dispatcher.beliefs(member, broker.server.hot.now) for member in (one, two)]
    assert believed[0]["seconds_per_message"] == 0.01
    assert "seconds_per_message" not in believed[1]


def test_what_a_member_tells_is_better_than_advice() -> None:
    """`adaptive` knows how quick these are, and goes on by that."""
    broker = new_broker("adaptive")
    started(broker)
    clients = group_of_two(broker)
    group = broker.server.router.groups.all()[0]
    for member in group.members():
        group.reported(member, 0, 0.01, broker.server.hot.now)
    advise(broker, payload(1, weights={"one": 2.0, "two": 0.5}))
    assert shares(broker, clients) == pytest.approx(EQUAL, abs=0.02)


@pytest.mark.parametrize("dispatcher", ["round_robin", "hash_topic", "least_pending"])
def test_dispatchers_without_weights_go_on_as_they_did(dispatcher: str) -> None:
    told = []
    for advised in (False, True):
        broker = new_broker(dispatcher)
        started(broker)
        clients = group_of_two(broker)
        if advised:
            advise(broker, payload(1))
        told.append(shares(broker, clients, 600))
    assert told[0] == told[1]


def test_weights_that_are_configured_are_multiplied() -> None:
    broker = MemoryBroker(Config(sys_interval=0, shared_dispatcher="weighted_round_robin", shared_weights={"one": 3}))
    started(broker)
    clients = group_of_two(broker)
    assert shares(broker, clients) == {"one": 0.75, "two": 0.25}
    advise(broker, payload(1, weights={"two": 1.5}))
    assert shares(broker, clients) == pytest.approx({"one": 2 / 3, "two": 1 / 3}, abs=0.001)


def test_who_joins_later_is_advised_as_well_and_who_is_not_named_is_as_before() -> None:
    broker = new_broker()
    started(broker)
    advise(broker, payload(1, weights={"one": 2.0, "nobody": 2.0}))
    clients = group_of_two(broker)
    assert shares(broker, clients) == pytest.approx({"one": 2 / 3, "two": 1 / 3}, abs=0.001)
    other = joined(broker, "other")
    assert shares(broker, clients | {"other": other}) == pytest.approx(
        {"one": 0.5, "two": 0.25, "other": 0.25}, abs=0.001
    )


@pytest.mark.parametrize("max_change", [1.0, 4.0, 8.0])
def test_nobodys_share_changes_by_more_than_a_stated_factor(max_change: float) -> None:
    broker = new_broker()
    started(broker, max_change=max_change)
    clients = group_of_two(broker) | {"three": joined(broker, "three")}
    for number, weights in enumerate(({"one": 100, "two": 0.01, "three": 0.01}, {"one": 0.01, "two": 100}), 1):
        advise(broker, payload(number, weights=weights))
        for share in shares(broker, clients, 3000).values():
            assert 1 / 3 / max_change - 0.001 <= share <= max_change / 3 + 0.001
    if max_change > 1.0:
        assert shares(broker, clients, 3000)["two"] > 0.5


# ---- once, and not for ever --------------------------------------------------------------------------------------


def test_only_what_is_newer_counts() -> None:
    broker = new_broker()
    advising = started(broker)
    told: list[int | None] = []
    advising.hand_to("weights", lambda subject, advice: told.append(None if advice is None else advice.number))
    for number in (5, 5, 4, 6, 5):
        advise(broker, payload(number))
    assert told == [5, 6]
    assert advising.counts == {"used": 2, "bad": 0, "old": 3, "expired": 0}


def test_what_was_withdrawn_does_not_come_back_by_the_same_batch() -> None:
    broker = new_broker()
    advising = started(broker)
    clients = group_of_two(broker)
    advise(broker, payload(5))
    advise(broker, b"")
    advise(broker, payload(5))
    assert shares(broker, clients) == EQUAL
    assert advising.in_force() == []
    advise(broker, payload(6, weights={"one": 3.0}))
    assert shares(broker, clients)["one"] > 0.7


def test_it_ends_by_itself() -> None:
    broker = new_broker()
    advising = started(broker)
    clients = group_of_two(broker)
    advise(broker, payload(1, seconds=60, weights={"one": 2.0}))
    broker.later(57.0)
    assert shares(broker, clients)["one"] > 0.6
    broker.later(3.0)
    assert advising.in_force() == []
    assert shares(broker, clients) == pytest.approx(EQUAL, abs=0.01)
    advise(broker, payload(1, seconds=60, weights={"one": 2.0}))  # the same batch again
    assert shares(broker, clients) == pytest.approx(EQUAL, abs=0.01)
    assert advising.counts["expired"] == 1
    advise(broker, payload(1, at=EPOCH + broker.server.hot.now))  # numbers may begin anew
    assert len(advising.in_force()) == 1


def test_a_newer_one_is_not_ended_with_the_older() -> None:
    broker = new_broker()
    advising = started(broker)
    advise(broker, payload(1, seconds=60))
    advise(broker, payload(2, seconds=600))
    broker.later(61.0)
    assert [advice.number for advice in advising.in_force()] == [2]
    assert broker.server.timers.failures == 0


def test_a_retained_message_that_expires_withdraws_it() -> None:
    broker = new_broker()
    advising = started(broker)
    message = Message(TOPIC, payload(1), 1, True, expires_at=broker.server.hot.now + 5)
    broker.server.publishing.route(message, None)
    broker.later(6.0)
    for expired in broker.server.router.retained.expire(broker.server.hot.now):
        broker.hooks.tell("retained_expired", expired)
    assert advising.in_force() == []


def test_what_is_retained_is_taken_up_at_the_start() -> None:
    broker = new_broker()
    clients = group_of_two(broker)
    advise(broker, payload(1, weights={"one": 2.0}))
    advise(broker, payload(1, seconds=1, at=EPOCH), topic_of("weights", "$share/g/old"))
    assert shares(broker, clients) == EQUAL
    advising = started(broker)
    assert shares(broker, clients)["one"] == pytest.approx(2 / 3, abs=0.001)
    assert advising.counts == {"used": 1, "bad": 0, "old": 0, "expired": 1}


# ---- what is no advice -------------------------------------------------------------------------------------------

HOSTILE = [
    payload(9, weights={"one": 1e300}),
    payload(9, weights={"one": -3}),
    payload(9, weights={"one": float("nan")}),
    payload(9, weights={"one": 0}),
    payload(9, expires="9999-12-31T23:59:59Z"),
    payload(9, made="9999-12-31T23:00:00Z", expires="9999-12-31T23:59:59Z"),
    payload(0),
    payload(-7),
    payload(1 << 70),
    payload(9, version=2),
    payload(9, weights={f"m{number}": 1.0 for number in range(2000)}),
    b"not JSON",
    b"\xff" * 100,
    b"{}",
    b"[" * 100_000,
    b"x" * (1 << 20),
]


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("dispatcher", ["weighted_round_robin", "adaptive"])
def test_hostile_advice_changes_nothing(hostile: bytes, dispatcher: str, caplog: pytest.LogCaptureFixture) -> None:
    broker = new_broker(dispatcher)
    advising = started(broker)
    clients = group_of_two(broker)
    with caplog.at_level(logging.WARNING, "headwater.advice"):
        advise(broker, hostile)
        advise(broker, hostile)
    assert advising.counts["bad"] == 2
    assert len(caplog.records) == 1, "one line a second, however many come"
    assert shares(broker, clients) == pytest.approx(EQUAL, abs=0.02)
    advise(broker, payload(1, weights={"one": 2.0}))
    advise(broker, hostile)
    assert shares(broker, clients)["one"] == pytest.approx(2 / 3, abs=0.02), "what is in force stays so"
    assert broker.hooks.failures == {}


def test_advice_on_unknown_members_and_groups_changes_nothing() -> None:
    broker = new_broker()
    advising = started(broker)
    clients = group_of_two(broker)
    advise(broker, payload(1, weights={"nobody": 100.0, "nowhere": 0.01}))
    advise(broker, payload(1), topic_of("weights", "$share/h/t"))
    assert shares(broker, clients) == EQUAL
    assert advising.counts["used"] == 2


def test_subjects_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.node.advice.advising.MOST_SUBJECTS", 3)
    broker = new_broker()
    advising = started(broker)
    for number in range(5):
        advise(broker, payload(1), topic_of("weights", f"$share/g/{number}"))
    assert len(advising.in_force()) == 3
    assert advising.counts["bad"] == 2
    advise(broker, payload(2), topic_of("weights", "$share/g/0"))
    assert advising.counts["used"] == 4


# ---- who may -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("hot", [False, True])
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("enabled", [False, True])
def test_clients_may_not_give_advice_unless_a_rule_says_so(qos: int, hot: bool, retain: bool, enabled: bool) -> None:
    """Also where none is taken: it would be if it were switched on later."""
    broker = MemoryBroker(Config(sys_interval=0), hot=hot)
    if enabled:
        started(broker)
    watcher = broker.client("w")
    watcher.send(Subscribe(1, [SubscribeRequest("$headwater/#", 0)]))
    watcher.packets()
    client = broker.client("c")
    client.send(Publish(TOPIC, payload(1), qos, retain, packet_id=1 if qos else 0))
    answers = client.packets()
    assert [isinstance(answer, Puback | Pubrec) and answer.reason for answer in answers] == [0x87] * bool(qos)
    assert watcher.messages() == []
    assert broker.server.router.retained.get(TOPIC) is None
    assert broker.server.access.refused_publishes == 1


# ---- seen and handed on ------------------------------------------------------------------------------------------


def test_a_split_is_kept_shown_and_handed_to_who_asks() -> None:
    broker = new_broker()
    advising = started(broker)
    early: list[tuple[str, Advice | None]] = []
    late: list[tuple[str, Advice | None]] = []
    advising.hand_to("split", lambda subject, advice: early.append((subject, advice)))
    topic = topic_of("split", "4f1c")
    advise(broker, payload(1, parts=[["a/#"], ["#"]]), topic)
    advising.hand_to("split", lambda subject, advice: late.append((subject, advice)))
    assert early == late == [("4f1c", advising.in_force()[0])]
    advise(broker, b"", topic)
    assert early[1:] == late[1:] == [("4f1c", None)]
    with pytest.raises(ValueError, match="there are weights, split"):
        advising.hand_to("colours", lambda subject, advice: None)


def test_a_receiver_that_fails_harms_nobody() -> None:
    broker = new_broker()
    advising = started(broker)
    clients = group_of_two(broker)
    told: list[str] = []

    def fail(subject: str, advice: Advice | None) -> None:
        raise RuntimeError("of the receiver")

    advising.hand_to("weights", fail)
    advising.hand_to("weights", lambda subject, advice: told.append(subject))
    advise(broker, payload(1, weights={"one": 2.0}))
    assert told == [GROUP]
    assert shares(broker, clients)["one"] > 0.6


def test_it_is_in_the_sys_tree_and_leaves_it() -> None:
    broker = new_broker()
    started(broker)
    group_of_two(broker)
    topics = SysTopics(broker.server, 0.0)
    advise(broker, payload(3, why="because"))
    advise(broker, b"rubbish", topic_of("weights", "$share/g/other"))

    def tree() -> dict[str, str]:
        topics.publish(broker.server.hot.now)
        found = broker.server.router.retained.match("$SYS/broker/#", broker.server.hot.now)
        return {message.topic.removeprefix("$SYS/broker/"): message.payload.decode() for message in found}

    seen = tree()
    place = "advice/weights/%24share%2Fg%2Ft"
    assert (seen["advice/used"], seen["advice/bad"]) == ("1", "1")
    assert json.loads(seen[place])["why"] == "because"
    assert json.loads(seen["shared/g/t/member/one"])["advised"] == 2.0
    advise(broker, b"")
    seen = tree()
    assert place not in seen
    assert json.loads(seen["shared/g/t/member/one"])["advised"] == 1.0


def test_without_it_nothing_listens() -> None:
    broker = new_broker()
    assert broker.server.advising is None
    assert broker.server.router.groups.advised_of is None
    assert not broker.hooks.listens("retain_message")
    clients = group_of_two(broker)
    advise(broker, payload(1))
    assert shares(broker, clients) == EQUAL


def test_with_it_the_hot_path_stays_hot() -> None:
    broker = new_broker()
    advising = started(broker)
    assert broker.server.hot.enabled
    advising.stop()
    assert not broker.hooks.listens("retain_message")
    advise(broker, payload(1))
    assert Counter(advising.counts)["used"] == 0
