from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from math import isfinite, isnan, nan
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.store.entry import EARLIEST, LATEST, iso, microseconds
from headwater.store.extract import LONGEST, UNITS, Extraction, moment, number
from tests.store.messages import NOON, SECOND, taken_of

DAY = 86400 * SECOND


def time_and_value(payload: bytes, extraction: Extraction | None = None, arrival: int = NOON) -> tuple[int, Any]:
    """The value is None if there is none."""
    [time], [value] = (extraction or Extraction()).columns(taken_of([payload], arrival))
    assert isinstance(time, int) and isinstance(value, float)
    return time, None if isnan(value) else value


def _short(found: Any) -> str:
    return repr(found)[:8]


def time_of(found: Any, unit: str = "auto") -> int | None:
    """None is that the time of arrival stands for it."""
    [time], _ = Extraction(unit=unit).columns(taken_of([json.dumps({"ts": found}).encode()], -77))
    return None if time == -77 else time


# ---- where to look -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "time", "value"),
    [
        (b'{"ts": 1, "value": 2}', SECOND, 2.0),
        (b'{"date": "1970-01-01T00:00:03Z", "value": -0.5}', 3 * SECOND, -0.5),
        (b'{"date": 1, "ts": 2}', 2 * SECOND, None),
        (b'{"date": 1, "ts": null}', SECOND, None),
        (b'{"date": 1, "ts": "yesterday"}', NOON, None),
        (b' \n{"value": 7}\t', NOON, 7.0),
        (b'{"VALUE": 7, "Ts": 1}', NOON, None),
        (b'{"value": 1, "value": 2}', NOON, 2.0),
        (b'{"v\\u0061lue": 1}', NOON, 1.0),
        (b"{}", NOON, None),
        (b"17", NOON, 17.0),
        (b"-1.5e3\n", NOON, -1500.0),
        (b"[17]", NOON, None),
        (b'"17"', NOON, None),
        (b"true", NOON, None),
        (b"null", NOON, None),
    ],
)
def test_where_time_and_value_are_unless_it_is_said(payload: bytes, time: int, value: float | None) -> None:
    assert time_and_value(payload) == (time, value)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a", 1.0),
        ("b.c", 2.0),
        ("b.d.e", 3.0),
        ("list.0", 4.0),
        ("list.1.x", 5.0),
        ("numbers.1", 6.0),
        ("", 7.0),
        ("b.", 8.0),
        ("é", 9.0),
        ("list.2", None),
        ("list.-1", None),
        ("list.x", None),
        ("list.99999999999999999999", None),
        ("list.²", None),
        ("a.b", None),
        ("b", None),
        ("b.x.y.z", None),
        ("text.0", None),
        ("nothing.a", None),
        ("..", None),
    ],
)
def test_paths(path: str, expected: float | None) -> None:
    document = {
        "a": 1,
        "b": {"c": 2, "d": {"e": 3}, "": 8},
        "list": [4, {"x": 5}],
        "numbers": {"1": 6},
        "": 7,
        "é": 9,
        "text": "12",
        "nothing": None,
    }
    payload = json.dumps(document).encode()
    assert time_and_value(payload, Extraction(value=[path]))[1] == expected
    expected_time = NOON if expected is None else int(expected)
    assert time_and_value(payload, Extraction(time=[path], unit="us"))[0] == expected_time


def test_of_several_paths_the_first_that_leads_to_something_counts() -> None:
    extraction = Extraction(time=["at", "data.ts"], value=["data.temp", "temp"], unit="us")
    assert time_and_value(b'{"data": {"ts": 5, "temp": 1}, "temp": 2, "at": 6}', extraction) == (6, 1.0)
    assert time_and_value(b'{"data": {"ts": 5}, "temp": 2}', extraction) == (5, 2.0)
    assert time_and_value(b'{"data": {"temp": null}, "temp": 2}', extraction) == (NOON, 2.0)
    assert time_and_value(b'{"data": {"temp": "hot"}, "temp": 2}', extraction) == (NOON, None)
    assert time_and_value(b'{"ts": 1, "value": 2}', extraction) == (NOON, None)


def test_without_paths_only_a_bare_number_is_found() -> None:
    extraction = Extraction(time=[], value=[])
    assert time_and_value(b'{"ts": 1, "date": 1, "value": 2}', extraction) == (NOON, None)
    assert time_and_value(b"2", extraction) == (NOON, 2.0)


