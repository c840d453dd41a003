"""Which message goes next: every one at least once, none twice without a crash, live beside any backlog."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.edge.forwarding.lanes import NOT_OURS, Bounds
from headwater.edge.forwarding.pace import Pace
from tests.edge.forwarding.lines import CLASSES, Forwarding, Line, class_of

SECOND = 1_000_000
SMALL = Bounds(most_under_way=5, most_queued=6, most_ranges=9, most_parked=3, live_within=1.0)
TOPICS = [*CLASSES, "others"]

steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["publish", "publish", "live", "backlog", "leave", "send", "send", "answer", "refuse", "wait", "crash"]
        ),
        st.integers(0, 11),
    ),
    max_size=150,
)


class Played:
    """A random story."""

    def __init__(self, bounds: Bounds, crashes: bool) -> None:
        self.forwarding = Forwarding(bounds)
        self.crashes = crashes
        self.now = 0.0
        self.most_ranges = 0

    def play(self, story: list[tuple[str, int]]) -> Forwarding:
        for what, number in story:
            self._do(what, number)
            self.most_ranges = max(self.most_ranges, self.forwarding.lanes.ranges())
        return self.forwarding

    def _do(self, what: str, number: int) -> None:
        made = self.forwarding
        clock = int(self.now * SECOND)
        if what == "publish":
            for each in range(number):
                made.publish(TOPICS[(number * 7 + each * each) % 4], clock)
        elif what == "live":
            made.read_live()
        elif what == "backlog":
            made.read_backlog()
        elif what == "leave":
            made.lanes.leave_behind(made.next)
        elif what == "send":
            made.send(self.now, clock)
        elif what == "answer" and made.under_way:
            made.answer(number % len(made.under_way), self.now)
        elif what == "refuse" and made.under_way:
            made.refuse(number % len(made.under_way), self.now + number)
        elif what == "wait":
            self.now += number / 4
        elif what == "crash" and self.crashes:
            made.crash(number)


def ours(made: Forwarding) -> list[int]:
    return [each.position for each in made.store if class_of(each.topic) != NOT_OURS]


@given(steps)
@settings(max_examples=400, deadline=None)
def test_each_message_is_forwarded_once(story: list[tuple[str, int]]) -> None:
    played = Played(SMALL, crashes=False)
    made = played.play(story)
    made.finish(played.now + 100, int((played.now + 100) * SECOND))
    assert made.delivered == dict.fromkeys(ours(made), 1)
    assert made.lanes.under_way == made.lanes.bytes_under_way == made.lanes.backlog_under_way == 0
    assert [len(each) for each in made.lanes.loaded] == [0] * len(CLASSES)
    assert made.progress.position == made.next - 1


@given(steps)
@settings(max_examples=400, deadline=None)
def test_after_crashes_none_is_missing_and_only_what_was_under_way_may_come_again(story: list[tuple[str, int]]) -> None:
    played = Played(SMALL, crashes=True)
    made = played.play(story)
    made.finish(played.now + 100, int((played.now + 100) * SECOND))
    assert set(made.delivered) == set(ours(made))
    crashed = sum(1 for what, _ in story if what == "crash")
    assert sum(made.delivered.values()) - len(made.delivered) <= crashed * SMALL.most_under_way


@given(steps)
@settings(max_examples=300, deadline=None)
def test_ranges_are_bounded(story: list[tuple[str, int]]) -> None:
    """By what was left behind, and by what was answered out of its order."""
    played = Played(SMALL, crashes=True)
    played.play(story)
    assert played.most_ranges <= SMALL.most_ranges + SMALL.most_under_way + SMALL.most_parked


@given(steps, st.booleans())
@settings(max_examples=300, deadline=None)
def test_a_class_keeps_its_order_within_a_lane(story: list[tuple[str, int]], in_order: bool) -> None:
    """Of what was not refused: within the live lane always, within the backlog since something was left behind."""
    bounds = Bounds(most_under_way=5, most_queued=6, most_ranges=9, most_parked=3, live_within=1.0, in_order=in_order)
    played = Played(bounds, crashes=False)
    made = played.play([each for each in story if each[0] != "refuse"])
    made.finish(played.now + 100, int((played.now + 100) * SECOND))
    live = [item for item in made.sent if not item.is_backlog]
    for urgency in CLASSES.values():
        positions = [item.span.position for item in live if item.span.urgency == urgency]
        assert positions == sorted(positions)
    if in_order:
        assert not [item for item in made.sent if item.is_backlog]


@given(steps, st.sampled_from([1, len(CLASSES)]))
@settings(max_examples=300, deadline=None)
def test_what_retention_removes_is_counted(story: list[tuple[str, int]], classes: int) -> None:
    """Of what is lost only positions are known: they may have been of another class, or of nobody."""
    played = Played(SMALL, crashes=False)
    made = played.forwarding = Forwarding(SMALL, classes=classes)
    played.play(story)
    made.first = made.next // 2 + 1
    made.finish(played.now + 100, int((played.now + 100) * SECOND))
    assert {each for each in ours(made) if each not in made.delivered} <= made.lost
    assert all(each < made.first for each in made.lost)
    if classes == 1:
        assert not made.lost & set(made.delivered)


def test_what_is_left_behind_is_one_range_and_goes_from_its_beginning() -> None:
    made = Forwarding(Bounds(), part=1000)
    for _ in range(100):
        made.publish("usual", 0)
    assert made.lanes.leave_behind(made.next)
    made.publish("usual", 10 * SECOND)
    assert made.lanes.ranges() == 3  # one for each class: nobody has looked yet what is in it
    made.read_live()
    made.read_backlog()
    made.read_backlog()
    assert made.lanes.ranges() == 2  # and now it is known of the most urgent
    order = []
    while (item := made.send(10.0, 10 * SECOND)) is not None:
        order.append(item.span.position)
        made.answer(0, 10.0)
    assert order == [101, *range(1, 101)]


def test_the_most_urgent_class_goes_first_in_each_lane() -> None:
    made = Forwarding(Bounds(), part=1000)
    for topic in ("slow", "usual", "urgent", "slow", "urgent"):
        made.publish(topic, 0)
    made.lanes.leave_behind(made.next)
    for topic in ("slow", "urgent"):
        made.publish(topic, 10 * SECOND)
    made.read_live()
    for _ in CLASSES:
        made.read_backlog()
    sent = []
    while (item := made.send(10.0, 10 * SECOND)) is not None:
        sent.append((item.is_backlog, item.span.position))
    assert sent == [(False, 7), (False, 6), (True, 3), (True, 5), (True, 2), (True, 1), (True, 4)]


def test_a_more_urgent_backlog_does_not_wait_for_what_is_queued_of_another() -> None:
    made = Forwarding(Bounds(), part=1000)
    made.publish("slow", 0)
    made.lanes.leave_behind(made.next)
    made.read_backlog()
    made.read_backlog()
    made.read_backlog()
    assert made.lanes.backlog.messages == 1
    made.publish("urgent", 0)
    made.lanes.leave_behind(made.next)
    made.read_backlog()
    assert made.lanes.backlog.messages == 1
    item = made.send(10.0, 10 * SECOND)
    assert item is not None and item.entry.topic == "urgent"
    made.finish(10.0, 10 * SECOND)


def test_a_backlog_has_half_of_what_may_be_under_way() -> None:
    made = Forwarding(Bounds(most_under_way=10), part=1000)
    for _ in range(50):
        made.publish("usual", 0)
    made.lanes.leave_behind(made.next)
    for _ in CLASSES:
        made.read_backlog()
    while made.send(10.0, 10 * SECOND) is not None:
        pass
    assert made.lanes.backlog_under_way == 5
    for _ in range(50):
        made.publish("usual", 10 * SECOND)
    made.read_live()
    while made.send(10.0, 10 * SECOND) is not None:
        pass
    assert made.lanes.under_way == 10


def test_memory_is_bounded() -> None:
    """What is read is bounded by bytes, in each lane, and what is under way; a part is read whole."""
    size = made_size()
    bounds = Bounds(most_bytes_queued=10 * size, most_bytes_under_way=8 * size)
    made = Forwarding(bounds, part=4, classes=1)
    for _ in range(100):
        made.publish("usual", 0)
    made.lanes.leave_behind(made.next)
    for _ in range(100):
        made.publish("usual", 10 * SECOND)
    for _ in range(20):
        made.read_live()
        made.read_backlog()
    assert made.lanes.live.size < 14 * size
    assert made.lanes.backlog.size < 14 * size
    while made.send(10.0, 10 * SECOND) is not None:
        pass
    assert made.lanes.bytes_under_way == 8 * size
    for _ in range(8):
        made.refuse(0, 1000.0)
    while made.send(10.0, 10 * SECOND) is not None:
        made.refuse(0, 1000.0)
    assert made.lanes.parked == 10
    assert made.lanes.is_blocked


def test_with_too_many_ranges_nothing_is_left_behind() -> None:
    made = Forwarding(Bounds(most_ranges=4))
    made.publish("usual", 0)
    assert made.lanes.leave_behind(made.next)
    made.publish("usual", 0)
    assert not made.lanes.leave_behind(made.next)
    made.finish(10.0, 10 * SECOND)
    assert made.delivered == {1: 1, 2: 1}


def test_what_is_refused_does_not_hold_up_what_follows() -> None:
    made = Forwarding(Bounds(), part=1000)
    for _ in range(5):
        made.publish("usual", 0)
    made.read_live()
    made.send(0.0, 0)
    made.refuse(0, 30.0)
    sent = []
    while (item := made.send(1.0, SECOND)) is not None:
        sent.append(item.span.position)
    assert sent == [2, 3, 4, 5]
    assert made.lanes.next_at(1.0) == 30.0
    item = made.send(30.0, 30 * SECOND)
    assert item is not None and item.span.position == 1


def test_when_too_many_are_refused_nothing_new_is_sent() -> None:
    made = Forwarding(Bounds(most_parked=3), part=1000)
    for _ in range(10):
        made.publish("usual", 0)
    made.read_live()
    for _ in range(3):
        made.send(0.0, 0)
        made.refuse(0, 30.0)
    assert made.send(1.0, SECOND) is None
    assert made.lanes.is_blocked
    made.finish(30.0, 30 * SECOND)


def test_in_order_late_messages_go_at_the_pace_of_a_backlog() -> None:
    made = Forwarding(Bounds(in_order=True, live_within=1.0), Pace(10.0, None, 10.0, 1 << 40), part=1000)
    for _ in range(100):
        made.publish("usual", 0)
    made.publish("usual", 60 * SECOND)
    made.read_live()
    assert not made.lanes.leave_behind(made.next)
    now, times = 60.0, []
    while len(times) < 101:
        item = made.send(now, int(now * SECOND))
        if item is None:
            due = made.lanes.next_at(now)
            assert due is not None
            now = due
        else:
            times.append(now)
            made.answer(0, now)
    assert times[-1] == pytest.approx(60.0 + 9.0, abs=0.2)  # ten of them were saved up


def latencies(backlog: int, seconds: float, rate: float) -> tuple[list[float], int]:
    """Of live messages, twenty a second, beside such a backlog, over a line of `rate` bytes a second and 40 ms; and how
    many of the backlog were sent."""
    bounds = Bounds(most_under_way=5000, most_bytes_under_way=64 << 20)
    made = Forwarding(bounds, Pace(None, None, 0.1, bounds.most_bytes_under_way // 2), part=200, classes=1)
    line = Line(rate, 0.02)
    for _ in range(backlog):
        made.publish("usual", 0)
    start = 3600.0
    made.lanes.leave_behind(made.next)
    now, due, found = start, start, []
    while now < start + seconds:
        clock = int(now * SECOND)
        if now >= due:
            made.publish("usual", clock)
            due += 0.05
        made.read_live()
        made.read_backlog()
        while (item := made.send(now, clock)) is not None:
            line.send(item, now)
        while line.answers and line.answers[0][0] <= now:
            _, _, item, there = heapq.heappop(line.answers)
            made.answer(made.under_way.index(item), now)
            if not item.is_backlog:
                found.append(there - item.entry.arrival / SECOND)
        now = min([due, *(each[0] for each in line.answers[:1])])
    return found, sum(1 for item in made.sent if item.is_backlog)


def late(found: list[float]) -> float:
    """The 99th percentile."""
    return sorted(found)[len(found) * 99 // 100]


@pytest.mark.parametrize("rate", [40_000.0, 125_000.0, 1_250_000.0])
def test_a_live_message_does_not_wait_longer_for_a_longer_backlog(rate: float) -> None:
    """The bound is the way, what a backlog may add, and what is under way when the window is just too large; and the
    line is used."""
    alone, _ = latencies(0, 20.0, rate)
    short, _ = latencies(2_000, 20.0, rate)
    long, sent = latencies(60_000, 20.0, rate)
    assert len(long) > 350
    assert late(alone) < 0.04
    assert late(short) < 0.2
    assert late(long) < 0.2
    assert max(long) < 0.3
    assert sent == 60_000 or sent * made_size() > 0.85 * rate * 20.0 - len(long) * made_size()


def made_size() -> int:
    made = Forwarding(Bounds())
    made.publish("usual", 0)
    made.read_live()
    item = made.send(0.0, 0)
    assert item is not None
    return item.size
