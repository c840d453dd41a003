"""`changed` and `limit`: what a subscription was sent before, within bounds."""

from __future__ import annotations

import json
from typing import Any

import cbor2
from hypothesis import given
from hypothesis import strategies as st

from headwater.message import Message, Subscription
from headwater.routing.conditions.condition import SIEVE_MEMORY, Conditions, Sieve, condition_of, size_of
from headwater.routing.conditions.memory import MOST_TOPICS

MIB = 1 << 20


class Subscriber:
    def __init__(self, text: str, conditions: Conditions | None = None) -> None:
        self.conditions = Conditions(memory=MIB) if conditions is None else conditions
        self.subscription = Subscription("#")
        self.subscription.condition = condition_of(text)
        self.conditions.adopt(self.subscription)

    def gets(self, payload: Any, now: float = 0.0, topic: str = "t") -> bool:
        content = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        return self.conditions.passes(self.subscription, Message(topic, content), now)


def test_a_value_that_stays_within_the_band_is_left_out() -> None:
    subscriber = Subscriber("changed(value, 0.5)")
    sent = [value for value in (20, 20.4, 20.5, 20.6, 20.2, 20.0, 21) if subscriber.gets({"value": value})]
    assert sent == [20, 20.6, 20.0, 21]  # each is compared with the last that was sent


def test_each_topic_has_values_of_its_own() -> None:
    subscriber = Subscriber("changed(value)")
    assert [subscriber.gets({"value": 1}, topic=topic) for topic in "abab"] == [True, True, False, False]


def test_only_what_was_let_through_counts_as_sent() -> None:
    subscriber = Subscriber("changed(value) and value > 30")
    assert [subscriber.gets({"value": value}) for value in (31, 20, 31, 32)] == [True, False, False, True]


def test_changed_may_be_anywhere() -> None:
    subscriber = Subscriber("value > 100 or changed(mode)")
    messages = [(1, "a"), (2, "a"), (101, "a"), (3, "a"), (4, "b")]
    sent = [value for value, mode in messages if subscriber.gets({"value": value, "mode": mode})]
    assert sent == [1, 101, 4]
    unchanged = Subscriber("not changed(value)")
    assert [unchanged.gets({"value": value}) for value in (1, 1)] == [False, False]  # there was never one to compare


def test_what_is_not_there_has_not_changed() -> None:
    subscriber = Subscriber("changed(value) or alarm")
    assert subscriber.gets({"value": 1})
    assert not subscriber.gets({})
    assert subscriber.gets({"alarm": True})
    assert not subscriber.gets({"value": 1})  # it still counts as sent
    assert not subscriber.gets(cbor2.dumps({"value": float("nan")}))


def test_kinds_long_texts_and_huge_numbers() -> None:
    subscriber = Subscriber("changed(value)")
    values = [1, "1", True, None, "x" * 1000, "x" * 999 + "y", "x" * 999 + "y", 10**500, 10**500, -(10**500), 1.0]
    assert [subscriber.gets({"value": value}) for value in values] == [*[True] * 6, False, True, False, True, True]


def test_so_many_of_a_topic_in_a_time() -> None:
    subscriber = Subscriber("value > 0 limit 2 per 10s")
    sent = [now for now in (0, 1, 2, 9.9, 10, 10.1, 10.2, 30) if subscriber.gets({"value": 1}, now=100 + now)]
    assert sent == [0, 1, 10, 10.1, 30]
    assert subscriber.gets({"value": 1}, now=102, topic="other")
    assert not subscriber.gets({"value": 0}, now=500)


def test_a_limit_alone() -> None:
    subscriber = Subscriber("limit 1 per 1m")
    assert [subscriber.gets(b"any", now) for now in (0.0, 59.9, 60.0)] == [True, False, True]


def test_what_a_limit_leaves_out_is_not_what_was_sent() -> None:
    subscriber = Subscriber("changed(value) limit 1 per 10s")
    assert [subscriber.gets({"value": value}, now) for value, now in ((1, 0), (2, 5), (2, 11))] == [True, False, True]


