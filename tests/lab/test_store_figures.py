"""The figures of a run, for programs and for the documentation."""

from __future__ import annotations

import pytest

from headwater_lab.store_figures import GOALS, ROWS, SYSTEMS, Figures, shown


def figures() -> Figures:
    found = Figures()
    found.add("intake_qos0/msgs_per_s", 123456.789, "1/s")
    found.add("sqlite/intake_qos0/msgs_per_s", 45678.9, "1/s")
    found.add("query/p99_ms", 7.123456, "ms")
    found.add("query/messages", 1_000_000, "")
    return found


def test_records_are_as_those_of_reproduce() -> None:
    assert figures().records({"cpu": "fast"}) == [
        {"name": "intake_qos0/msgs_per_s", "paper": None, "ours": 123456.789, "unit": "1/s"},
        {"name": "sqlite/intake_qos0/msgs_per_s", "paper": None, "ours": 45678.9, "unit": "1/s"},
        {"name": "query/p99_ms", "paper": None, "ours": 7.1235, "unit": "ms"},
        {"name": "query/messages", "paper": None, "ours": 1_000_000, "unit": ""},
        {"name": "machine/cpu", "paper": None, "ours": "fast", "unit": "text"},
    ]


def test_the_table_has_goals_and_all_systems() -> None:
    text = figures().markdown({"cpu": "fast"})
    assert "- cpu: fast" in text
    assert "| QoS 0, messages/s until all can be read | ≥ 100,000 | 123,457 |  | 45,679 |  |" in text
    assert "| p99 in ms | ≤ 20 | 7.12 |  |  |  |" in text
    assert "Goals that were missed: none." in text
    assert "read_arrow" not in text and "rows/s" not in text


@pytest.mark.parametrize("name, value", [("intake_qos1/msgs_per_s", 39_999.0), ("query/p99_ms", 20.5)])
def test_goals_that_are_missed_are_said(name: str, value: float) -> None:
    found = figures()
    found.add(name, value, "")
    assert len(found.missed()) == 1 and name in found.missed()[0]
    assert f"Goals that were missed: {name} is " in found.markdown({})


def test_all_goals_are_in_the_table() -> None:
    assert set(GOALS) <= set(ROWS)
    assert "" in SYSTEMS


@pytest.mark.parametrize("value, text", [(1234.5, "1,234"), (999.4, "999"), (12.345, "12.3"), (0.01234, "0.0123")])
def test_numbers_are_short(value: float, text: str) -> None:
    assert shown(value) == text
