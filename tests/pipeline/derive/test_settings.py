"""Settings: what is refused, and how it is said."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.pipeline.derive.settings import Settings


def test_what_is_not_named_has_its_default() -> None:
    assert Settings.from_settings({}) == Settings()
    assert Settings.from_settings({"window": 60, "jump_factor": None}) == Settings(window=60, jump_factor=None)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"window": 0}, "window is 0; it has to be seconds that divide a day"),
        ({"window": 7000}, "window is 7000; it has to be seconds that divide a day"),
        ({"window": 60.0}, "window is 60.0; it has to be a whole number"),
        ({"window": True}, "window is True; it has to be a whole number"),
        ({"lateness": -1}, "lateness is -1; it has to be from 0"),
        ({"lateness": float("nan")}, "lateness is nan; it has to be a finite number"),
        ({"lateness": "900"}, "lateness is '900'; it has to be a finite number"),
        ({"gap": 0}, "gap is 0; it has to be more than 0 seconds"),
        ({"gap": None}, "gap is None; it has to be a finite number"),
        ({"flatline": 1}, "flatline is 1; it has to be at least 2"),
        ({"jump_readings": 2}, "jump_readings is 2; it has to be at least 3"),
        ({"jump_factor": 0}, "jump_factor is 0; it has to be more than 0, or None"),
        ({"jump_absolute": -5.0}, "jump_absolute is -5.0; it has to be more than 0, or None"),
        ({"clock_ahead": -1}, "clock_ahead is -1; it has to be 0 seconds or more"),
        ({"clock_behind": 1499}, "clock_behind is 1499; it has to be at least window + lateness (1500)"),
        ({"windows": 60, "gaps": 1}, "unknown setting 'windows' of [deriving]; did you mean 'window'?"),
    ],
)
def test_what_cannot_be_is_refused_with_what_it_has_to_be(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError) as refused:
        Settings.from_settings(given)
    assert str(refused.value).startswith(said)
