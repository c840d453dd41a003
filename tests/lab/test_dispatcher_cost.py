"""The bench of the dispatchers' own cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.routing.shared import DISPATCHERS
from headwater_lab import dispatcher_cost
from headwater_lab.dispatcher_cost import QUICK, Cost, main, measure, table


@pytest.mark.parametrize("name", sorted(DISPATCHERS))
@pytest.mark.parametrize("qos", [0, 1])
def test_every_dispatcher_can_be_measured(name: str, qos: int) -> None:
    assert measure(name, 30, qos, 500).nanoseconds > 0


def test_the_table_has_a_line_for_each_dispatcher() -> None:
    costs = [Cost(name, count, qos, 10.0 * count) for name in ("a", "b") for count in (3, 30) for qos in (0, 1)]
    lines = table(costs).splitlines()
    assert lines[0].count("|") == 6
    assert lines[2:] == ["| a | 30 | 300 | 30 | 300 |", "| b | 30 | 300 | 30 | 300 |"]


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(dispatcher_cost, "COUNTS", (3,))
    data = tmp_path / "data.json"
    main(["--quick", "--json", str(data)])
    assert "| adaptive |" in capsys.readouterr().out
    content = json.loads(data.read_text())
    assert {each["dispatcher"] for each in content["costs"]} == set(QUICK)
