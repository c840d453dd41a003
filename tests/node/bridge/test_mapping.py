"""Topics on the two sides of a bridge."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from headwater.client import Message
from headwater.node.bridge.mapping import inward, outward
from headwater.node.bridge.settings import BridgeTopic
from headwater.routing.topics import matches
from headwater.wire.packets import Publish, SubscribeRequest

CONDITION = "value > 30 limit 1 per 10s"


def message(topic: str, payload: bytes) -> Message:
    return Message(Publish(topic, payload), lambda done: None)


def test_content_decides_as_well() -> None:
    topics = [
        BridgeTopic(filter="a/#", direction="both", remote_prefix="far/", condition=CONDITION),
        BridgeTopic(filter="#", direction="both"),
    ]
    for mapping, topic in ((outward(topics), "a/b"), (inward(topics), "far/a/b")):
        assert not mapping.lets_through(message(topic, b'{"value": 30}'), 100.0)
        assert mapping.lets_through(message(topic, b'{"value": 31}'), 100.0)
        assert not mapping.lets_through(message(topic, b'{"value": 32}'), 101.0)
        assert mapping.lets_through(message(topic, b'{"value": 32}'), 110.0)
        assert mapping.lets_through(message("c", b'{"value": 1}'), 100.0), "the first entry that matches counts"


def test_a_condition_that_cannot_be_read_is_no_setting() -> None:
    with pytest.raises(ValueError, match="at character 8"):
        BridgeTopic(filter="a", condition="value >")


words = st.text(alphabet="ab", max_size=3)
prefixes = st.lists(words, max_size=3).map(lambda found: "".join(f"{level}/" for level in found))


@st.composite
def filters_with_topics(draw: st.DrawFn) -> tuple[str, str]:
    """A filter, and a topic that it matches."""
    topic = draw(st.lists(words, min_size=1, max_size=4))
    filter = [draw(st.sampled_from([level, "+"])) for level in topic]
    if draw(st.booleans()):
        filter = [*filter[: draw(st.integers(0, len(filter)))], "#"]
    return "/".join(filter), "/".join(topic)


@given(prefixes, prefixes, filters_with_topics(), st.booleans())
@example("a/", "/", ("#", "b"), True)
def test_what_goes_out_and_comes_in_again_has_its_old_topic(
    local: str, remote: str, made: tuple[str, str], is_parent: bool
) -> None:
    filter, rest = made
    here = (local + rest) if not is_parent else (local + filter).removesuffix("/#")  # which `#` matches as well
    assume(local + filter and remote + filter and here and matches(local + filter, here))
    topics = [BridgeTopic(filter=filter, direction="both", local_prefix=local, remote_prefix=remote)]
    there = outward(topics).map(here)
    if there is None:
        assert not remote.removesuffix("/") and here in (local, local.removesuffix("/"))  # a topic cannot be empty
        return
    assert matches(remote + filter, there)
    assert inward(topics).map(there) == here


@pytest.mark.parametrize(
    ("local", "remote", "here", "there"),
    [
        ("", "", "a/b", "a/b"),
        ("site/", "", "site/a/b", "a/b"),
        ("", "sites/7/", "a/b", "sites/7/a/b"),
        ("site/", "sites/7/", "site/a", "sites/7/a"),
        ("site/", "sites/7/", "site", "sites/7"),
        ("site/", "", "site", None),
        ("site/", "sites/7/", "other/a", None),
        ("site/", "sites/7/", "siteX/a", None),
        ("", "", "$SYS/broker/uptime", None),
        ("$SYS/", "status/", "$SYS/broker/uptime", "status/broker/uptime"),
    ],
)
def test_prefixes(local: str, remote: str, here: str, there: str | None) -> None:
    assert outward([BridgeTopic(filter="#", local_prefix=local, remote_prefix=remote)]).map(here) == there


def test_prefixes_that_are_whole_topics() -> None:
    topics = [BridgeTopic(filter="", direction="both", local_prefix="lamp", remote_prefix="house/3/lamp")]
    assert outward(topics).map("lamp") == "house/3/lamp"
    assert inward(topics).map("house/3/lamp") == "lamp"
    assert outward(topics).map("lamp/x") is None


def test_the_first_entry_that_matches_counts() -> None:
    topics = [
        BridgeTopic(filter="a/b", direction="in", remote_prefix="never/"),
        BridgeTopic(filter="a/+", remote_prefix="one/"),
        BridgeTopic(filter="#", remote_prefix="two/", qos=2),
    ]
    assert outward(topics).map("a/b") == "one/a/b"
    assert outward(topics).map("a/b/c") == "two/a/b/c"
    assert inward(topics).map("a/b") is None
    assert inward(topics).map("never/a/b") == "a/b"


def test_subscriptions_want_nothing_of_our_own_and_flags_as_they_are() -> None:
    topics = [BridgeTopic(filter="a/#", direction="both", qos=2, local_prefix="l/", remote_prefix="r/")]
    assert outward(topics).requests(2) == [SubscribeRequest("l/a/#", 2, True, True, 2)]
    assert inward(topics).requests(1) == [SubscribeRequest("r/a/#", 2, True, True, 1)]
    assert inward([BridgeTopic(filter="a")]).requests(0) == []
