from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.store.entry import EARLIEST, LATEST, Entry, iso, microseconds


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (1_760_000_000_123_456, "2025-10-09T08:53:20.123456Z"),
        (EARLIEST, "0001-01-01T00:00:00.000000Z"),
        (LATEST, "9999-12-31T23:59:59.999999Z"),
    ],
)
def test_times_as_text(time: int, text: str) -> None:
    assert iso(time) == text
    assert microseconds(datetime.fromisoformat(text)) == time


@pytest.mark.parametrize("time", [EARLIEST - 1, LATEST + 1])
def test_the_calendar_ends_there(time: int) -> None:
    with pytest.raises(OverflowError):
        iso(time)


@given(st.integers(EARLIEST, LATEST))
@example(EARLIEST)
@example(LATEST)
def test_text_and_back(time: int) -> None:
    assert microseconds(datetime.fromisoformat(iso(time))) == time


@given(st.integers(EARLIEST, LATEST), st.integers(EARLIEST, LATEST))
def test_texts_are_in_the_order_of_times(one: int, other: int) -> None:
    assert (iso(one) < iso(other)) is (one < other)


def test_a_time_with_a_zone_and_one_without() -> None:
    when = datetime(2024, 2, 29, 12, 30, 15, 7)
    assert microseconds(when) == microseconds(when.replace(tzinfo=UTC)) == 1_709_209_815_000_007
    east = when.replace(tzinfo=timezone(timedelta(hours=2, seconds=1)))
    assert microseconds(east) == 1_709_209_815_000_007 - 7201 * 1_000_000


def test_most_messages_have_no_properties() -> None:
    assert Entry(1, "a", b"x", 0, False, "device", 0, 0, None).properties == b""
