"""The table of what check-broker found in brokers of several makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headwater_lab import check_brokers


def outcome(name: str, found: int) -> dict[str, Any]:
    return {
        "broker": {"name": name, "version": "1.2", "about": "as it comes"},
        "machine": {"date": "2026-11-18 12:00 UTC"},
        "settings": {"profile": "standard", "seconds": 40.0},
        "features": {"mqtt": "3.1.1", "remarks": ["no QoS 2"]},
        "counts": {"acknowledged": 1234},
        "faults": [{"name": "kill-a"}, {"name": "stop-a"}, {"name": "kill-b"}],
        "promises": [
            {"name": "once", "status": "broken" if found else "kept", "violations": found, "looked_at": 1000},
            {"name": "empty-session", "status": "seen", "violations": 3, "looked_at": 4},
        ],
    }


def test_the_page_gets_the_newest_outcome_of_each(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    page = tmp_path / "check-broker.md"
    page.write_text("# Checking a broker\nBefore.\n\n" + "\n".join(check_brokers.MARKS) + "\n\nAfter.\n")
    for name, date, found in (("nats", "2026-01-02", 0), ("nats", "2026-01-01", 9), ("mosquitto", "2026-01-01", 7)):
        file = tmp_path / "results" / f"check-broker-{name}-{date}.json"
        file.write_text(json.dumps(outcome(name, found)))
    assert check_brokers.main(["--docs", str(tmp_path), "--table"]) == 0
    written = page.read_text()
    assert written.startswith("# Checking a broker\nBefore.\n")
    assert written.endswith("After.\n")
    rows = [line for line in written.splitlines() if line.startswith("| ")][2:]
    assert rows == [
        "| mosquitto | 2 kill, 1 stop | 1,234 | `once` 7 of 1,000 | `empty-session` 3 of 4 |",
        "| nats | 2 kill, 1 stop | 1,234 | nothing | `empty-session` 3 of 4 |",
    ]
    assert "- **nats** (1.2): as it comes; profile standard, MQTT 3.1.1; no QoS 2. 40 s, 2026-11-18." in written


def test_an_unknown_broker_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_brokers.main(["nonsense"]) == 2
    assert "unknown: nonsense; there are mosquitto, " in capsys.readouterr().err
