"""The bench of conditions on content, against a real broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.routing.conditions.condition import condition_of
from headwater.routing.conditions.errors import ConditionError
from headwater_lab import filters
from headwater_lab.filters_hostile import ALLOWED, BAD, dearest


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(filters, "SUBSCRIBERS", 20)
    monkeypatch.setattr(filters, "CONDITIONS", 5)
    monkeypatch.setattr(filters, "MESSAGES", 80)
    data = tmp_path / "data.json"
    filters.main(["--quick", "--json", str(data)])
    assert "filters/us_per_message" in capsys.readouterr().out
    rows = json.loads(data.read_text())
    assert all(row.keys() == {"name", "paper", "ours", "unit"} for row in rows)
    found = {row["name"]: row["ours"] for row in rows}
    assert found["filters/delivered"] < 20
    assert found["ratio/bytes"] > 1
    assert found["hostile/refused"] == len(BAD) - len(ALLOWED)
    assert found["hostile/grown_mib"] < 64


def test_what_comes_is_checked() -> None:
    with pytest.raises(RuntimeError, match="instead of"):
        filters.check(filters.Read(came=1, wanted=1, size=0, seconds=0.0), True, 10)


def test_bad_ones_are_bad_and_the_dearest_are_allowed() -> None:
    for text in BAD:
        if text in ALLOWED:
            condition_of(text)
        else:
            with pytest.raises(ConditionError):
                condition_of(text)
    assert len({condition_of(dearest(number)).text for number in range(90)}) == 90
