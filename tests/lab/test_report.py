"""Tables and remarks from canned results."""

from __future__ import annotations

import pytest

from headwater_lab import report
from tests.lab.rows import MACHINE, failed_row, row


def test_progress_line_has_ratio_costs_and_latency() -> None:
    line = report.progress_line(row("paced/W1", [10.0, 10.0], [20.0, 22.0]))
    assert "paced/W1" in line
    assert "ratio    2.10 ±  0.10" in line
    assert "10.0 vs     21.0 µs CPU / message" in line
    assert "p99 120 vs 100 µs" in line


def test_progress_line_of_a_failure_says_why() -> None:
    assert "FAILED: ours: no answer" in report.progress_line(failed_row("deep/W1", "ours: no answer"))


def test_remarks_name_losses_and_broken_promises() -> None:
    assert report.remarks(row("deep/W1", [1.0], [60.0])) == []
    assert report.remarks(row("deep/W1", [1.0], [40.0], lost=3)) == ["lost 3", "below the floor of 50"]
    assert report.remarks(row("start/listen", [0.6], [0.01])) == ["above the bound of 0.5 s until listening"]
    assert report.remarks(row("paced/W2", [1.0], [1.0], p99=149.0)) == []
    assert report.remarks(row("paced/W2", [1.0], [1.0], p99=151.0)) == ["p99 above 1.5 × Mosquitto's"]
    assert report.remarks(row("paced/W3", [1.0], [1.0], p99=500.0)) == []
    refused = row("memory/subscriptions-1", [100.0], [100.0], refused=99000.0)
    assert report.remarks(refused) == ["ours refused 99,000 subscriptions"]


def test_markdown_has_a_line_for_every_row_and_tells_losses() -> None:
    rows = [
        row("deep/W1", [0.1, 0.1], [7.0, 7.4]),
        row("lock/W3/mqtt5", [10.0], [8.0]),
        row("paced/W4", [10.0], [11.0]),
        row("memory/connections", [4.0], [1.5]),
        failed_row("qos2/deep", "ours: the broker closed the connection"),
    ]
    text = report.markdown(rows, MACHINE, "performance.svg")
    assert "- cpu: Abacus 3\n" in text
    assert "`headwater broker --port {port}`" in text
    assert "![Mosquitto's cost over ours](performance.svg)" in text
    assert "| deep W1 | 3.1.1 | 72.0 ± 2.0 | 50 | 0.100 | 7.200 | 5,000 | 1,000 |" in text
    assert "| lock W3 | 5.0 | 0.80 ± 0.00 | 0.9 |" in text
    assert "| paced W4 | 3.1.1 | 80 | 90 | 120 | 100 | ≤ 1.5 × |" in text
    assert (
        "| 10,000 idle connections, one subscription each | KiB / connection | 0.38 ± 0.00 | 4.000 | 1.500 | ≤ 10 |"
        in text
    )
    assert "| 10 pairs QoS 2, 100 under way | 3.1.1 | failed |" in text
    losses = text.partition("### Losses")[2]
    assert "lock W3 (lock/W3/mqtt5): Mosquitto is ahead, ratio 0.80 ± 0.00; below the floor of 0.9." in losses
    assert "(qos2/deep): ours: the broker closed the connection." in losses
    assert "deep W1" not in losses


def test_every_line_of_a_table_has_as_many_cells_as_its_head() -> None:
    rows = [row("deep/W1", [1.0], [2.0]), failed_row("deep/W2", "x"), row("paced/W1", [1.0], [2.0])]
    rows += [row("storm/connect", [1.0], [2.0]), failed_row("start/listen", "x")]
    for table in report.markdown(rows, MACHINE, None).split("\n\n"):
        lines = table.splitlines()
        if lines[0].startswith("|"):
            assert {line.count("|") for line in lines} == {lines[0].count("|")}


def test_no_losses_is_said_too() -> None:
    assert "None: no message lost" in report.markdown([row("deep/W1", [1.0], [60.0])], MACHINE, None)


def test_hand_written_text_around_the_generated_part_stays() -> None:
    page = report.insert("# Speed\n\nBefore.\n", "first\n")
    page += "\nAfter.\n"
    page = report.insert(page, "second\n")
    assert page == f"# Speed\n\nBefore.\n\n{report.BEGIN}\n\nsecond\n\n{report.END}\n\nAfter.\n"
    assert report.insert(page, "second\n") == page


def test_new_page_gets_a_heading() -> None:
    assert report.insert("", "x\n").startswith("# Performance\n\n" + report.BEGIN)


def test_lost_end_marker_is_an_error_rather_than_lost_text() -> None:
    with pytest.raises(ValueError, match="end"):
        report.insert(f"{report.BEGIN}\nold\nAfter.\n", "new\n")
