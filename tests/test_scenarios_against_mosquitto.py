"""A slice of the wire scenarios against Mosquitto: what they expect is the standard's, not our broker's habit. The same
slice through a proxy in front of it: the same passes.

All of them: `scripts/bench strange`, `scripts/bench strange --proxy`.
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


def passed(is_proxied: bool) -> int:
    """How many of the slice."""
    find_mosquitto()  # or skip
    status, output = strange.run(PROJECT, [f"tests/broker/test_{name}.py" for name in SLICE], is_proxied)
    assert status == 0, output[-5000:]
    found = re.search(r"(\d+) passed", output)
    assert found, output[-500:]
    assert "left out: known deviations" in output
    return int(found.group(1))


def test_mosquitto_behaves_as_the_scenarios_expect() -> None:
    assert passed(is_proxied=False) > 200


def test_mosquitto_behind_a_proxy_does_so_too() -> None:
    assert passed(is_proxied=True) > 200
