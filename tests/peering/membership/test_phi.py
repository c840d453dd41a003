"""Doubt grows with silence, adapts to the rhythm, and has a bound."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.peering.membership.phi import CERTAIN, LONGEST_SILENCE, SAMPLES, Arrivals

intervals = st.lists(st.floats(0.0, 2 * LONGEST_SILENCE), max_size=3 * SAMPLES)


def arrivals(*samples: float) -> Arrivals:
    found = Arrivals()
    for each in samples:
        found.add(each)
    return found


@settings(deadline=None)
@given(intervals, st.floats(0, 100), st.floats(0, 100))
def test_doubt_only_grows_with_silence(samples: list[float], one: float, other: float) -> None:
    phi = arrivals(*samples).phi
    assert 0 <= phi(min(one, other)) <= phi(max(one, other)) <= CERTAIN


@settings(deadline=None)
@given(intervals)
def test_whatever_was_measured_the_longest_silence_is_certain(samples: list[float]) -> None:
    assert arrivals(*samples).phi(LONGEST_SILENCE) == CERTAIN


@settings(deadline=None)
@given(intervals)
def test_a_sum_that_runs_along_is_the_sum_of_the_window(samples: list[float]) -> None:
    """Only the last samples count, and none that tells of an outage."""
    last = [each for each in samples if each <= LONGEST_SILENCE][-SAMPLES:]
    assert arrivals(*samples).mean() == pytest.approx(arrivals(*last).mean())
    assert arrivals(*samples).deviation() == pytest.approx(arrivals(*last).deviation(), abs=1e-3)


def test_a_slow_rhythm_is_given_more_time() -> None:
    fast, slow = arrivals(*[1.0] * 50), arrivals(*[4.0] * 50)
    assert fast.phi(7.0) > 8
    assert slow.phi(7.0) < 8
    assert slow.phi(10.0) > 8


def test_without_samples_the_prior_decides() -> None:
    assert Arrivals().phi(5.0) < 8
    assert Arrivals().phi(9.0) > 8
    # A few quick ones do not make it sure of itself.
    assert arrivals(0.1, 0.1).phi(4.0) < 8


def test_phi_is_what_the_paper_says() -> None:
    """Half of all signs come later than the mean: φ = -log10(1/2)."""
    found = arrivals(*[1.0] * SAMPLES)
    assert found.phi(found.mean()) == pytest.approx(0.30103, abs=1e-4)
    assert found.phi(found.mean() + 3 * found.deviation()) == pytest.approx(2.8697, abs=1e-3)
