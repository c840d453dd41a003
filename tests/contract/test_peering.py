"""What a cluster promises, by every method, in simulated networks: a slice of `scripts/bench peering-simulation`."""

from __future__ import annotations

import pytest

from headwater_lab.peering_simulation.__main__ import METHODS, simulate

SEEDS = 75
SHARES = 5


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("share", range(SHARES))
def test_each_message_once_in_order_and_none_lost(method: str, share: int) -> None:
    """Every subscriber gets what it was promised, none twice, over cuts, crashes, joins; then the cluster is quiet."""
    owed = deliveries = 0
    for seed in range(share, SEEDS, SHARES):
        outcome = simulate(seed, method)
        assert outcome.found == [], f"seed {seed}"
        owed += outcome.owed
        deliveries += outcome.deliveries
    assert owed > 500
    assert deliveries > 500


def test_a_seed_makes_it_happen_again() -> None:
    assert simulate(7, "subscribe") == simulate(7, "subscribe")
