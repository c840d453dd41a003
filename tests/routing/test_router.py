"""From a topic to those who get the message: against a naive router."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.message import Message, Subscription
from headwater.routing.dispatchers.turns import RoundRobin
from headwater.routing.retained import Retained
from headwater.routing.router import Recipient, Router
from headwater.routing.shared import Groups
from headwater.routing.topics import matches

TOPICS = ["a", "a/b", "b/b", "b", "$x/b"]
FILTERS = ["a", "a/b", "+/b", "a/#", "#", "$x/#", "$x/b", "b"]
SESSIONS = ["one", "two", "three"]


def new_router(merge: bool = True) -> Router:
    return Router(Retained(10), Groups(lambda name: RoundRobin()), merge)


def named(router: Router, topic: str) -> list[tuple[object, list[str]]]:
    """Who gets a topic, by which filters; sorted, since the order is the trie's affair."""
    return sorted((str(r.session), sorted(s.filter for s in r.subscriptions)) for r in router.route(topic).recipients)


@settings(max_examples=150, deadline=None)
@given(
    st.booleans(),
    st.lists(
        st.tuples(
            st.booleans(), st.sampled_from(SESSIONS), st.sampled_from(FILTERS), st.sampled_from([None, None, "g"])
        ),
        max_size=30,
    ),
)
def test_routes_are_those_of_a_naive_router(merge: bool, changes: list[tuple[bool, str, str, str | None]]) -> None:
    router = new_router(merge)
    kept: set[tuple[str, str]] = set()
    shared: set[tuple[str, str]] = set()
    for add, session, filter, share in changes:
        subscription = Subscription(filter, share=share)
        which = kept if share is None else shared
        if add:
            assert router.subscribe(session, subscription) is ((session, filter) not in which)
            which.add((session, filter))
        else:
            router.unsubscribe(session, subscription)
            which.discard((session, filter))
        for topic in TOPICS:
            expected = [(s, f) for s, f in sorted(kept) if matches(f, topic)]
            if merge:
                wanted = [(s, [f for t, f in expected if t == s]) for s in sorted({s for s, _ in expected})]
            else:
                wanted = [(s, [f]) for s, f in expected]
            assert named(router, topic) == wanted
            groups = {f for _, f in shared if matches(f, topic)}
            assert {group.filter for group in router.route(topic).groups} == groups


def recipient(*subscriptions: Subscription) -> Recipient:
    return Recipient("one", list(subscriptions))


@pytest.mark.parametrize(("published", "granted", "got"), [(0, 2, 0), (1, 2, 1), (2, 2, 2), (2, 1, 1), (2, 0, 0)])
def test_a_delivery_has_the_lower_qos(published: int, granted: int, got: int) -> None:
    delivery = recipient(Subscription("t", granted)).delivery(Message("t", qos=published), False)
    assert delivery is not None and delivery.qos == got


def test_overlapping_subscriptions_give_one_delivery_with_the_best_of_all() -> None:
    """The highest QoS [MQTT-3.3.4-2], all identifiers [MQTT-3.3.4-4], retain as published if one asks for it."""
    several = recipient(
        Subscription("a", 1, identifier=5),
        Subscription("#", 2),
        Subscription("+", 0, retain_as_published=True, identifier=5),
    )
    delivery = several.delivery(Message("a", qos=2, retain=True), False)
    assert delivery is not None
    assert (delivery.qos, delivery.identifiers, delivery.retain) == (2, [5, 5], True)
    plain = recipient(Subscription("a")).delivery(Message("a", retain=True), False)
    assert plain is not None and (plain.identifiers, plain.retain) == (None, False)


def test_no_local_concerns_only_its_own_subscription_and_its_own_messages() -> None:
    both = recipient(Subscription("a", 2, no_local=True, identifier=1), Subscription("#", 1, identifier=2))
    message = Message("a", qos=2)
    own, foreign = both.delivery(message, True), both.delivery(message, False)
    assert own is not None and (own.qos, own.identifiers) == (1, [2])
    assert foreign is not None and (foreign.qos, foreign.identifiers) == (2, [1, 2])
    assert recipient(Subscription("a", no_local=True)).delivery(message, True) is None
