"""A link is judged by progress of the data plane at its other end."""

from __future__ import annotations

import pytest

from headwater.peering.frames.frame import Heartbeat, MalformedFrame
from headwater.peering.liveness import LIVE, SILENT, STUCK, Liveness


def test_both_ends_hear_each_other() -> None:
    one, two = Liveness(0.0, 1.0, 5.0), Liveness(100.0, 1.0, 5.0)
    for second in range(20):
        two.received(one.beat(second, float(second)), second, 100.0 + second)
        one.received(two.beat(second, 100.0 + second), second, second + 0.25)
        assert (one.judge(second + 0.5), two.judge(100.5 + second)) == (LIVE, LIVE)
    assert one.round_trip == 0.25


def test_silence_ends_a_link() -> None:
    one = Liveness(0.0, 1.0, 5.0)
    assert [one.judge(float(second)) for second in range(1, 7)] == [LIVE] * 5 + [SILENT]


def test_answers_without_progress_end_a_link() -> None:
    """The peer's timers run, but nobody takes what it is sent."""
    one = Liveness(0.0, 1.0, 5.0)
    judged = []
    for second in range(1, 8):
        one.received(Heartbeat(second, 0, 10), 20, float(second))
        judged.append(one.judge(float(second)))
    assert judged == [LIVE] * 6 + [STUCK]


def test_who_is_sent_nothing_is_not_stuck() -> None:
    one = Liveness(0.0, 1.0, 5.0)
    for second in range(1, 20):
        one.received(Heartbeat(second, 0, 10), 10, float(second))
        assert one.judge(float(second)) == LIVE


def test_our_own_absence_is_not_held_against_the_peer() -> None:
    one = Liveness(0.0, 1.0, 5.0)
    assert one.judge(1.0) == LIVE
    assert one.judge(60.0) == LIVE
    assert [one.judge(60.0 + second) for second in range(1, 5)] == [LIVE] * 3 + [SILENT]


def test_a_heartbeat_of_what_was_never_sent_is_malformed() -> None:
    for frame in (Heartbeat(1, 0, 11), Heartbeat(1, 1, 0)):
        with pytest.raises(MalformedFrame):
            Liveness(0.0).received(frame, 10, 0.0)
