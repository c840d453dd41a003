"""Canned contests."""

from __future__ import annotations

from headwater_lab.contest import Case, ContestOutcome
from headwater_lab.load import VIOLATIONS, Result


def sample(us: float, **measured: float) -> Result:
    """What a round measured when a message cost so much; all is well unless `measured` says otherwise."""
    fine = {"rate": 1000.0, "mean": 110.0, "p50": 100.0, "p99": 200.0, "peak_bytes": 2.0**20}
    return {"us": us, **fine, **dict.fromkeys(VIOLATIONS, 0.0), **measured}


def outcome(case: Case, **costs: list[float]) -> ContestOutcome:
    """An outcome with these costs per round of each contender."""
    return ContestOutcome(case, {name: [sample(us) for us in rounds] for name, rounds in costs.items()})
