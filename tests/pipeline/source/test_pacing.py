"""When a batch waits for more: `minOffsetsPerTrigger` and `maxTriggerDelay`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.pipeline.source.pacing import Pace, seconds
from tests.pipeline.source.some_stores import fill, stream
from tests.store.rest.served import Served


@given(
    st.none() | st.integers(1, 50),
    st.integers(0, 30),
    st.lists(st.tuples(st.integers(0, 10), st.integers(0, 20)), max_size=30),
)
def test_a_batch_waits_for_enough_but_not_for_ever(least: int | None, delay: int, steps: list[tuple[int, int]]) -> None:
    """Each step is some seconds and some messages more; a batch takes all."""
    now = there = 0
    last: int | None = None
    pace = Pace(least, delay, lambda: now)
    for passed, came in steps:
        now, there = now + passed, there + came
        waits = pace.waits(there)
        assert waits == (least is not None and there < least and last is not None and now - last < delay)
        if not waits:
            last, there = now, 0


@pytest.mark.parametrize(
    ("text", "found"),
    [("30s", 30.0), ("15m", 900.0), ("1.5 h", 5400.0), ("1d", 86400.0), ("250", 0.25), ("2min", 120.0), ("500ms", 0.5)],
)
def test_times(text: str, found: float) -> None:
    assert seconds(text) == found


@pytest.mark.parametrize("text", ["", "soon", "-1s", "1 week", "s"])
def test_what_is_no_time(text: str) -> None:
    assert seconds(text) is None


def test_a_stream_waits_for_messages(one: Served, two: Served) -> None:
    """The first batch has what is there; so has each of a query that ends by itself."""
    reader = stream(one, two, minOffsetsPerTrigger=4, maxTriggerDelay="1h", maxOffsetsPerTrigger=5)
    limit = reader.getDefaultReadLimit()
    fill(one, 1)
    start = reader.latestOffset(reader.initialOffset(), limit)
    assert start == {"s1": 1, "s2": 0}
    fill(one, 1)
    fill(two, 2)
    assert reader.latestOffset(start, limit) == start, "three are waiting"
    fill(two, 3)
    end = reader.latestOffset(start, limit)
    assert sum(end.values()) - sum(start.values()) == 5
    assert reader.latestOffset(end, limit) == end, "one is left"
    assert reader.reportLatestOffset() == {"s1": 2, "s2": 5}
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(end, limit) == {"s1": 2, "s2": 5}


def test_a_stream_waits_no_longer_than_it_is_told(one: Served) -> None:
    reader = stream(one, minOffsetsPerTrigger=100, maxTriggerDelay="0s")
    fill(one, 1)
    start = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    fill(one, 1)
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == {"s1": 2}
