from __future__ import annotations

import pytest

from headwater.node.proxy.pacing import BURST, ENOUGH, LONGEST, MEMORY, MOST_EVENTS, Pace


def turn(pace: Pace, packets: list[int], took: float = 0.001) -> float:
    """The rest behind a turn whose reads found so many packets."""
    pace.begin()
    for each in packets:
        pace.read(each)
    return pace.rest_after(took, len(packets))


@pytest.mark.parametrize(
    ("took", "packets", "expected"),
    [
        (0.00002, [1], 0.0),  # one message: at once
        (0.001, [1] * 50, 0.0),  # in lock-step: rests would bring nothing
        (0.001, [30, 2, 2, 2, 2], LONGEST),  # in bursts, and fetched too soon
        (0.001, [30] * 5, 0.0),  # enough in each read
        (0.0001, [30, 2, 2, 2, 2], 0.0004),  # never much longer than the turn
    ],
)
def test_how_long_a_relay_rests(took: float, packets: list[int], expected: float) -> None:
    assert turn(Pace(), packets, took) == pytest.approx(expected)


def test_a_burst_is_remembered_for_a_while() -> None:
    pace = Pace()
    turn(pace, [BURST])
    assert [turn(pace, [1]) for _ in range(MEMORY)] == [LONGEST] * (MEMORY - 1) + [0.0]


def test_while_more_are_ready_than_a_turn_serves_there_is_no_rest() -> None:
    assert turn(Pace(), [BURST] * MOST_EVENTS) == 0.0
    assert turn(Pace(), [BURST] * (MOST_EVENTS - 1)) == LONGEST


@pytest.mark.parametrize("packets", [[1], [1] * 50, [30, 2, 2, 2, 2], [30] * 5, [BURST - 1, BURST, ENOUGH - 1, ENOUGH]])
def test_reads_may_be_told_one_by_one_or_in_sum(packets: list[int]) -> None:
    pace = Pace()
    pace.begin()
    small = sum(each < ENOUGH for each in packets)
    bursts = sum(each >= BURST for each in packets)
    pace.passed(len(packets), small, bursts)
    assert pace.rest_after(0.001, len(packets)) == turn(Pace(), packets)
