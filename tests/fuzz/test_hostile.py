"""A moment of each attack that `scripts/bench hostile` makes at length: the broker stays up and serves others, its
memory is bounded, and it closes what it opened. How fast others are served meanwhile is the campaign's to say."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater_lab.contenders import raise_file_limit
from headwater_lab.fuzz import Campaign
from headwater_lab.hostile_ground import ATTACKS, ground

SECONDS = 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_the_broker_stands_it(name: str, tmp_path: Path) -> None:
    attack = ATTACKS[name]
    raise_file_limit()
    with ground(attack.needs, tmp_path, sessions=300) as place:
        others = Campaign(place.broker, place.log, seed=0)
        before = place.broker.resident_bytes()
        with place.attacked(name, SECONDS) as counts:
            others.probe()
        assert counts.get("requests" if name == "admin-pages" else "connections", 0) > 0, "nothing was done"
        others.probe()
        others.check_files()
        place.check()
        assert place.broker.peak_bytes() - before <= attack.most_memory
