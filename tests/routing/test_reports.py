from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.routing.reports import LONGEST_REPORT, LONGEST_TIME, MOST_WAITING, read_report


def values(payload: bytes) -> tuple[int, float | None]:
    report = read_report(payload)
    assert report.problem == "", report
    return report.waiting, report.seconds_per_message


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b'{"msgsInQueue": 3, "processingTimePerMsg": 25}', (3, 0.025)),
        (b'{"numberOfMsgsInQueue": 3, "processingTimerPerMsg": 12.5}', (3, 0.0125)),
        (b'{"msgsInQueue": 3.0, "processingTimerPerMsg": 1}', (3, 0.001)),
        (b'{"msgsInQueue": 0, "processingTimePerMsg": 0}', (0, None)),
        (b'{"msgsInQueue": 0}', (0, None)),
        (b'{"msgsInQueue": 0, "processingTimePerMsg": null}', (0, None)),
        (b'{"msgsInQueue": 1, "processingTimePerMsg": 2, "more": {"is": ["ignored"]}}', (1, 0.002)),
    ],
)
def test_valid_reports(payload: bytes, expected: tuple[int, float | None]) -> None:
    assert values(payload) == expected


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b"", "not JSON"),
        (b"\xff{}", "not JSON"),
        (b'{"msgsInQueue": 3', "not JSON"),
        (b"[" * LONGEST_REPORT, "not JSON"),
        (b'{"msgsInQueue": ' + b"9" * 4000 + b"}", "waiting"),
        (b'{"msgsInQueue": ' + b"9" * 4400 + b"}", "longer"),
        (b"[3, 25]", "not a JSON object"),
        (b"{}", "waiting"),
        (b'{"msgsInQueue": true}', "waiting"),
        (b'{"msgsInQueue": "3"}', "waiting"),
        (b'{"msgsInQueue": [3]}', "waiting"),
        (b'{"msgsInQueue": -1}', "waiting"),
        (b'{"msgsInQueue": 0.5}', "waiting"),
        (b'{"msgsInQueue": NaN}', "waiting"),
        (b'{"msgsInQueue": Infinity}', "waiting"),
        (b'{"msgsInQueue": 1e308}', "waiting"),
        (b'{"msgsInQueue": 10000001}', "waiting"),
        (b'{"msgsInQueue": 1, "processingTimePerMsg": NaN}', "time"),
        (b'{"msgsInQueue": 1, "processingTimePerMsg": -Infinity}', "time"),
        (b'{"msgsInQueue": 1, "processingTimePerMsg": 1e308}', "time"),
        (b'{"msgsInQueue": 1, "processingTimePerMsg": -0.1}', "time"),
        (b'{"msgsInQueue": 1, "processingTimePerMsg": "fast"}', "time"),
        (b'{"msgsInQueue": 1, "processingTimePerMsg": false}', "time"),
        (b" " * 1_000_000, "longer"),
    ],
)
def test_what_is_not_a_report_is_not_believed(payload: bytes, problem: str) -> None:
    assert problem in read_report(payload).problem


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
keys = st.sampled_from(
    ["msgsInQueue", "numberOfMsgsInQueue", "processingTimePerMsg", "processingTimerPerMsg", "msgsinqueue"]
)


@settings(deadline=None)
@given(st.binary(max_size=64) | st.dictionaries(keys, json_values).map(lambda each: json.dumps(each).encode()))
def test_anything_is_read_and_what_is_believed_is_possible(payload: bytes) -> None:
    report = read_report(payload)
    assert 0 <= report.waiting <= MOST_WAITING
    if report.seconds_per_message is not None:
        assert math.isfinite(report.seconds_per_message)
        assert 0.0 <= report.seconds_per_message <= LONGEST_TIME / 1000.0
    if report.problem:
        assert (report.waiting, report.seconds_per_message) == (0, None)


@given(st.integers(0, MOST_WAITING), st.floats(0.001, LONGEST_TIME))
def test_what_was_meant_is_what_is_read(waiting: int, milliseconds: float) -> None:
    payload = json.dumps({"msgsInQueue": waiting, "processingTimePerMsg": milliseconds}).encode()
    assert values(payload) == (waiting, milliseconds / 1000.0)
