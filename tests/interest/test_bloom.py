"""The classical filter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.interest import sizing
from headwater.interest.bloom import MOST, CountingBloom, filled_bloom

elements = st.lists(st.binary(max_size=8), max_size=40)


@given(elements, elements)
def test_what_is_there_is_found(there: list[bytes], gone: list[bytes]) -> None:
    bloom = CountingBloom(100, 0.01, 3)
    for each in [*there, *gone]:
        bloom.add(each)
    for each in gone:
        bloom.remove(each)
    bloom.settle()
    assert all(bloom.has(each) for each in there)
    assert bloom.ones == filled_bloom(there, sizing.bloom(100, 0.01), 3).ones


@pytest.mark.parametrize("positions", [0, 3])
def test_it_errs_as_often_as_it_was_sized_for(positions: int) -> None:
    size = sizing.bloom(5000, 0.01, positions)
    bloom = filled_bloom((b"in %d" % number for number in range(5000)), size, 1)
    errors = sum(bloom.has(b"out %d" % number) for number in range(20_000))
    assert 120 < errors < 300


def test_what_is_not_there_cannot_go() -> None:
    bloom = CountingBloom(10, 0.01, 1)
    bloom.add(b"a")
    with pytest.raises(KeyError):
        bloom.remove(b"b")
    bloom.settle()
    assert bloom.has(b"a")


def test_a_count_that_is_full_stays() -> None:
    bloom = CountingBloom(10, 0.01, 1)
    for _ in range(MOST + 10):
        bloom.add(b"a")
    for _ in range(MOST + 10):
        bloom.remove(b"a")
    bloom.settle()
    assert bloom.has(b"a")
