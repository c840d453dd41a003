"""What comes back of what was handed over is swallowed, and nothing else."""

from __future__ import annotations

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headwater.node.proxy.echo import ENTRY, Outstanding, Remembered, digest

KEYS = st.sampled_from([b"x", b"y", b"z"])
FENCE = b"fence"


class HomeBroker(RuleBasedStateMachine):
    """A broker that keeps the order of what it is sent, and may drop any echo. Messages of its own clients come in
    between, with the same keys: as many have to come through as were published, give or take the echoes that were
    dropped and not settled yet."""

    def __init__(self) -> None:
        super().__init__()
        self.echoes = Outstanding(1000 * ENTRY)
        self.on_its_way: deque[tuple[str, bytes]] = deque()
        self.published = 0
        self.came_through = 0
        self.dropped = 0
        """Echoes, and not settled."""

    @rule(key=KEYS)
    def hand_over(self, key: bytes) -> None:
        self.echoes.handed_over(key, 0.0)
        self.on_its_way.append(("echo", key))

    @rule(key=KEYS)
    def a_client_publishes(self, key: bytes) -> None:
        self.published += 1
        self.on_its_way.append(("message", key))

    @rule()
    def fence(self) -> None:
        self.on_its_way.append((f"fence {self.dropped}", str(self.echoes.fence()).encode()))

    @rule(at=st.integers(min_value=0, max_value=20))
    def drop_an_echo(self, at: int) -> None:
        if at < len(self.on_its_way) and self.on_its_way[at][0] == "echo":
            del self.on_its_way[at]
            self.dropped += 1

    @rule()
    def deliver(self) -> None:
        if not self.on_its_way:
            return
        kind, key = self.on_its_way.popleft()
        if kind.startswith("fence"):
            assert self.echoes.fence_came(int(key))
            return
        if not self.echoes.swallows(key, 0.0):
            self.came_through += 1

    @invariant()
    def nothing_comes_through_that_was_not_published(self) -> None:
        waiting = sum(kind == "message" for kind, _ in self.on_its_way)
        delivered = self.published - waiting
        # An echo that takes a message's place is swallowed in its place: never more through than published, and never
        # fewer than the echoes that the broker dropped explain.
        assert self.came_through <= self.published
        assert self.came_through >= delivered - self.dropped - sum(kind == "echo" for kind, _ in self.on_its_way)

    def teardown(self) -> None:
        while self.on_its_way:
            self.deliver()
        number = self.echoes.fence()
        assert self.echoes.fence_came(number)
        assert self.echoes.count == 0
        assert self.published - self.dropped <= self.came_through <= self.published
        if not self.dropped:
            assert self.came_through == self.published


HomeBroker.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestHomeBroker = HomeBroker.TestCase


def test_of_two_equal_messages_and_one_echo_both_come_through() -> None:
    echoes = Outstanding(1 << 20)
    echoes.handed_over(b"x", 0.0)
    came = [echoes.swallows(b"x", 0.0) for _ in range(3)]
    assert came == [True, False, False]


def test_a_fence_settles_what_a_broker_has_dropped() -> None:
    echoes = Outstanding(1 << 20)
    echoes.handed_over(b"x", 0.0)
    number = echoes.fence()
    echoes.handed_over(b"y", 0.0)
    assert echoes.fence_came(number)
    assert not echoes.swallows(b"x", 0.0), "the echo was dropped: this is a client's message"
    assert echoes.swallows(b"y", 0.0), "it was handed over behind the fence"
    assert not echoes.fence_came(number)
    assert echoes.settled == 1


def test_a_fence_that_is_lost_is_settled_by_the_next() -> None:
    echoes = Outstanding(1 << 20)
    echoes.handed_over(b"x", 0.0)
    echoes.fence()
    echoes.handed_over(b"x", 0.0)
    assert echoes.fence_came(echoes.fence())
    assert echoes.count == 0 and not echoes.fences


def test_what_is_outstanding_is_bounded() -> None:
    echoes = Outstanding(10 * ENTRY)
    for number in range(25):
        echoes.handed_over(str(number).encode(), 0.0)
    assert echoes.count == 10 and echoes.forgotten == 15
    assert not echoes.swallows(b"14", 0.0)
    assert echoes.swallows(b"15", 0.0)


def test_no_fence_while_nothing_is_outstanding() -> None:
    echoes = Outstanding(1 << 20)
    assert not echoes.wants_fence
    echoes.handed_over(b"x", 0.0)
    assert echoes.wants_fence
    echoes.fence()
    assert not echoes.wants_fence, "it is under way"
    echoes.handed_over(b"x", 0.0)
    assert echoes.wants_fence


def test_the_paper_s_memory_takes_a_sensor_that_says_the_same_twice_for_a_loop() -> None:
    """Another node's reading was handed over; a sensor here reads the same, twice: both are lost."""
    key = digest("room/temperature", b"21.5")
    paper, ours = Remembered(1 << 20, seconds=5.0), Outstanding(1 << 20)
    for memory in (paper, ours):
        memory.handed_over(key, now=0.0)
        assert memory.swallows(key, now=0.1), "the echo"
    assert [paper.swallows(key, now) for now in (1.0, 2.0, 6.0)] == [True, True, False]
    assert [ours.swallows(key, now) for now in (1.0, 2.0, 6.0)] == [False, False, False]


def test_digests_tell_topic_from_payload() -> None:
    assert digest("a", b"b") != digest("ab", b"") != digest("", b"ab")