def test_columns_are_of_all_messages_in_turn() -> None:
    times, values = Extraction().columns(taken_of([b'{"ts": 1}', b"", b"\xff", b'{"value": 2}', b"3"]))
    assert times == [SECOND, NOON, NOON, NOON, NOON]
    assert [None if isnan(value) else value for value in values] == [None, None, None, 2.0, 3.0]
    assert Extraction().columns(taken_of([])) == ([], [])


def test_payloads_that_are_too_long_are_stored_unseen() -> None:
    def padded(length: int) -> bytes:
        return b'{"ts": 1, "value": 2}'.ljust(length)

    assert time_and_value(padded(LONGEST)) == (SECOND, 2.0)
    assert time_and_value(padded(LONGEST + 1)) == (NOON, None)


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'hours'.*auto"):
        Extraction(unit="hours")


# ---- numbers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0.0),
        ("-0", 0.0),
        ("1e308", 1e308),
        ("5e-324", 5e-324),
        ("1e-400", 0.0),
        ("9007199254740993", 9007199254740992.0),
        ("9223372036854775808", 2.0**63),
        ("18446744073709551615", 2.0**64),
        ("18446744073709551616", 2.0**64),
        ("-99999999999999999999999999", -1e26),
        ("1e400", None),
        ("-1e400", None),
        ("1" + "0" * 400, None),
        ("NaN", None),
        ("Infinity", None),
        ("-Infinity", None),
        ("0x10", None),
        ("1,5", None),
        ("true", None),
        ("false", None),
        ("null", None),
        ('"5"', None),
        ("[5]", None),
        ("{}", None),
    ],
)
def test_numbers(text: str, expected: float | None) -> None:
    assert time_and_value(f'{{"value": {text}}}'.encode()) == (NOON, expected)
    assert time_and_value(text.encode()) == (NOON, expected)


@pytest.mark.parametrize(
    "found", [True, False, None, "5", b"5", [5], {}, nan, float("inf"), -float("inf"), 1 << 1024], ids=_short
)
def test_what_is_no_number(found: Any) -> None:
    assert isnan(number(found))


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**64), 2**65))
def test_every_number_is_found_as_it_is(value: float) -> None:
    assert time_and_value(json.dumps({"value": value}).encode())[1] == float(value)
    assert time_and_value(json.dumps(value).encode())[1] == float(value)


# ---- times ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01", 0),
        ("19700102", DAY),
        ("1970-W01-4", 0),
        ("1970-01-01T00:00:01", SECOND),
        ("1970-01-01 00:00:01Z", SECOND),
        ("1970-01-01T01:00+01:00", 0),
        ("1970-01-01T00:00:00-00:00:01", SECOND),
        ("1970-01-01T00:00:00.000001Z", 1),
        ("1970-01-01T00:00:00,5Z", SECOND // 2),
        ("1970-01-01T00:00:00.123456789Z", 123456),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("0001-01-01T00:00:00Z", EARLIEST),
        ("9999-12-31T23:59:59.999999Z", LATEST),
        ("0001-01-01T14:00:00+14:00", EARLIEST),
        # Before the first and behind the last year in UTC.
        ("0001-01-01T00:00:00+00:01", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("9999-12-31T23:59:59.999999-00:01", None),
        ("9999-12-31T23:59:59-23:59", None),
        ("0000-01-01T00:00:00Z", None),
        ("10000-01-01T00:00:00Z", None),
        ("+10000-01-01", None),
        ("-0001-01-01", None),
        ("2024-02-30", None),
        ("2024-06-30T23:59:60Z", None),
        ("2024-01-01T25:00", None),
        ("2024-01-01T00:00+24:00", None),
        ("12:00", None),
        ("", None),
        ("now", None),
        ("\N{ARABIC-INDIC DIGIT ONE}" * 8, None),
        ("9" * 5000, None),
    ],
)
def test_texts(text: str, expected: int | None) -> None:
    assert time_of(text) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (0, 0),
        (1.5, 1_500_000),
        (-1, -SECOND),
        (99_999_999_999, 99_999_999_999 * SECOND),  # the year 5138
        (100_000_000_000, 100_000_000_000_000),  # milliseconds from here
        (1_760_000_000, NOON),
        (1_760_000_000_123, NOON + 123_000),
        (1_760_000_000_123_456, NOON + 123_456),
        (1_760_000_000_123_456_789, NOON + 123_457),
        (1_760_000_000.123456, NOON + 123_456),
        (1_760_000_000_123.5, NOON + 123_500),
        (-1_760_000_000_123, -NOON - 123_000),
        (10**17, 10**14),
        (18446744073709551615, 18446744073709552),
        (1e20, 10**17),
        (1e22, None),
        (-(10**11) + 1, None),  # before the year 1
        (1e300, None),
        (True, None),
        (False, None),
        ([5], None),
        ({}, None),
    ],
)
def test_numbers_since_1970_whose_unit_is_guessed(found: Any, expected: int | None) -> None:
    assert time_of(found) == expected


