"""How fast status reports may come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.session.report_grant import BURST, ReportGrant


def test_reports_in_time_may_always_come() -> None:
    grant = ReportGrant(1.0, 0.25)
    assert all(grant.may_come(1000.0 + 0.25 * number) for number in range(100))


def test_a_few_may_come_at_once_and_then_none() -> None:
    grant = ReportGrant(1.0, 0.25)
    assert [grant.may_come(10.0) for _ in range(5)] == [True] * BURST + [False] * 2
    assert [grant.may_come(10.25) for _ in range(2)] == [True, False]
    assert [grant.may_come(1e9) for _ in range(5)] == [True] * BURST + [False] * 2


@given(st.lists(st.integers(0, 40), max_size=200))
def test_in_any_time_there_are_no_more_than_granted(pauses: list[int]) -> None:
    """Between any two that were taken, as many as the time allows, and BURST."""
    grant = ReportGrant(1.0, 8.0)
    taken: list[int] = []
    now = 100
    for pause in pauses:
        now += pause
        if grant.may_come(float(now)):
            taken.append(now)
    for first, begin in enumerate(taken):
        for last in range(first, len(taken)):
            assert last - first + 1 <= (taken[last] - begin) / 8 + BURST
