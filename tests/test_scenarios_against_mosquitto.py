"""A slice of the wire scenarios against Mosquitto: what they expect is the standard's, not our broker's habit.

All of them: `scripts/bench strange`.
"""

from __future__ import annotations

import re
from pathlib import Path

from headwater_lab import strange
from tests.brokers import find_mosquitto

PROJECT = Path(__file__).parent.parent
SLICE = [
    "21_retained",
    "26_subscription_identifiers",
    "31_subscribe",
    "41_redelivery",
    "44_wildcards",
]


def test_mosquitto_behaves_as_the_scenarios_expect() -> None:
    find_mosquitto()  # or skip
    status, output = strange.run(PROJECT, [f"tests/broker/test_{name}.py" for name in SLICE])
    assert status == 0, output[-5000:]
    passed = re.search(r"(\d+) passed", output)
    assert passed and int(passed.group(1)) > 200, output[-500:]
    assert "left out: known deviations" in output