@given(st.lists(st.tuples(st.floats(0, 5), st.sampled_from("ab")), max_size=60), st.integers(1, 3))
def test_no_window_has_more_and_nothing_is_left_out_without_cause(steps: list[tuple[float, str]], count: int) -> None:
    subscriber = Subscriber(f"limit {count} per 7s")
    now = 0.0
    windows: dict[str, list[float]] = {}  # times of the messages since the window began
    for step, topic in steps:
        now += step
        window = windows.setdefault(topic, [])
        if window and now >= window[0] + 7.0:
            window.clear()
        assert subscriber.gets(b"", now, topic) == (len(window) < count)
        if len(window) < count:
            window.append(now)


def test_the_topic_sent_longest_ago_is_forgotten_for_one_more() -> None:
    subscriber = Subscriber("changed(value)")
    subscriber.conditions.budget.limit = 1500
    sent = [subscriber.gets({"value": 1}, topic=topic) for topic in "abcdeabcde"]
    assert sent == [True] * 10  # there is room for two: too much is sent, and never too little
    assert not subscriber.gets({"value": 1}, topic="e")
    budget = subscriber.conditions.budget
    assert budget.used <= 1500
    assert budget.forgotten > 0


def test_without_memory_everything_counts_as_changed() -> None:
    conditions = Conditions(memory=600)
    greedy = Subscriber("changed(value)", conditions)
    other = Subscriber("changed(value, 1)", conditions)
    assert greedy.gets({"value": 1}) and not greedy.gets({"value": 1})
    assert other.gets({"value": 1}) and other.gets({"value": 1})
    conditions.release(greedy.subscription)
    assert conditions.budget.used == 0
    assert other.gets({"value": 1}) and not other.gets({"value": 1})


def test_topics_of_one_subscription_are_bounded() -> None:
    subscriber = Subscriber("limit 1 per 1h", Conditions(memory=1 << 30))
    for number in range(MOST_TOPICS + 10):
        subscriber.gets(b"", topic=f"t/{number}")
    memory: Any = subscriber.subscription.memory
    assert len(memory.by_topic) == MOST_TOPICS


def test_equal_conditions_are_one_and_are_evaluated_once() -> None:
    conditions = Conditions()
    texts = ("value > 3", "( value>3 )", "value > 3 limit 1 per 1s")
    subscribers = [Subscriber(text, conditions) for text in texts]
    message = Message("t", b'{"value": 4}')
    assert all(conditions.passes(each.subscription, message, 0.0) for each in subscribers)
    assert conditions.tally.evaluated == 1
    assert subscribers[0].subscription.condition is subscribers[1].subscription.condition
    assert len(conditions.by_text) == 2
    assert len(conditions.predicates) == 1
    for each in subscribers:
        conditions.release(each.subscription)
    assert not conditions.by_text
    assert not conditions.predicates


def test_another_message_is_evaluated_anew() -> None:
    subscriber = Subscriber("value > 3")
    assert [subscriber.gets({"value": value}) for value in (4, 3, 4)] == [True, False, True]
    tally = subscriber.conditions.tally
    assert (tally.evaluated, tally.passed, tally.suppressed) == (3, 2, 1)


def test_a_condition_counts_in_bytes() -> None:
    assert size_of(None) == 0
    assert size_of(condition_of("value > 3 and unit = 'C'")) > size_of(condition_of("value > 3")) > 1000


def test_a_sieve_has_a_memory_of_its_own() -> None:
    sieve = Sieve("changed(value)")
    payload = b'{"value": 1}'
    assert sieve.passes("t", payload, None, None, 0.0)
    assert not sieve.passes("t", payload, None, None, 1.0)
    most = SIEVE_MEMORY // 500
    for number in range(2 * most):
        assert sieve.passes(f"t/{number}", payload, None, None, 2.0)
    assert sieve.passes("t", payload, None, None, 3.0), "it was forgotten for others"
    assert not sieve.passes(f"t/{2 * most - 1}", payload, None, None, 4.0)
