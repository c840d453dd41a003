"""The rate of a backlog, and the window that finds by itself what the line takes."""

from __future__ import annotations

import pytest

from headwater.edge.forwarding.pace import MEMORY, SMALLEST, Pace

LARGE = 1 << 30


@pytest.mark.parametrize(("messages", "size"), [(100.0, None), (None, 50_000.0), (100.0, 1e9)])
def test_a_rate_is_kept(messages: float | None, size: float | None) -> None:
    """In whichever unit: 100 messages of 500 bytes a second, and what was saved up for one second."""
    pace = Pace(messages, size, 0.1, LARGE)
    now, sent = 0.0, 0
    while now < 10.0:
        ready = pace.ready_at(now)
        if ready <= now:
            pace.sent(500)
            sent += 1
        else:
            now = ready
    assert 1000 <= sent <= 1102


def test_a_message_larger_than_the_bucket_goes_and_is_paid_for() -> None:
    pace = Pace(None, 1000.0, 0.1, LARGE)
    assert pace.ready_at(0.0) <= 0.0
    pace.sent(10_000)
    assert pace.ready_at(0.0) == pytest.approx(9.0, abs=0.01)


def test_without_a_rate_nothing_waits_for_a_time() -> None:
    pace = Pace(None, None, 0.1, LARGE)
    for _ in range(1000):
        pace.sent(1 << 20)
    assert pace.ready_at(5.0) == 5.0


def test_the_window_grows_while_answers_come_at_once() -> None:
    pace = Pace(None, None, 0.1, 1 << 20)
    for step in range(2000):
        pace.answered(step * 0.01, step * 0.01 - 0.05, 1000)
    assert pace.window == 1 << 20


def test_late_answers_halve_it_once_a_round() -> None:
    pace = Pace(None, None, 0.1, 1 << 20)
    for step in range(1000):
        pace.answered(step * 0.01, step * 0.01 - 0.05, 1000)
    large = pace.window
    for late in range(10):  # all of them were sent before the first came
        pace.answered(10.0 + late * 0.001, 9.8, 1000)
    assert pace.window == large / 2
    pace.answered(10.5, 10.2, 1000)  # this one was sent after it
    assert pace.window == large / 4


def test_the_window_never_closes() -> None:
    pace = Pace(None, None, 0.1, 1 << 20)
    pace.answered(0.0, -0.01, 1)
    for step in range(20):
        pace.answered(step + 10.0, step + 9.5, 1000)
    assert pace.window == SMALLEST
    assert pace.allows(0)
    assert not pace.allows(SMALLEST)


def test_answers_of_live_messages_slow_a_backlog_down_too() -> None:
    pace = Pace(None, None, 0.1, 1 << 20)
    for step in range(100):
        pace.answered(step * 0.01, step * 0.01 - 0.05, 1000)
    before = pace.window
    pace.answered(1.0, 0.99, 0)
    assert pace.window == before  # but they do not make it larger
    pace.answered(2.0, 1.5, 0)
    assert pace.window < before


def test_a_way_that_has_become_longer_is_believed_in_time() -> None:
    pace = Pace(None, None, 0.1, 1 << 20)
    pace.answered(0.0, -0.01, 1000)
    for step in range(int(3 * MEMORY)):
        pace.answered(step + 1.0, step + 0.5, 1000)
    small = pace.window
    for step in range(100):
        pace.answered(3 * MEMORY + 2.0 + step * 0.1, 3 * MEMORY + 1.5 + step * 0.1, 1000)
    assert pace.window > small
