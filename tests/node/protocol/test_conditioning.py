"""Subscriptions with conditions: how they are asked for, what comes, and that nothing of it is there when it is off."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.message import Message
from headwater.node.condition_settings import ConditionSettings
from headwater.node.config import Config
from headwater.node.destinations.conditional import Conditional
from headwater.node.protocol.statistics import statistics_of
from headwater.routing.conditions.written import parts_of
from headwater.wire.packets import (
    Properties,
    Puback,
    Publish,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
)
from headwater.wire.reasons import QUOTA_EXCEEDED, SUCCESS, TOPIC_FILTER_INVALID
from tests.node.memory import Client, MemoryBroker

HOT = "value > 30 and unit = 'C'"


def a_broker(hot: bool = True, **settings: Any) -> MemoryBroker:
    conditions = ConditionSettings(enabled=True, **settings.pop("conditions", {}))
    return MemoryBroker(Config(sys_interval=0, conditions=conditions, **settings), hot=hot)


def subscribe(client: Client, *filters: str, condition: str | None = None, **options: Any) -> Suback:
    pairs = None if condition is None else [("filter", condition)]
    properties = None if pairs is None else Properties(user_properties=pairs)
    requests = [SubscribeRequest(each, **{"qos": 1, **options}) for each in filters]
    client.send(Subscribe(1, requests, properties))
    answer, *rest = client.packets()
    assert isinstance(answer, Suback)
    client._behind_connack = rest
    return answer


def publish(client: Client, topic: str, *values: Any, qos: int = 0, retain: bool = False) -> None:
    for number, value in enumerate(values):
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        client.send(Publish(topic, content, qos, retain, False, number + 1 if qos else 0))


def got(client: Client) -> list[Any]:
    messages = client.messages()
    acknowledgements = [Puback(each.packet_id) for each in messages if each.qos == 1]
    if acknowledgements:
        client.send(*acknowledgements)
    return [json.loads(each.payload) for each in messages]


def reason_of(answer: Suback) -> str:
    return "" if answer.properties is None else answer.properties.reason_string or ""


def readings(*values: float) -> list[dict[str, Any]]:
    return [{"value": value, "unit": "C"} for value in values]


@pytest.mark.parametrize("hot", [True, False])
@pytest.mark.parametrize("version", [5, 4])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_only_what_meets_the_condition_comes(hot: bool, version: int, qos: int) -> None:
    broker = a_broker(hot)
    reader, everything, sender = broker.client("r", version), broker.client("e"), broker.client("s")
    assert subscribe(reader, f"plant/+?{HOT}").reasons == [1]
    subscribe(everything, "plant/+", condition="exists(value)")
    values = readings(31, 30, 29, 45)
    publish(sender, "plant/1", *values, qos=qos)
    assert got(reader) == [values[0], values[3]]
    assert got(everything) == values
    publish(sender, "plant/1", {"value": 31, "unit": "F"}, b"31", qos=qos)
    assert got(reader) == []


def test_the_user_property_counts_for_all_topic_filters_and_is_told_in_suback() -> None:
    broker = a_broker()
    reader, sender = broker.client("r"), broker.client("s")
    answer = subscribe(reader, "a", "b/#", condition="VALUE" and "value>30")
    assert answer.reasons == [1, 1]
    assert answer.properties is not None
    assert answer.properties.user_properties == [("filter", "value > 30")]
    publish(sender, "a", {"value": 31}, {"value": 1})
    publish(sender, "b/c", {"value": 1}, {"value": 32})
    assert got(reader) == [{"value": 31}, {"value": 32}]


@pytest.mark.parametrize(
    ("filter", "condition", "place"),
    [
        ("t", "value >", "expected a name or a value, found the end at character 8"),
        ("t?value ~ 3", None, "unexpected '~' at character 7"),
        ("t?", None, "expected a name or a value, found the end at character 1"),
        ("t?a = 1", "a = 1", "a condition in the topic filter and in the user property"),
    ],
)
def test_a_wrong_condition_is_refused_and_the_reason_points_at_it(
    filter: str, condition: str | None, place: str
) -> None:
    broker = a_broker()
    reader = broker.client("r")
    answer = subscribe(reader, filter, condition=condition)
    assert answer.reasons == [TOPIC_FILTER_INVALID]
    assert place in reason_of(answer)
    assert not broker.server.sessions["r"].subscriptions
    assert statistics_of(broker.server, 1.0).conditions_refused == 1
    quiet = broker.client("q", properties=Properties(request_problem_information=0))
    assert subscribe(quiet, filter, condition=condition).properties is None
    if condition is None:
        old = broker.client("o", 4)
        assert subscribe(old, "good", filter).reasons == [1, 0x80]


def test_one_wrong_condition_does_not_keep_others_out() -> None:
    broker = a_broker()
    reader = broker.client("r")
    answer = subscribe(reader, "a?b >", "b?c > 3", "c")
    assert answer.reasons == [TOPIC_FILTER_INVALID, 1, 1]
    assert set(broker.server.sessions["r"].subscriptions) == {"b", "c"}


def test_two_user_properties_are_one_too_many() -> None:
    broker = a_broker()
    reader = broker.client("r")
    pairs = [("filter", "a = 1"), ("filter", "b = 1")]
    reader.send(Subscribe(1, [SubscribeRequest("t")], Properties(user_properties=pairs)))
    (answer,) = reader.packets()
    assert isinstance(answer, Suback)
    assert answer.reasons == [TOPIC_FILTER_INVALID]
    assert "more than one" in reason_of(answer)


def test_where_it_is_off_nothing_changes() -> None:
    broker = MemoryBroker(Config(sys_interval=0))
    reader, sender = broker.client("r"), broker.client("s")
    answer = subscribe(reader, "what?value > 30", "t", condition="value > 30")
    assert answer.reasons == [1, 1]
    assert answer.properties is None
    publish(sender, "what?value > 30", {"value": 1})
    publish(sender, "t", {"value": 2})
    assert got(reader) == [{"value": 1}, {"value": 2}]
    assert not broker.server.conditions.by_text
    reader.send(Unsubscribe(2, ["what?value > 30"]))
    assert reader.packets() == [Unsuback(2, [SUCCESS])]


def test_without_conditions_destinations_are_what_they_were() -> None:
    broker = a_broker()
    plain, reader, sender = broker.client("p"), broker.client("r"), broker.client("s")
    subscribe(plain, "a", "b")
    subscribe(reader, "b?value > 30")
    publish(sender, "a", {"value": 1})
    fanouts = broker.server.hot.own_fanouts
    assert not any(isinstance(each, Conditional) for each in fanouts.of("a").destinations)
    assert fanouts.of("a").in_runs
    assert fanouts.of("a").width == 0
    assert any(isinstance(each, Conditional) for each in fanouts.of("b").destinations)


def test_two_question_marks_are_one_that_belongs_to_the_topic() -> None:
    broker = a_broker()
    reader, sender = broker.client("r"), broker.client("s")
    assert subscribe(reader, "what??", "why??/x?value > 3").reasons == [1, 1]
    publish(sender, "what?", {"value": 1})
    publish(sender, "why?/x", {"value": 1}, {"value": 4})
    assert got(reader) == [{"value": 1}, {"value": 4}]
    reader.send(Unsubscribe(2, ["what??", "why??/x?value > 3"]))
    assert reader.packets() == [Unsuback(2, [SUCCESS, SUCCESS])]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("a/b", ("a/b", None)),
        ("a?b = '?'", ("a", "b = '?'")),
        ("a??", ("a?", None)),
        ("a???b", ("a?", "b")),
        ("a????b?", ("a??b", "")),
        ("?", ("", "")),
    ],
)
def test_parts_of_what_was_written(name: str, parts: tuple[str, str | None]) -> None:
    assert parts_of(name) == parts


def test_the_same_topic_filter_with_another_condition_is_the_same_subscription() -> None:
    broker = a_broker()
    reader, sender = broker.client("r"), broker.client("s")
    subscribe(reader, "t?value > 30")
    subscribe(reader, "t?value < 10")
    assert list(broker.server.sessions["r"].subscriptions) == ["t"]
    assert list(broker.server.conditions.by_text) == ["value < 10"]
    publish(sender, "t", {"value": 40}, {"value": 5})
    assert got(reader) == [{"value": 5}]
    subscribe(reader, "t")
    assert not broker.server.conditions.by_text
    publish(sender, "t", {"value": 40})
    assert got(reader) == [{"value": 40}]
    reader.send(Unsubscribe(2, ["t?any text"]))
    assert reader.packets() == [Unsuback(2, [SUCCESS])]
    assert broker.server.subscribing.count == 0


def test_of_overlapping_subscriptions_any_lets_a_message_through_and_gives_its_options() -> None:
    broker = a_broker()
    reader, sender = broker.client("r"), broker.client("s")
    for identifier, name, qos in ((1, "t/#?value > 30", 0), (2, "t/+?value > 40", 1), (3, "t/a?value < 0", 1)):
        properties = Properties(subscription_identifiers=[identifier])
        reader.send(Subscribe(1, [SubscribeRequest(name, qos)], properties))
    reader.packets()
    publish(sender, "t/a", {"value": 35}, {"value": 45}, {"value": 20}, {"value": -1}, qos=1)
    found = [
        (json.loads(each.payload)["value"], each.qos, sorted(each.properties.subscription_identifiers))
        for each in reader.messages()
        if each.properties is not None
    ]
    assert found == [(35, 0, [1]), (45, 1, [1, 2]), (-1, 1, [3])]
    subscribe(reader, "t/a/#")  # without a condition
    publish(sender, "t/a", {"value": 20})
    assert got(reader) == [{"value": 20}]


def test_overlapping_subscriptions_with_a_copy_each() -> None:
    broker = a_broker(overlapping="separate")
    reader, sender = broker.client("r"), broker.client("s")
    subscribe(reader, "t?value > 30", "#?value > 40", "+")
    publish(sender, "t", {"value": 20}, {"value": 35}, {"value": 45})
    assert sorted(each["value"] for each in got(reader)) == [20, 35, 35, 45, 45, 45]


def test_what_a_client_publishes_itself() -> None:
    broker = a_broker()
    client = broker.client("c")
    subscribe(client, "t?changed(value)", no_local=True)
    publish(client, "t", {"value": 1})
    assert got(client) == []
    publish(broker.client("o"), "t", {"value": 1})
    assert got(client) == [{"value": 1}], "what was not sent is not remembered"


def test_a_session_that_is_away_gets_what_meets_its_condition() -> None:
    broker = a_broker()
    reader = broker.client("r", properties=Properties(session_expiry_interval=100))
    sender = broker.client("s")
    subscribe(reader, "t?value > 30")
    reader.lose()
    publish(sender, "t", {"value": 31}, {"value": 1}, {"value": 32}, qos=1)
    again = broker.client("r", clean_start=False, properties=Properties(session_expiry_interval=100))
    assert got(again) == [{"value": 31}, {"value": 32}]
    publish(sender, "t", {"value": 1}, {"value": 33}, qos=1)
    assert got(again) == [{"value": 33}]


def test_retained_messages_are_held_back_as_others_are() -> None:
    broker = a_broker()
    reader, sender = broker.client("r"), broker.client("s")
    for number in range(50):
        publish(sender, f"t/{number}", {"value": number}, retain=True)
    subscribe(reader, "t/+?value >= 47")
    assert sorted(each["value"] for each in got(reader)) == [47, 48, 49]


def test_a_retained_message_is_the_first_that_was_sent() -> None:
    broker = a_broker()
    reader, sender = broker.client("r", properties=Properties(receive_maximum=1)), broker.client("s")
    for topic in "abc":
        publish(sender, f"t/{topic}", {"value": 1}, qos=1, retain=True)
    subscribe(reader, "t/+?changed(value, 0.5)")
    assert [got(reader) for _ in range(4)] == [[{"value": 1}]] * 3 + [[]], "each waits for the acknowledgement before"
    publish(sender, "t/a", {"value": 1.2}, {"value": 2})
    assert got(reader) == [{"value": 2}]


def test_subscribing_again_with_the_same_condition_goes_on_where_it_was() -> None:
    broker = a_broker()
    reader, sender = broker.client("r"), broker.client("s")
    subscribe(reader, "t?changed(value)")
    publish(sender, "t", {"value": 1})
    assert got(reader) == [{"value": 1}]
    subscribe(reader, "t?changed( value )")
    publish(sender, "t", {"value": 1})
    assert got(reader) == []
    subscribe(reader, "t?changed(value, 0.1)")
    publish(sender, "t", {"value": 1})
    assert got(reader) == [{"value": 1}]


def test_a_limit_per_topic() -> None:
    broker = a_broker()
    reader, sender = broker.client("r"), broker.client("s")
    subscribe(reader, "t/+?limit 1 per 10s")
    publish(sender, "t/a", {"value": 1}, {"value": 2})
    publish(sender, "t/b", {"value": 3})
    assert got(reader) == [{"value": 1}, {"value": 3}]
    broker.server.hot.now += 10.0
    publish(sender, "t/a", {"value": 4}, {"value": 5})
    assert got(reader) == [{"value": 4}]


def test_a_different_condition_is_evaluated_once_for_all() -> None:
    broker = a_broker()
    sender = broker.client("s")
    readers = [broker.client(f"r{number}", 4 if number % 2 else 5) for number in range(40)]
    for number, reader in enumerate(readers):
        subscribe(reader, f"t?value > {number % 4}")
    publish(sender, "t", {"value": 2}, {"value": 2}, qos=1)
    assert [len(got(reader)) for reader in readers] == [2, 2, 0, 0] * 10
    seen = statistics_of(broker.server, 1.0)
    assert seen.conditions == 4
    assert seen.conditions_evaluated == 8
    assert (seen.condition_passed, seen.condition_suppressed) == (40, 40)


def test_many_different_conditions_are_looked_at_in_pieces() -> None:
    broker = a_broker()
    sender = broker.client("s")
    readers = [broker.client(f"r{number}") for number in range(300)]
    for number, reader in enumerate(readers):
        subscribe(reader, "t?" + " or ".join([f"value = {number + at}" for at in range(5)]))
    fanout = broker.server.hot.own_fanouts.of("t")
    assert fanout.width * 4096 > 64 * 4096, "so that the ordinary way takes it in pieces"
    broker.server.hot.until = 0.0  # this turn has no time
    publish(sender, "t", {"value": 102}, qos=1)
    assert [number for number, reader in enumerate(readers) if got(reader)] == [98, 99, 100, 101, 102]


def test_a_payload_that_is_too_long_is_not_looked_into() -> None:
    broker = a_broker(conditions={"max_payload": 50})
    reader, sender = broker.client("r"), broker.client("s")
    subscribe(reader, "t?value > 30 or topic = 'u'", "u?value > 30 or topic = 'u'")
    publish(sender, "t", {"value": 31, "more": "x" * 50})
    publish(sender, "u", {"value": 31, "more": "x" * 50})
    assert len(got(reader)) == 1
    assert statistics_of(broker.server, 1.0).conditions_unread == 2


def test_conditions_count_in_what_sessions_keep() -> None:
    broker = a_broker(max_session_memory=20_000)
    reader = broker.client("r")
    before = broker.server.access.quotas.used
    assert subscribe(reader, "t?value > 30").reasons == [1]
    small = broker.server.access.quotas.used - before
    assert small > 2000
    long = " or ".join(["value = 12345678"] * 40)
    assert subscribe(reader, f"t?{long}").reasons == [QUOTA_EXCEEDED]
    assert broker.server.access.quotas.used - before == small
    assert subscribe(reader, "t").reasons == [1]
    reader.send(Unsubscribe(2, ["t"]))
    assert broker.server.access.quotas.used == before


# ---- shared groups -----------------------------------------------------------------------------------------------


def test_a_group_gets_what_meets_its_condition() -> None:
    broker = a_broker()
    one, other, sender = broker.client("1"), broker.client("2"), broker.client("s")
    for each in (one, other):
        assert subscribe(each, "$share/g/t/+?value > 30").reasons == [1]
    publish(sender, "t/a", *({"value": value} for value in range(20, 40)), qos=1)
    assert sorted(each["value"] for each in got(one) + got(other)) == list(range(31, 40))
    publish(sender, "t/a", *({"value": value} for value in range(20, 40)))
    assert sorted(each["value"] for each in got(one) + got(other)) == list(range(31, 40))


def test_members_of_a_group_have_one_condition() -> None:
    broker = a_broker()
    one, other, sender = broker.client("1"), broker.client("2"), broker.client("s")
    assert subscribe(one, "$share/g/t?value > 30").reasons == [1]
    answer = subscribe(other, "$share/g/t?value > 31")
    assert answer.reasons == [TOPIC_FILTER_INVALID]
    assert reason_of(answer) == "condition: the group has value > 30"
    assert subscribe(other, "$share/g/t").reasons == [TOPIC_FILTER_INVALID]
    assert subscribe(one, "$share/g/t?value > 40").reasons == [1], "the only member may change it"
    publish(sender, "t", {"value": 35}, {"value": 45})
    assert got(one) == [{"value": 45}]
    assert subscribe(other, "$share/g/t?value>40").reasons == [1]
    for each in (one, other):
        each.send(Unsubscribe(2, ["$share/g/t"]))
        each.packets()
    assert not broker.server.conditions.by_text
    assert subscribe(other, "$share/g/t").reasons == [1]
    publish(sender, "t", {"value": 1})
    assert got(other) == [{"value": 1}]


def test_a_group_remembers_what_it_was_sent_whoever_got_it() -> None:
    broker = a_broker()
    one, other, sender = broker.client("1"), broker.client("2"), broker.client("s")
    for each in (one, other):
        subscribe(each, "$share/g/t?changed(value)")
    publish(sender, "t", *({"value": value} for value in (1, 1, 2, 2, 1)), qos=1)
    assert sorted(each["value"] for each in got(one) + got(other)) == [1, 1, 2]


def test_groups_of_a_cluster_have_no_conditions_that_remember() -> None:
    broker = a_broker(cluster={"name": "c"}, data_dir="")
    answer = subscribe(broker.client("1"), "$share/g/t?changed(value)", "$share/g/u?value > 3", "t?changed(value)")
    assert answer.reasons == [TOPIC_FILTER_INVALID, 1, 1]
    assert "of a cluster" in reason_of(answer)


def test_what_waits_in_a_group_was_found_to_meet_the_condition() -> None:
    broker = a_broker()
    member = broker.client("m", properties=Properties(session_expiry_interval=100))
    sender = broker.client("s")
    subscribe(member, "$share/g/t?value > 30")
    member.lose()
    publish(sender, "t", {"value": 31}, {"value": 1}, qos=1)
    again = broker.client("m", clean_start=False, properties=Properties(session_expiry_interval=100))
    assert got(again) == [{"value": 31}]


# ---- hooks ---------------------------------------------------------------------------------------------------------


def test_hooks_see_who_would_get_a_message() -> None:
    broker = a_broker()
    seen: list[list[str]] = []

    def select(chosen: list[Any], message: Message) -> list[Any]:
        seen.append(sorted(session.client_id for session, _ in chosen))
        return chosen

    broker.hooks.add("select_subscribers", select)
    for name, text in (("a", "value > 3"), ("b", "value > 4"), ("c", "changed(value)")):
        subscribe(broker.client(name), f"t?{text}", f"$share/g{name}/t?{text}")
    publish(broker.client("s"), "t", {"value": 4}, {"value": 4})
    assert seen == [["a", "a", "c", "c"], ["a", "a"]]
