"""What comes back of what was handed over is swallowed, and nothing else."""

from __future__ import annotations

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headwater.node.proxy.echo import ENTRY, FENCES, Outstanding, Remembered, digest

KEYS = st.sampled_from([b"x", b"y", b"z"])
WAY = st.sampled_from(FENCES)


def come(echoes: Outstanding, number: int) -> bool:
    """The fence comes, with each QoS."""
    found = [echoes.fence_came(number, qos) for qos in FENCES]
    return all(found)


class HomeBroker(RuleBasedStateMachine):
    """A broker that keeps the order of what it is sent with each QoS, and may drop any echo. Messages of its own
    clients come in between, with the same keys: as many have to come through as were published, give or take the
    echoes that were dropped and not settled yet."""

    def __init__(self) -> None:
        super().__init__()
        self.echoes = Outstanding(1000 * ENTRY)
        self.queues: dict[int, deque[tuple[str, bytes]]] = {way: deque() for way in FENCES}
        self.published = 0
        self.came_through = 0
        self.dropped = 0
        """Echoes, and not settled."""

    @property
    def on_its_way(self) -> list[tuple[str, bytes]]:
        return [each for queue in self.queues.values() for each in queue]

    @rule(key=KEYS, way=WAY)
    def hand_over(self, key: bytes, way: int) -> None:
        self.echoes.handed_over(key, 0.0)
        self.queues[way].append(("echo", key))

    @rule(key=KEYS, way=WAY)
    def a_client_publishes(self, key: bytes, way: int) -> None:
        self.published += 1
        self.queues[way].append(("message", key))

    @rule()
    def fence(self) -> None:
        number = str(self.echoes.fence()).encode()
        for queue in self.queues.values():
            queue.append(("fence", number))

    @rule(at=st.integers(min_value=0, max_value=20), way=WAY)
    def drop_an_echo(self, at: int, way: int) -> None:
        queue = self.queues[way]
        if at < len(queue) and queue[at][0] == "echo":
            del queue[at]
            self.dropped += 1

    @rule(way=WAY)
    def deliver(self, way: int) -> None:
        if not self.queues[way]:
            return
        kind, key = self.queues[way].popleft()
        if kind == "fence":
            self.echoes.fence_came(int(key), way)
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
        for way in FENCES:
            while self.queues[way]:
                self.deliver(way)
        assert come(self.echoes, self.echoes.fence())
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
    assert come(echoes, number)
    assert not echoes.swallows(b"x", 0.0), "the echo was dropped: this is a client's message"
    assert echoes.swallows(b"y", 0.0), "it was handed over behind the fence"
    assert not come(echoes, number)
    assert echoes.settled == 1


def test_half_a_fence_settles_nothing() -> None:
    """RabbitMQ: what its client gets with QoS 0 has a queue of its own."""
    echoes = Outstanding(1 << 20)
    echoes.handed_over(b"x", 0.0)
    number = echoes.fence()
    assert echoes.fence_came(number, 2)
    assert echoes.swallows(b"x", 0.0)
    assert echoes.fence_came(number, 0)
    assert echoes.count == 0 and echoes.settled == 0


def test_a_fence_that_is_lost_is_settled_by_the_next() -> None:
    echoes = Outstanding(1 << 20)
    echoes.handed_over(b"x", 0.0)
    echoes.fence()
    echoes.handed_over(b"x", 0.0)
    assert come(echoes, echoes.fence())
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


def test_on_a_new_connection_of_the_session_an_echo_may_come_again() -> None:
    """With DUP, once for each that was swallowed; until a fence of this connection is back."""
    echoes = Outstanding(1 << 20)
    for _ in range(2):
        echoes.handed_over(b"x", 0.0)
        assert echoes.swallows(b"x", 0.0)
    assert not echoes.swallows(b"x", 0.0, is_repeated=True), "on this connection, nothing is repeated"
    echoes.connected(True)
    assert not echoes.swallows(b"x", 0.0), "a client's, as it has no DUP"
    assert echoes.swallows(b"x", 0.0, is_repeated=True)
    assert echoes.swallows(b"x", 0.0, is_repeated=True)
    assert not echoes.swallows(b"x", 0.0, is_repeated=True)
    echoes.connected(True)
    assert echoes.wants_fence
    assert come(echoes, echoes.fence())
    assert not echoes.swallows(b"x", 0.0, is_repeated=True)


def test_what_was_swallowed_is_remembered_until_two_fences_are_back() -> None:
    echoes = Outstanding(1 << 20)
    for fences in (0, 1, 2):
        echoes.handed_over(b"x", 0.0)
        assert echoes.swallows(b"x", 0.0)
        for _ in range(fences):
            assert echoes.wants_fence
            assert come(echoes, echoes.fence())
        echoes.connected(True)
        assert echoes.swallows(b"x", 0.0, is_repeated=True) is (fences < 2)
        while echoes.wants_fence:
            assert come(echoes, echoes.fence())


def test_on_a_new_connection_what_is_outstanding_still_comes() -> None:
    """And once more, if it is handed over once more. A fence that was under way is lost."""
    echoes = Outstanding(1 << 20)
    echoes.handed_over(b"x", 0.0)
    number = echoes.fence()
    echoes.connected(True)
    assert not come(echoes, number)
    assert echoes.wants_fence
    echoes.handed_over(b"x", 0.0)
    assert [echoes.swallows(b"x", 0.0) for _ in range(3)] == [True, True, False]


def test_a_new_session_sends_nothing_back() -> None:
    echoes = Outstanding(1 << 20)
    for key in (b"x", b"y"):
        echoes.handed_over(key, 0.0)
    assert echoes.swallows(b"y", 0.0)
    echoes.connected(False)
    assert echoes.count == 0 and not echoes.wants_fence
    assert not echoes.swallows(b"x", 0.0)
    assert not echoes.swallows(b"y", 0.0, is_repeated=True)


def test_what_is_remembered_counts_with_what_is_outstanding() -> None:
    echoes = Outstanding(10 * ENTRY)
    for number in range(100):
        echoes.handed_over(str(number).encode(), 0.0)
        assert echoes.swallows(str(number).encode(), 0.0)
    for number in range(5):
        echoes.handed_over(b"out %d" % number, 0.0)
    assert echoes.count == 5
    echoes.connected(True)
    again = [number for number in range(100) if echoes.swallows(str(number).encode(), 0.0, is_repeated=True)]
    assert again == [95, 96, 97, 98, 99]


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
