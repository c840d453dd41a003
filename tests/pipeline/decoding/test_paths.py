from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.pipeline.decoding.paths import EARLIEST, LATEST, UNITS, at, microseconds, moment, number, path
from headwater.store.extract import moment as moment_of_the_store
from tests.pipeline.decoding.bronze import SECOND

DOCUMENT = {"a": 1, "b": {"c": [4, {"x": 5}]}, "0": 6}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        *(("a", 1), ("$.a", 1), ("b.c.0", 4), ("b.c.1.x", 5), ("0", 6), ("b.c.2", None), ("b.c.-1", None)),
        *(("b.c.x", None), ("a.b", None), ("x.y", None), ("b.c.²", None), ("b.c.9999999999", None)),
    ],
)
def test_a_path_leads_to_something_or_nothing(where: str, expected: Any) -> None:
    assert at(DOCUMENT, path(where)) == expected


@pytest.mark.parametrize("wrong", ["", "a..b", ".a", "a.", "$.", "$.a."])
def test_a_path_without_names_is_none(wrong: str) -> None:
    with pytest.raises(ValueError, match="is no path"):
        path(wrong)


@pytest.mark.parametrize(
    ("found", "unit", "expected"),
    [
        (3, "s", 3 * SECOND),
        (3, "ms", 3000),
        (3, "us", 3),
        (3999, "ns", 3),
        (253402300799999999, "us", LATEST),  # more than a double holds
        (-1, "s", -SECOND),
        (1.5, "s", 3 * SECOND // 2),
        (1_789_000_000, "auto", 1_789_000_000 * SECOND),
        (1_789_000_000_123, "auto", 1_789_000_000_123_000),
        (1_789_000_000_123_456, "auto", 1_789_000_000_123_456),
        (1_789_000_000_123_456_789, "auto", 1_789_000_000_123_456),
        ("1970-01-01T00:00:03Z", "auto", 3 * SECOND),
        ("1970-01-01T01:00:00+01:00", "auto", 0),
        ("1970-01-02", "auto", 86400 * SECOND),
        ("9999-12-31T23:59:59.999999Z", "auto", LATEST),
        ("0001-01-01T00:00:00+14:00", "auto", None),
        ("9999-12-31T23:59:59-14:00", "auto", None),
        *(
            (wrong, "auto", None)
            for wrong in (True, None, [], {}, "yesterday", "", "1" * 1000, float("nan"), float("inf"))
        ),
        *((wrong, "s", None) for wrong in (1e300, 2**80, -(2**80), 10**4000, 253402300800)),
    ],
)
def test_times(found: Any, unit: str, expected: int | None) -> None:
    assert moment(found, UNITS[unit]) == expected


@given(st.floats() | st.integers(-(2**72), 2**72) | st.datetimes().map(datetime.isoformat) | st.text(max_size=12))
def test_times_are_those_of_the_store(found: Any) -> None:
    """Which guesses alike; a nanosecond's rounding apart."""
    ours, stores = moment(found), moment_of_the_store(found, 0.0, LATEST + 1)
    assert (ours is None) == (stores == LATEST + 1)
    assert ours is None or abs(ours - stores) <= max(1, abs(stores) >> 50)


def test_a_zone_that_does_not_know_is_no_time() -> None:
    class Strange(tzinfo):
        def utcoffset(self, when: datetime | None) -> timedelta | None:
            raise ValueError("nobody knows")

        def dst(self, when: datetime | None) -> timedelta | None:
            return None

        def tzname(self, when: datetime | None) -> str:
            return "nowhere"

    assert microseconds(datetime(2026, 1, 1, tzinfo=Strange())) is None
    assert microseconds(datetime.min.replace(tzinfo=UTC)) == EARLIEST
    assert microseconds(datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))) is None


@pytest.mark.parametrize("wrong", [True, None, "1", float("nan"), float("-inf"), 10**400, [1]])
def test_what_is_no_number(wrong: Any) -> None:
    assert number(wrong) is None