@pytest.mark.parametrize(("unit", "second"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_numbers_in_a_unit(unit: str, second: int) -> None:
    assert time_of(second, unit) == SECOND
    assert time_of(-3 * second, unit) == -3 * SECOND
    assert time_of(1_760_000_000 * second, unit) == NOON
    assert time_of(float(second) / 2, unit) == SECOND // 2
    last = LATEST // SECOND
    assert time_of(last * second, unit) == pytest.approx(last * SECOND, rel=1e-15)
    assert time_of((last + 1) * second, unit) is None
    assert time_of("1970-01-01T00:00:01", unit) == SECOND


@pytest.mark.parametrize("found", [nan, float("inf"), -float("inf"), 1 << 1024, None, b"1", "x"], ids=_short)
@pytest.mark.parametrize("unit", UNITS)
def test_what_is_no_time_at_all(found: Any, unit: str) -> None:
    assert moment(found, UNITS[unit], 42) == 42


@settings(deadline=None)
@given(
    st.datetimes(timezones=st.none() | st.integers(-1439, 1439).map(lambda m: timezone(timedelta(minutes=m)))),
    st.booleans(),
)
@example(datetime.min.replace(tzinfo=timezone(timedelta(minutes=1))), True)
@example(datetime.max.replace(tzinfo=timezone(timedelta(minutes=-1))), False)
def test_every_time_with_a_zone_or_without_is_found(when: datetime, with_space: bool) -> None:
    expected = microseconds(when)
    found = time_of(when.isoformat(" " if with_space else "T"))
    assert found == (expected if EARLIEST <= expected <= LATEST else None)


@settings(deadline=None)
@given(st.integers(EARLIEST, LATEST))
@example(EARLIEST)
@example(LATEST)
def test_times_in_microseconds_are_exact(time: int) -> None:
    assert time_of(time, "us") == time
    assert time_of(iso(time)) == time


# ---- whatever comes ------------------------------------------------------------------------------------------------

leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30) | st.datetimes().map(str)
documents = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)
hostile = st.one_of(
    st.binary(max_size=60),
    documents.map(lambda document: json.dumps(document).encode()),
    st.builds(lambda ts, value: json.dumps({"ts": ts, "value": value}).encode(), documents, documents),
    st.builds(
        lambda open, close, depth: b'{"value":' + open * depth + close * depth + b"}",
        st.sampled_from([b"[", b'{"a":']),
        st.sampled_from([b"]", b"}", b""]),
        st.integers(0, 5000),
    ),
    st.from_regex(rb'\{"ts": ?-?[0-9]{0,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,5})?\}', fullmatch=True),
    st.from_regex(rb'\{"ts": "[0-9]{4,5}-[0-9]{2}-[0-9W]{2}[T ]?[0-9:.,+Z-]{0,20}"\}', fullmatch=True),
)


@settings(deadline=None, max_examples=500)
@given(hostile, st.sampled_from(sorted(UNITS)))
@example(b'{"ts": 1e400}', "auto")
@example(b'{"ts": "9999-12-31T23:59:59-01:00"}', "auto")
@example(b"[" * 500_000, "auto")
@example(b'{"ts": ' * 100_000 + b"1" + b"}" * 100_000, "auto")
def test_whatever_bytes_come_there_is_a_time_and_a_value_or_none(payload: bytes, unit: str) -> None:
    extraction = Extraction(time=["ts", "a.ts", "ts.0"], value=["value", "value.a.0"], unit=unit)
    [time], [value] = extraction.columns(taken_of([payload], arrival=-5))
    assert isinstance(time, int)
    assert EARLIEST <= time <= LATEST
    assert datetime.fromisoformat(iso(time)).tzinfo == UTC
    assert isinstance(value, float)
    assert isnan(value) or isfinite(value)
