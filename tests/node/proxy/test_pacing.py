from __future__ import annotations

import pytest

from headwater.node.proxy.pacing import LONGEST, MOST_EVENTS, SHORT, Pace


@pytest.mark.parametrize(
    ("took", "packets", "expected"),
    [
        (0.00002, [1], 0.0),  # one message: at once
        (0.001, [1] * 50, SHORT),  # in lock-step: long rests would bring nothing
        (0.001, [30, 2, 2, 2, 2], LONGEST),  # in bursts, and fetched too soon
        (0.001, [30] * 5, 0.0),  # enough in each read
        (0.0001, [30, 2, 2, 2, 2], 0.0004),  # never much longer than the turn
    ],
)
def test_how_long_a_relay_rests(took: float, packets: list[int], expected: float) -> None:
    pace = Pace()
    pace.read(1000)
    pace.begin()
    for each in packets:
        pace.read(each)
    assert pace.rest_after(took, len(packets)) == pytest.approx(expected)


def test_while_more_are_ready_than_a_turn_serves_there_is_no_rest() -> None:
    pace = Pace()
    pace.read(2)
    assert pace.rest_after(0.001, MOST_EVENTS) == 0.0
    assert pace.rest_after(0.001, MOST_EVENTS - 1) > 0.0
