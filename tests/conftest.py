"""Options of the whole test suite (pytest reads options only from here)."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# How fast examples are made depends on what else the machine does, and says nothing of what is tested.
settings.register_profile("headwater", suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headwater")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("broker", "wire scenarios")
    group.addoption("--target", metavar="HOST:PORT", help="run the wire scenarios against this broker, not our own")
    group.addoption(
        "--skip-deviating", metavar="NAME", help="leave out scenarios from which this broker is known to deviate"
    )


def pytest_configure(config: pytest.Config) -> None:
    for line in (
        "clause(*ids): normative statements of MQTT 5.0 that a test shows",
        "clause311(*ids): normative statements of MQTT 3.1.1 that a test shows",
        "deviates(text): another broker's name, and what it does against the standard",
        "own_settings: needs a broker of our own with settings of its own",
    ):
        config.addinivalue_line("markers", line)
