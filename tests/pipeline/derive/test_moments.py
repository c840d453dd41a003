"""Windows and minutes of time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.pipeline.derive.moments import MINUTE, beginnings, exact, final_until, moment

TIMES = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=st.just(UTC))


@given(TIMES)
def test_a_moment_is_its_microseconds(time: datetime) -> None:
    assert moment(exact(time)) == time


def test_a_moment_needs_a_time_zone_and_any_will_do() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        exact(datetime(2026, 1, 31))
    east = timezone(timedelta(hours=5))
    assert exact(datetime(2026, 1, 31, 5, tzinfo=east)) == exact(datetime(2026, 1, 31, tzinfo=UTC))


@given(TIMES, st.integers(0, 500))
def test_the_range_holds_the_windows_that_begin_in_it_and_no_others(start: datetime, seconds: int) -> None:
    end = start + timedelta(seconds=seconds)
    first, last = beginnings(start, end, MINUTE)
    begins = range(exact(start) // MINUTE * MINUTE - MINUTE, exact(end) + 2 * MINUTE, MINUTE)
    within = [begin for begin in begins if exact(start) <= begin < exact(end)]
    assert within == list(range(first, last, MINUTE))


def test_a_range_that_ends_before_it_starts_is_refused() -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    with pytest.raises(ValueError, match="ends before it starts: 2026-01-31T12:00"):
        beginnings(noon, noon - timedelta(hours=1), MINUTE)


@given(TIMES)
def test_windows_are_final_when_the_clock_has_passed_their_end_and_lateness(clock: datetime) -> None:
    until = final_until(clock, 600, 900)
    assert until + timedelta(seconds=900) <= clock < until + timedelta(seconds=1500)
