"""What a scenario shows, and where other brokers are known to differ."""

from __future__ import annotations

import pytest

V311 = 4
V5 = 5

both_versions = pytest.mark.parametrize("version", [V311, V5], ids=["v311", "v5"])
"""Run a scenario once per protocol version; it takes a `version` argument."""


def clause(*ids: str) -> pytest.MarkDecorator:
    """The normative statements of MQTT 5.0 that the scenario shows, e.g. `@clause("MQTT-3.1.2-1")`."""
    return pytest.mark.clause(*ids)


def clause311(*ids: str) -> pytest.MarkDecorator:
    """The normative statements of MQTT 3.1.1 that the scenario shows."""
    return pytest.mark.clause311(*ids)


def deviates(text: str) -> pytest.MarkDecorator:
    """A known deviation of another broker from the standard: its name first, then what it does instead.

    `--skip-deviating NAME` leaves these scenarios out when the suite runs against that broker.
    """
    return pytest.mark.deviates(text)
