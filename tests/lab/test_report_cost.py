"""The bench of what status reports cost, against a real broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater_lab import report_cost


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(report_cost, "MEMBERS", 5)
    monkeypatch.setattr(report_cost, "RATES", (10.0,))
    data = tmp_path / "data.json"
    report_cost.main(["--quick", "--json", str(data)])
    assert "report " in capsys.readouterr().out
    costs = json.loads(data.read_text())["costs"]
    assert [cost["what"] for cost in costs] == ["report", "plain"]
    assert all(cost["microseconds"] > 0 and cost["per_second"] == 50.0 for cost in costs)
