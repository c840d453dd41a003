"""Whatever happens to a group, what `adaptive` believes stays sound: random histories, checked after every event."""

from __future__ import annotations

import sys
from collections import deque
from math import isfinite
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.message import Subscription
from headwater.routing.dispatcher import Member
from headwater.routing.dispatchers.adaptive import PROBE, TOLL, Adaptive
from headwater.routing.dispatchers.heap import LineHeap
from headwater.routing.dispatchers.member_queue import BLOCKED, LONGEST, QUICKEST, SLOWEST, MemberQueue
from headwater.routing.shared import Group

EVENTS = (
    *("give", "give", "give", "give 1", "give 1", "give 2", "acknowledge", "acknowledge", "report", "report", "lie"),
    *("sample", "return", "block", "ready", "take", "way", "join", "leave", "offline", "online", "wait", "wait"),
)
PAUSES = (1e-9, 1e-4, 0.013, 0.1, 1.7, 61.0, 1e6)

events = st.tuples(st.sampled_from(EVENTS), st.integers(0, 2**20), st.floats(0.0, 1.0))


class History:
    """A group, what happened to it, and what must be true of it at any time."""

    def __init__(self, members: int) -> None:
        self.dispatcher = Adaptive()
        self.group = Group("g", "a", self.dispatcher)
        self.now = 50.0
        self.joined = 0
        self.ever: list[Member] = []
        for _ in range(members):
            self.join()

    def join(self) -> None:
        self.joined += 1
        self.ever.append(self.group.join(self.joined, Subscription("a", share="g")))

    def happens(self, event: str, number: int, part: float) -> None:
        group, now = self.group, self.now
        member = self.ever[number % len(self.ever)]
        match event.split():
            case ["give", *qos]:
                self.give(int(qos[0]) if qos else 0)
            case ["acknowledge"]:
                group.acknowledged(member, now)
            case ["report"]:
                group.reported(member, number % 7, 0.1 * part or None, now)
            case ["lie"]:
                group.reported(member, number % 10_000_001, 3600.0 * part**9 or None, now)
            case ["sample"]:
                group.sampled(member, number if number % 2 else 0, now)
            case ["return"]:
                group.given_back(member, number % 4, number % 2, now)
            case ["block" | "ready" as state]:
                if group.member(member.key) is member and member.online:  # others have no connection to be full
                    group.block(member) if state == "block" else group.readied(member, now)
            case ["take"]:
                self.dispatcher.taken(member, now)
            case ["way"]:
                member.way = 0.2 * part
            case ["join"]:
                self.join()
            case ["leave"]:
                group.leave(member.key)
            case ["offline" | "online" as state]:
                group.set_online(member.key, state == "online")
            case _:
                self.now += PAUSES[number % len(PAUSES)]

    def give(self, qos: int) -> Member | None:
        member = self.group.choose_online("t", "p", self.now)
        if member is not None:
            assert member.ready
            assert member.online
            assert member in self.group.members()
            self.group.sent(member, 100, qos, self.now)
        return member

    def check(self) -> None:
        adaptive = self.dispatcher
        for member in self.ever:
            self.check_line(line_of(member))
        known = [line_of(member) for member in self.group.members() if line_of(member).counts]
        assert adaptive._known == len(known)
        assert QUICKEST * 0.99 <= adaptive._typical <= SLOWEST * 1.01
        for heap in (adaptive._free, adaptive._busy):
            self.check_heap(heap)
        offered = [line_of(member) for member in adaptive._members]
        assert sorted(map(id, adaptive._free.queues + adaptive._busy.queues)) == sorted(map(id, offered))

    def check_line(self, queue: MemberQueue) -> None:
        assert queue.service == 0.0 or QUICKEST <= queue.service <= SLOWEST
        assert 0.0 <= queue.delay < 1e7
        assert all(map(isfinite, (queue.key, queue.free_at, queue.bound_at, queue.others, queue.busy_gap)))
        assert queue.free_at <= self.now + LONGEST
        assert queue.can_start_at(self.now) <= self.now + max(BLOCKED, queue.patience)

    def check_heap(self, heap: LineHeap) -> None:
        for place, queue in enumerate(heap.queues):
            assert queue.place == place
            above = heap.queues[(place - 1) // 2] if place else queue
            assert (above.level, above.key) <= (queue.level, queue.key)
            # A key may be too early, then the queue is looked at again when it is the first; it is never too late.
            if queue.blocked != queue.member.ready:  # else it is going to be looked at, or the members are others
                right = queue.can_start_at(self.now) - (1.0 - TOLL) * queue.delay
                assert queue.key <= right + 1e-6 or queue.free


def line_of(member: Member) -> MemberQueue:
    assert isinstance(member.model, MemberQueue)
    return member.model


@settings(deadline=None, max_examples=150)
@given(members=st.integers(1, 6), history=st.lists(events, max_size=60))
def test_what_is_believed_stays_sound(members: int, history: list[tuple[str, int, float]]) -> None:
    past = History(members)
    for event in history:
        past.happens(*event)
        past.check()
    past.give(0)
    past.check()


@settings(deadline=None, max_examples=40)
@given(members=st.integers(2, 5), history=st.lists(events, max_size=60))
def test_who_is_there_gets_a_message_within_the_stated_number(
    members: int, history: list[tuple[str, int, float]]
) -> None:
    """After any past: whoever has nothing unacknowledged and has room is chosen within 2·PROBE·n messages, once what it
    was believed to have to do has had the time to be done."""
    past = History(members)
    for event in history:
        past.happens(*event)
    past.join()
    for member in past.group.members():
        past.group.set_online(member.key, True)
        past.group.readied(member, past.now)
        while member.in_flight:
            past.group.acknowledged(member, past.now)
        past.group.sampled(member, 0, past.now)
    count = len(past.group)
    past.now += BLOCKED
    waiting = {member.key for member in past.group.members()}
    for _ in range(2 * PROBE * count):
        past.now += 0.001
        chosen = past.give(0)
        assert chosen is not None
        waiting.discard(chosen.key)
    assert not waiting


@pytest.mark.parametrize("qos", [0, 1])
def test_a_message_costs_the_logarithm_of_the_members(qos: int) -> None:
    """Counted are the calls within the dispatcher. (Compiled, they cannot be seen; interpreted, they are the same.)"""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call" and "dispatchers" in frame.f_code.co_filename

    def per_message(members: int) -> float:
        nonlocal calls
        past = History(members)
        for turn in range(members):  # each has a time of its own
            past.group.reported(past.ever[turn], 0, 0.001 * (1 + turn % 17), past.now)
        past.give(qos)
        calls = 0
        sys.setprofile(count)
        try:
            for _ in range(3_000):
                past.now += 0.00001
                member = past.give(qos)
                if member is not None and member.in_flight > 3:
                    past.group.acknowledged(member, past.now)
        finally:
            sys.setprofile(None)
        return calls / 3_000

    few, many = per_message(10), per_message(1_000)
    assert many <= 3.0 * few + 1.0, f"{few} calls with 10 members, {many} with 1,000"


def test_no_rounding_keeps_the_search_for_the_first_from_ending() -> None:
    """Ways and times for which `a <= b + c` and `a - c <= b` differ: deciding by both once went on for ever."""
    past = History(30)
    in_flight: deque[Member] = deque()
    past.now = 100.0
    for _ in range(400):
        past.now += 50e-6
        for _ in range(50):
            member = past.give(1)
            assert member is not None
            in_flight.append(member)
            if len(in_flight) > 120:
                past.group.acknowledged(in_flight.popleft(), past.now)
    past.check()
