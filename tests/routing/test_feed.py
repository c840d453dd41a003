"""The feed of route changes: whoever follows it knows what the router knows."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.message import Message, Subscription
from headwater.routing.feed import FILTER_ADDED, GROUP_ADDED, RouteChange, RouteListener
from headwater.routing.router import MANY_FILTERS
from tests.routing.test_router import FILTERS, SESSIONS, new_router


class Follower(RouteListener):
    """Keeps what the feed says: wanted filters and groups, retained topics."""

    def __init__(self) -> None:
        self.wanted: set[tuple[str | None, str]] = set()
        self.retained: dict[str, Message] = {}
        self.stamps: list[int] = []
        self.touched: list[str] = []

    def recipients_changed(self, filter: str) -> None:
        self.touched.append(filter)

    def everything_changed(self) -> None:
        self.touched.append("everything")

    def wanted_changed(self, change: RouteChange) -> None:
        self.stamps.append(change.stamp)
        if change.kind in (FILTER_ADDED, GROUP_ADDED):
            assert (change.share, change.filter) not in self.wanted, "only the first is told of"
            self.wanted.add((change.share, change.filter))
        else:
            self.wanted.remove((change.share, change.filter))

    def retained_changed(self, topic: str, message: Message | None, stamp: int) -> None:
        self.stamps.append(stamp)
        if message is None:
            del self.retained[topic]
        else:
            self.retained[topic] = message


CHANGES = st.tuples(
    st.sampled_from(["add", "add", "remove", "retain", "clear"]),
    st.sampled_from(SESSIONS),
    st.sampled_from(FILTERS),
    st.sampled_from([None, None, "g", "h"]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(CHANGES, max_size=40))
def test_who_follows_the_feed_knows_what_is_wanted(changes: list[tuple[str, str, str, str | None]]) -> None:
    router, follower = new_router(), Follower()
    router.feed.listen(follower)
    for what, session, filter, share in changes:
        before = len(follower.touched)
        if what == "add":
            router.subscribe(session, Subscription(filter, share=share))
            assert follower.touched[before:] == [filter], "every subscription changes who gets it"
        elif what == "remove":
            router.unsubscribe(session, Subscription(filter, share=share))
        else:
            router.retain(Message(filter, b"m" if what == "retain" else b"", retain=True))
        groups = {(group.share, group.filter) for group in router.groups.all()}
        assert follower.wanted == {(None, each) for each in router.trie.filters()} | groups
        assert set(follower.retained) == {message.topic for message in router.retained.some(0, 100)}
    assert follower.stamps == list(range(1, len(follower.stamps) + 1)), "a missing stamp is a missed change"
    assert router.feed.stamp == len(follower.stamps)


def test_a_retained_message_that_finds_no_room_is_not_told_of() -> None:
    router, follower = new_router(), Follower()
    router.retained.max_messages = 1
    router.feed.listen(follower)
    assert router.retain(Message("a", b"1", retain=True))
    assert not router.retain(Message("b", b"1", retain=True))
    assert not router.retain(Message("c", b"", retain=True)), "there was none"
    assert set(follower.retained) == {"a"} and follower.stamps == [1]


def test_a_session_with_many_filters_is_told_of_at_once() -> None:
    router, follower = new_router(), Follower()
    router.feed.listen(follower)
    router.session_changed(["a", "b/#"])
    router.session_changed([str(number) for number in range(MANY_FILTERS + 1)])
    assert follower.touched == ["a", "b/#", "everything"]


def test_who_leaves_is_told_nothing_more() -> None:
    router, follower = new_router(), Follower()
    router.feed.listen(follower)
    router.feed.leave(follower)
    router.subscribe("one", Subscription("a"))
    assert not follower.wanted and not follower.touched
