"""Deadlines against a naive list of them."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from headwater.message import NEVER
from headwater.node.plane.timers import Timer, Timers


class TimersMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.timers = Timers()
        self.now = 100.0
        self.made: list[tuple[Timer, int]] = []
        self.pending: dict[int, float] = {}
        self.called: list[int] = []

    def expect_at(self, when: float, again: float = 0.0) -> None:
        number = len(self.made)

        def called() -> None:
            assert number in self.pending, "called twice, or after it was cancelled"
            assert self.pending.pop(number) <= self.now
            self.called.append(number)
            if again:
                self.expect_at(self.now + again)

        self.pending[number] = when
        self.made.append((self.timers.at(when, called), number))

    @rule(after=st.sampled_from([-5.0, 0.0, 1.0, 2.0, 2.0, 50.0]), again=st.sampled_from([0.0, 0.0, 3.0]))
    def at(self, after: float, again: float) -> None:
        self.expect_at(self.now + after, again)

    @rule(which=st.integers(0, 1000))
    def cancel(self, which: int) -> None:
        """Also those that were called or cancelled already."""
        if self.made:
            timer, number = self.made[which % len(self.made)]
            self.timers.cancel(timer)
            self.pending.pop(number, None)

    @rule(count=st.integers(50, 150))
    def make_and_cancel_many(self, count: int) -> None:
        for timer in [self.timers.at(self.now + 1000, self.never) for _ in range(count)]:
            self.timers.cancel(timer)

    def never(self) -> None:
        raise AssertionError("it was cancelled")

    @rule(seconds=st.sampled_from([0.0, 1.0, 7.0, 60.0]))
    def run_due(self, seconds: float) -> None:
        self.now += seconds
        due = {number: when for number, when in self.pending.items() if when <= self.now}
        self.called = []
        self.timers.run(self.now)
        assert set(due) == set(self.called)
        assert [due[number] for number in self.called] == sorted(due.values()), "the earliest first"

    @invariant()
    def soonest_is_no_later_than_the_next(self) -> None:
        assert self.timers.soonest <= min(self.pending.values(), default=NEVER)

    @invariant()
    def cancelled_timers_do_not_pile_up(self) -> None:
        assert len(self.timers) <= 2 * len(self.pending) + 66


def test_as_a_naive_list_would() -> None:
    run_state_machine_as_test(TimersMachine, settings=settings(max_examples=60, stateful_step_count=30, deadline=None))


def test_soonest_is_never_when_nothing_is_left() -> None:
    timers = Timers()
    assert timers.soonest == NEVER
    timers.at(5.0, lambda: None)
    assert timers.soonest == 5.0
    timers.run(5.0)
    assert (timers.soonest, len(timers)) == (NEVER, 0)


def test_one_that_raises_does_not_keep_the_others_from_being_called(caplog: pytest.LogCaptureFixture) -> None:
    timers = Timers()
    called: list[int] = []

    def broken() -> None:
        raise ZeroDivisionError("on purpose")

    timers.at(1.0, lambda: called.append(1))
    timers.at(2.0, broken)
    timers.at(3.0, lambda: called.append(3))
    timers.run(5.0)
    assert called == [1, 3] and timers.failures == 1 and "on purpose" in caplog.text


def test_what_is_cleared_is_not_called() -> None:
    timers = Timers()
    timers.at(1.0, pytest.fail)
    timers.clear()
    timers.run(5.0)
    assert (timers.soonest, len(timers)) == (NEVER, 0)


def test_many_that_are_due_are_called_some_at_a_time() -> None:
    timers = Timers()
    called: list[int] = []
    for number in range(3):
        timers.at(float(number), partial(called.append, number))
    timers.run(5.0, 0.0)  # there is no time left
    assert called == [0]
    assert timers.soonest == 1.0, "the others are due"
    timers.run(5.0)
    assert called == [0, 1, 2]
